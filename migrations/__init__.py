"""Alembic's migrations of the service's database."""
