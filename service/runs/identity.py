"""A run's public id, made from its names alone, so that every client comes to the same one."""

from __future__ import annotations

import json
from uuid import UUID, uuid5

NAMESPACE = UUID("6b1f9a52-6c1e-5d0e-9b59-3f7c0d1a7e11")


def run_uuid(project: str, name: str, stage: str) -> UUID:
    """The id of one stage of one training (docs/wire.md says how it is made)."""
    return uuid5(NAMESPACE, json.dumps([project, name, stage], ensure_ascii=False, separators=(",", ":")))
