"""judging settings"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
REAL = sa.Double().with_variant(sa.Float(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "rule_setting",
        sa.Column("id", KEY, nullable=False),
        sa.Column("project_id", KEY, nullable=False),
        sa.Column("run_id", KEY, nullable=True),
        sa.Column("rule", sa.String(length=64), nullable=False),
        sa.Column("tolerance", REAL, nullable=True),
        sa.Column("minimum_evidence", sa.BigInteger(), nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=True),
        sa.Column("muted", sa.Boolean(), nullable=True),
        sa.Column("muted_until", REAL, nullable=True),
        sa.Column("set_by", sa.String(length=256), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("set_at", REAL, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_rule_setting_project_id_project")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_rule_setting_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rule_setting")),
        sa.UniqueConstraint("run_id", "rule", name=op.f("uq_rule_setting_run_id_rule")),
    )
    op.create_index(
        "ix_rule_setting_project_id_rule",
        "rule_setting",
        ["project_id", "rule"],
        unique=True,
        sqlite_where=sa.text("run_id IS NULL"),
        postgresql_where=sa.text("run_id IS NULL"),
    )
    op.create_table(
        "deviation",
        sa.Column("id", KEY, nullable=False),
        sa.Column("uuid", sa.Uuid(), nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("item", sa.String(length=64), nullable=False),
        sa.Column("budgets", sa.JSON(), nullable=False),
        sa.Column("from_step", sa.BigInteger(), nullable=False),
        sa.Column("from_tokens", REAL, nullable=True),
        sa.Column("end_step", sa.BigInteger(), nullable=True),
        sa.Column("end_tokens", REAL, nullable=True),
        sa.Column("end_at", REAL, nullable=True),
        sa.Column("declared_by", sa.String(length=256), nullable=False),
        sa.Column("declared_at", REAL, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_deviation_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deviation")),
        sa.UniqueConstraint("uuid", name=op.f("uq_deviation_uuid")),
    )
    op.create_index(op.f("ix_deviation_run_id"), "deviation", ["run_id"])
    op.create_table(
        "judging_change",
        sa.Column("id", KEY, nullable=False),
        sa.Column("project_id", KEY, nullable=False),
        sa.Column("run_id", KEY, nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("subject", sa.String(length=64), nullable=False),
        sa.Column("at", REAL, nullable=False),
        sa.Column("by", sa.String(length=256), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("old", sa.JSON(), nullable=True),
        sa.Column("new", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_judging_change_project_id_project")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_judging_change_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_judging_change")),
    )
    op.create_index("ix_judging_change_project_id_id", "judging_change", ["project_id", "id"])
    with op.batch_alter_table("run_work") as work:
        work.add_column(sa.Column("done_segment", sa.BigInteger(), nullable=True))
        work.add_column(sa.Column("done_change", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("run_work") as work:
        work.drop_column("done_change")
        work.drop_column("done_segment")
    op.drop_table("judging_change")
    op.drop_table("deviation")
    op.drop_table("rule_setting")
