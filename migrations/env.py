"""Runs the migrations on the engine that the program hands over."""

from __future__ import annotations

from typing import Any

from alembic import context
from sqlalchemy import Engine

from service.database.models import Base

engine: Engine | None = context.config.attributes.get("engine")
if engine is None:
    raise SystemExit("Run migrations with: pacenote database upgrade")

options: dict[str, Any] = {
    "target_metadata": Base.metadata,
    "render_as_batch": engine.dialect.name == "sqlite",
    "transaction_per_migration": True,
    "compare_type": True,
}
with engine.connect().execution_options(writing=True) as connection:
    context.configure(connection=connection, **options)
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()
