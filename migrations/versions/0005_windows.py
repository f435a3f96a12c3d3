"""windows and held-out hits"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("fingerprint") as fingerprint:
        fingerprint.add_column(sa.Column("windows", sa.BigInteger(), nullable=True))
        fingerprint.add_column(sa.Column("counts", sa.LargeBinary(), nullable=True))
    if op.get_bind().dialect.name == "postgresql":  # compressed already, as all packed arrays are
        op.execute("ALTER TABLE fingerprint ALTER COLUMN counts SET STORAGE EXTERNAL")


def downgrade() -> None:
    with op.batch_alter_table("fingerprint") as fingerprint:
        fingerprint.drop_column("counts")
        fingerprint.drop_column("windows")
