"""The declarative base: constraint names are fixed from the first day, so that migrations can name what they change."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import JSON, BigInteger, Float, LargeBinary, MetaData
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import Double, Integer, TypeEngine

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

# SQLite counts rows by INTEGER PRIMARY KEY alone; elsewhere keys are 64 bits wide.
Key = BigInteger().with_variant(Integer(), "sqlite")
Real = cast("TypeEngine[float]", Double().with_variant(Float(), "sqlite"))
Json = JSON()
Blob = LargeBinary()


class Base(DeclarativeBase):
    """Times are unix seconds (float64), blobs are described where they are written."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012  (SQLAlchemy reads this attribute)
        float: Real,
        bytes: Blob,
        dict[str, Any]: Json,
        list[Any]: Json,
    }
