"""first schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
REAL = sa.Double().with_variant(sa.Float(), "sqlite")

# Packed arrays do not compress further: PostgreSQL shall not spend a millisecond per row on trying.
BLOBS = {
    "journal": ("payload",),
    "chunk": ("summary", "steps", "values"),
    "fingerprint": ("steps", "hashes", "seen"),
    "item_result": ("correct",),
}


def upgrade() -> None:
    op.create_table(
        "project",
        sa.Column("id", KEY, nullable=False),
        sa.Column("slug", sa.String(length=256), nullable=False),
        sa.Column("created_at", REAL, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project")),
        sa.UniqueConstraint("slug", name=op.f("uq_project_slug")),
    )
    op.create_table(
        "reference",
        sa.Column("id", KEY, nullable=False),
        sa.Column("slug", sa.String(length=256), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("title", sa.String(length=512), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("description", sa.JSON(), nullable=False),
        sa.Column("installed_at", REAL, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reference")),
        sa.UniqueConstraint("slug", "version", name=op.f("uq_reference_slug_version")),
    )
    op.create_table(
        "channel",
        sa.Column("id", KEY, nullable=False),
        sa.Column("uuid", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("url", sa.String(length=2048), nullable=False),
        sa.Column("secret", sa.String(length=256), nullable=True),
        sa.Column("project_id", KEY, nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", REAL, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_channel_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_channel")),
        sa.UniqueConstraint("name", name=op.f("uq_channel_name")),
        sa.UniqueConstraint("uuid", name=op.f("uq_channel_uuid")),
    )
    op.create_table(
        "run",
        sa.Column("id", KEY, nullable=False),
        sa.Column("uuid", sa.Uuid(), nullable=False),
        sa.Column("project_id", KEY, nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("stage", sa.String(length=256), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("reference", sa.String(length=256), nullable=True),
        sa.Column("token_offset", REAL, nullable=False),
        sa.Column("forked_from", sa.Uuid(), nullable=True),
        sa.Column("forked_at_step", sa.BigInteger(), nullable=True),
        sa.Column("data", sa.JSON(), nullable=True),
        sa.Column("created_at", REAL, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_run_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
        sa.UniqueConstraint("project_id", "name", "stage", name=op.f("uq_run_project_id_name_stage")),
        sa.UniqueConstraint("uuid", name=op.f("uq_run_uuid")),
    )
    op.create_index("ix_run_project_id_created_at", "run", ["project_id", "created_at"], unique=False)
    op.create_table(
        "alert",
        sa.Column("id", KEY, nullable=False),
        sa.Column("uuid", sa.Uuid(), nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("family", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("title", sa.String(length=512), nullable=False),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column("judgements", sa.JSON(), nullable=False),
        sa.Column("opened_at", REAL, nullable=False),
        sa.Column("opened_step", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", REAL, nullable=False),
        sa.Column("resolved_at", REAL, nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_alert_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert")),
        sa.UniqueConstraint("uuid", name=op.f("uq_alert_uuid")),
    )
    op.create_index("ix_alert_run_id_family_state", "alert", ["run_id", "family", "state"], unique=False)
    op.create_table(
        "judgement",
        sa.Column("run_id", KEY, autoincrement=False, nullable=False),
        sa.Column("rule", sa.String(length=64), nullable=False),
        sa.Column("family", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("at_step", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("decided_at", REAL, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_judgement_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", "rule", name=op.f("pk_judgement")),
    )
    op.create_table(
        "metric",
        sa.Column("run_id", KEY, autoincrement=False, nullable=False),
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("eval_set", sa.String(length=256), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_metric_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", "id", name=op.f("pk_metric")),
        sa.UniqueConstraint("run_id", "name", name=op.f("uq_metric_run_id_name")),
    )
    op.create_table(
        "reference_run",
        sa.Column("reference_id", KEY, autoincrement=False, nullable=False),
        sa.Column("stage", sa.String(length=256), nullable=False),
        sa.Column("sibling", sa.String(length=256), nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.ForeignKeyConstraint(
            ["reference_id"], ["reference.id"], name=op.f("fk_reference_run_reference_id_reference")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_reference_run_run_id_run")),
        sa.PrimaryKeyConstraint("reference_id", "stage", "sibling", name=op.f("pk_reference_run")),
    )
    op.create_table(
        "run_state",
        sa.Column("run_id", KEY, autoincrement=False, nullable=False),
        sa.Column("data_version", sa.BigInteger(), nullable=False),
        sa.Column("last_data_at", REAL, nullable=True),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("last_tokens", REAL, nullable=True),
        sa.Column("journal_points", sa.BigInteger(), nullable=False),
        sa.Column("journal_steps", sa.BigInteger(), nullable=False),
        sa.Column("journal_rows", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_run_state_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_run_state")),
    )
    op.create_table(
        "run_work",
        sa.Column("run_id", KEY, autoincrement=False, nullable=False),
        sa.Column("task", sa.String(length=16), nullable=False),
        sa.Column("done_version", sa.BigInteger(), nullable=False),
        sa.Column("done_at", REAL, nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_run_work_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", "task", name=op.f("pk_run_work")),
    )
    op.create_table(
        "segment",
        sa.Column("id", KEY, nullable=False),
        sa.Column("uuid", sa.Uuid(), nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("start_step", sa.BigInteger(), nullable=False),
        sa.Column("start_tokens", REAL, nullable=True),
        sa.Column("tokens_per_step", sa.BigInteger(), nullable=True),
        sa.Column("ramp", sa.JSON(), nullable=True),
        sa.Column("topology", sa.JSON(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("versions", sa.JSON(), nullable=False),
        sa.Column("sample_rows", sa.BigInteger(), nullable=False),
        sa.Column("started_at", REAL, nullable=False),
        sa.Column("finished_at", REAL, nullable=True),
        sa.Column("digest", sa.LargeBinary(length=16), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_segment_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_segment")),
        sa.UniqueConstraint("uuid", name=op.f("uq_segment_uuid")),
    )
    op.create_index("ix_segment_run_id_started_at", "segment", ["run_id", "started_at"], unique=False)
    op.create_table(
        "verdict",
        sa.Column("run_id", KEY, autoincrement=False, nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("decided_at", REAL, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_verdict_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_verdict")),
    )
    op.create_table(
        "alert_change",
        sa.Column("alert_id", KEY, autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("at", REAL, nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["alert_id"], ["alert.id"], name=op.f("fk_alert_change_alert_id_alert")),
        sa.PrimaryKeyConstraint("alert_id", "number", name=op.f("pk_alert_change")),
    )
    op.create_table(
        "chunk",
        sa.Column("run_id", KEY, autoincrement=False, nullable=False),
        sa.Column("metric_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("segment_id", KEY, nullable=False),
        sa.Column("weights_segment_id", KEY, nullable=True),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("points", sa.Integer(), nullable=False),
        sa.Column("repeats", sa.Boolean(), nullable=False),
        sa.Column("cell", sa.Integer(), nullable=False),
        sa.Column("summary", sa.LargeBinary(), nullable=False),
        sa.Column("steps", sa.LargeBinary(), nullable=False),
        sa.Column("values", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_chunk_run_id_run")),
        sa.ForeignKeyConstraint(["segment_id"], ["segment.id"], name=op.f("fk_chunk_segment_id_segment")),
        sa.ForeignKeyConstraint(
            ["weights_segment_id"], ["segment.id"], name=op.f("fk_chunk_weights_segment_id_segment")
        ),
        sa.PrimaryKeyConstraint("run_id", "metric_id", "number", name=op.f("pk_chunk")),
    )
    op.create_index(
        "ix_chunk_run_id_metric_id_open",
        "chunk",
        ["run_id", "metric_id"],
        unique=False,
        sqlite_where=sa.text("points < 8192"),
        postgresql_where=sa.text("points < 8192"),
    )
    op.create_table(
        "delivery",
        sa.Column("id", KEY, nullable=False),
        sa.Column("uuid", sa.Uuid(), nullable=False),
        sa.Column("alert_id", KEY, nullable=False),
        sa.Column("change_number", sa.Integer(), nullable=False),
        sa.Column("channel_id", KEY, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", REAL, nullable=False),
        sa.Column("claimed_until", REAL, nullable=True),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", REAL, nullable=False),
        sa.Column("delivered_at", REAL, nullable=True),
        sa.ForeignKeyConstraint(["alert_id"], ["alert.id"], name=op.f("fk_delivery_alert_id_alert")),
        sa.ForeignKeyConstraint(["channel_id"], ["channel.id"], name=op.f("fk_delivery_channel_id_channel")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_delivery")),
        sa.UniqueConstraint(
            "alert_id", "change_number", "channel_id", name=op.f("uq_delivery_alert_id_change_number_channel_id")
        ),
        sa.UniqueConstraint("uuid", name=op.f("uq_delivery_uuid")),
    )
    op.create_index("ix_delivery_state_next_attempt_at", "delivery", ["state", "next_attempt_at"], unique=False)
    op.create_table(
        "event",
        sa.Column("id", KEY, nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("segment_id", KEY, nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.Column("at", REAL, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_event_run_id_run")),
        sa.ForeignKeyConstraint(["segment_id"], ["segment.id"], name=op.f("fk_event_segment_id_segment")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
    )
    op.create_index("ix_event_run_id_step", "event", ["run_id", "step"], unique=False)
    op.create_table(
        "fingerprint",
        sa.Column("id", KEY, nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("segment_id", KEY, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("host", sa.Integer(), nullable=False),
        sa.Column("set_name", sa.String(length=256), nullable=True),
        sa.Column("sample", sa.BigInteger(), nullable=False),
        sa.Column("points", sa.Integer(), nullable=False),
        sa.Column("steps", sa.LargeBinary(), nullable=False),
        sa.Column("hashes", sa.LargeBinary(), nullable=False),
        sa.Column("seen", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_fingerprint_run_id_run")),
        sa.ForeignKeyConstraint(["segment_id"], ["segment.id"], name=op.f("fk_fingerprint_segment_id_segment")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fingerprint")),
    )
    op.create_index("ix_fingerprint_run_id_kind_id", "fingerprint", ["run_id", "kind", "id"], unique=False)
    op.create_table(
        "item_result",
        sa.Column("id", KEY, nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("segment_id", KEY, nullable=False),
        sa.Column("task", sa.String(length=256), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("items", sa.Integer(), nullable=False),
        sa.Column("correct", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_item_result_run_id_run")),
        sa.ForeignKeyConstraint(["segment_id"], ["segment.id"], name=op.f("fk_item_result_segment_id_segment")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_item_result")),
    )
    op.create_index("ix_item_result_run_id_task_step", "item_result", ["run_id", "task", "step"], unique=False)
    op.create_table(
        "journal",
        sa.Column("id", KEY, nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("segment_id", KEY, nullable=False),
        sa.Column("received_at", REAL, nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("points", sa.Integer(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_journal_run_id_run")),
        sa.ForeignKeyConstraint(["segment_id"], ["segment.id"], name=op.f("fk_journal_segment_id_segment")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_journal")),
    )
    op.create_index("ix_journal_run_id_id", "journal", ["run_id", "id"], unique=False)
    op.create_table(
        "receipt",
        sa.Column("segment_id", KEY, autoincrement=False, nullable=False),
        sa.Column("process", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.LargeBinary(length=8), nullable=False),
        sa.ForeignKeyConstraint(["segment_id"], ["segment.id"], name=op.f("fk_receipt_segment_id_segment")),
        sa.PrimaryKeyConstraint("segment_id", "process", "kind", "seq", name=op.f("pk_receipt")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "delivery_attempt",
        sa.Column("delivery_id", KEY, autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", REAL, nullable=False),
        sa.Column("seconds", REAL, nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.String(length=512), nullable=True),
        sa.ForeignKeyConstraint(
            ["delivery_id"], ["delivery.id"], name=op.f("fk_delivery_attempt_delivery_id_delivery")
        ),
        sa.PrimaryKeyConstraint("delivery_id", "number", name=op.f("pk_delivery_attempt")),
    )
    if op.get_bind().dialect.name == "postgresql":
        _tune_postgresql()


def _tune_postgresql() -> None:
    for table, columns in BLOBS.items():
        for column in columns:
            op.execute(f'ALTER TABLE {table} ALTER COLUMN "{column}" SET STORAGE EXTERNAL')
    # Sealed rows leave the journal at once: their space must be free again before it grows by as much.
    eager = "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000"
    toast = "toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 2000"
    op.execute(f"ALTER TABLE journal SET ({eager}, {toast})")


def downgrade() -> None:
    op.drop_table("delivery_attempt")
    op.drop_table("receipt")
    op.drop_index("ix_journal_run_id_id", table_name="journal")
    op.drop_table("journal")
    op.drop_index("ix_item_result_run_id_task_step", table_name="item_result")
    op.drop_table("item_result")
    op.drop_index("ix_fingerprint_run_id_kind_id", table_name="fingerprint")
    op.drop_table("fingerprint")
    op.drop_index("ix_event_run_id_step", table_name="event")
    op.drop_table("event")
    op.drop_index("ix_delivery_state_next_attempt_at", table_name="delivery")
    op.drop_table("delivery")
    op.drop_index(
        "ix_chunk_run_id_metric_id_open",
        table_name="chunk",
        sqlite_where=sa.text("points < 8192"),
        postgresql_where=sa.text("points < 8192"),
    )
    op.drop_table("chunk")
    op.drop_table("alert_change")
    op.drop_table("verdict")
    op.drop_index("ix_segment_run_id_started_at", table_name="segment")
    op.drop_table("segment")
    op.drop_table("run_work")
    op.drop_table("run_state")
    op.drop_table("reference_run")
    op.drop_table("metric")
    op.drop_table("judgement")
    op.drop_index("ix_alert_run_id_family_state", table_name="alert")
    op.drop_table("alert")
    op.drop_index("ix_run_project_id_created_at", table_name="run")
    op.drop_table("run")
    op.drop_table("channel")
    op.drop_table("reference")
    op.drop_table("project")
