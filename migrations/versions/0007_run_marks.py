"""archived runs, and notes that people add"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
REAL = sa.Double().with_variant(sa.Float(), "sqlite")


def upgrade() -> None:
    op.add_column("run", sa.Column("archived_at", REAL, nullable=True))
    op.create_table(
        "run_note",
        sa.Column("id", KEY, nullable=False),
        sa.Column("uuid", sa.Uuid(), nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("written_by", sa.String(length=256), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at", REAL, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_run_note_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_note")),
        sa.UniqueConstraint("uuid", name=op.f("uq_run_note_uuid")),
    )
    op.create_index("ix_run_note_run_id", "run_note", ["run_id"], unique=False)


def downgrade() -> None:
    op.drop_table("run_note")
    op.drop_column("run", "archived_at")  # in place: a table made anew would take with it what points to it
