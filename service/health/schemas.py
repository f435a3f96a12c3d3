"""What the health endpoints answer."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class Health(BaseModel):
    """The process runs."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """The database answers and has the schema this program works with, and judging keeps up: the oldest data that was
    not judged yet has waited for so long."""

    status: Literal["ready"] = "ready"
    revision: str
    judgement_lag_seconds: float
