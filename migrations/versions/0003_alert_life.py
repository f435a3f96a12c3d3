"""life of alerts, channels"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

REAL = sa.Double().with_variant(sa.Float(), "sqlite")

ADDED = ("paused_until", "failures", "min_severity", "rules", "run_id", "previous_until", "previous_secret")


def upgrade() -> None:
    with op.batch_alter_table("channel") as channel:
        # Sealed values are longer than what they hold.
        channel.alter_column("url", existing_type=sa.String(length=2048), type_=sa.Text(), existing_nullable=False)
        channel.alter_column("secret", existing_type=sa.String(length=256), type_=sa.Text(), existing_nullable=True)
        channel.add_column(sa.Column("previous_secret", sa.Text(), nullable=True))
        channel.add_column(sa.Column("previous_until", REAL, nullable=True))
        channel.add_column(sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True))
        channel.add_column(sa.Column("rules", sa.JSON(), nullable=True))
        channel.add_column(sa.Column("min_severity", sa.String(length=16), nullable=False, server_default="info"))
        channel.add_column(sa.Column("failures", sa.Integer(), nullable=False, server_default="0"))
        channel.add_column(sa.Column("paused_until", REAL, nullable=True))
        channel.create_foreign_key(op.f("fk_channel_run_id_run"), "run", ["run_id"], ["id"])


def downgrade() -> None:
    with op.batch_alter_table("channel") as channel:
        channel.drop_constraint(op.f("fk_channel_run_id_run"), type_="foreignkey")
        for column in ADDED:
            channel.drop_column(column)
        channel.alter_column("secret", existing_type=sa.Text(), type_=sa.String(length=256), existing_nullable=True)
        channel.alter_column("url", existing_type=sa.Text(), type_=sa.String(length=2048), existing_nullable=False)
