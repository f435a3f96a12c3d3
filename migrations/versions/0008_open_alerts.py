"""open alerts are found without reading all that ever were"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_alert_state", "alert", ["state"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_alert_state", table_name="alert")
