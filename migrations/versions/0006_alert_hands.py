"""what people do with alerts"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
REAL = sa.Double().with_variant(sa.Float(), "sqlite")


def upgrade() -> None:
    with op.batch_alter_table("alert") as alert:
        alert.add_column(sa.Column("muted_until", REAL, nullable=True))
        alert.add_column(sa.Column("assignee", sa.String(length=256), nullable=True))
        alert.add_column(sa.Column("held", sa.JSON(), nullable=True))
    op.add_column("alert_change", sa.Column("event", sa.BigInteger(), nullable=True))
    _number_changes()
    with op.batch_alter_table("alert_change") as change:
        change.alter_column("event", existing_type=sa.BigInteger(), nullable=False)
        change.create_unique_constraint(op.f("uq_alert_change_event"), ["event"])
    with op.batch_alter_table("channel") as channel:
        channel.add_column(sa.Column("group_by", sa.String(length=16), nullable=False, server_default="none"))
        channel.add_column(sa.Column("group_wait", REAL, nullable=False, server_default="0"))
        channel.add_column(sa.Column("repeat_seconds", REAL, nullable=True))
    with op.batch_alter_table("delivery") as delivery:
        delivery.add_column(sa.Column("sent_with", KEY, nullable=True))
    pending = sa.text("state = 'pending'")
    op.create_index(
        "ix_delivery_channel_id_next_attempt_at",
        "delivery",
        ["channel_id", "next_attempt_at", "id"],
        sqlite_where=pending,
        postgresql_where=pending,
    )


def downgrade() -> None:
    op.drop_index("ix_delivery_channel_id_next_attempt_at", "delivery")
    with op.batch_alter_table("delivery") as delivery:
        delivery.drop_column("sent_with")
    with op.batch_alter_table("channel") as channel:
        for column in ("repeat_seconds", "group_wait", "group_by"):
            channel.drop_column(column)
    with op.batch_alter_table("alert_change") as change:
        change.drop_constraint(op.f("uq_alert_change_event"), type_="unique")
        change.drop_column("event")
    with op.batch_alter_table("alert") as alert:
        for column in ("held", "assignee", "muted_until"):
            alert.drop_column(column)


def _number_changes() -> None:
    """Give the changes that are there their places in the stream, in the order in which they happened."""
    change = sa.table("alert_change", sa.column("alert_id"), sa.column("number"), sa.column("at"), sa.column("event"))
    connection = op.get_bind()
    ordered = sa.select(change.c.alert_id, change.c.number).order_by(change.c.at, change.c.alert_id, change.c.number)
    numbered = [
        {"alert": alert_id, "change": number, "place": place}
        for place, (alert_id, number) in enumerate(connection.execute(ordered).all(), 1)
    ]
    if numbered:
        this = (change.c.alert_id == sa.bindparam("alert"), change.c.number == sa.bindparam("change"))
        connection.execute(sa.update(change).where(*this).values(event=sa.bindparam("place")), numbered)
