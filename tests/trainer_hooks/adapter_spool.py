"""Reads back what adapters recorded."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_hooks.spool import Cursor, Position, part_ends
from trainer_hooks.stores import LocalStore


@dataclass
class Segment:
    """One segment of a spool folder: its body, (step, metric) -> value, tokens by step, and the other bodies."""

    body: dict[str, Any]
    points: dict[tuple[int, str], Any] = field(default_factory=dict)
    tokens: dict[int, Any] = field(default_factory=dict)
    fingerprints: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = False

    def series(self, metric: str) -> dict[int, Any]:
        return {step: value for (step, name), value in self.points.items() if name == metric}

    def seen(self) -> dict[int, int]:
        """Step -> rows that were reported."""
        return {
            step: rows
            for body in self.fingerprints
            for first, last, rows in body["seen"]
            for step in range(first, last + 1)
        }


def recorded(folder: Path) -> list[Segment]:
    """The segments of a spool folder by their start."""
    store, found = LocalStore(folder), []
    for spool, ends in part_ends(store).items():
        cursor = Cursor(store, spool, Position(), ends)
        segment: Segment | None = None
        while (record := cursor.peek()) is not None:
            body = json.loads(record.body)
            if record.kind == "segment":
                segment = segment or Segment(body)
            elif record.kind == "batches":
                for i, step in enumerate(body["steps"]):
                    for name, column in body["metrics"].items():
                        if column[i] is not None:
                            segment.points[step, name] = column[i]
                    if body.get("tokens") and body["tokens"][i] is not None:
                        segment.tokens[step] = body["tokens"][i]
            elif record.kind == "finish":
                segment.finished = True
            else:
                getattr(segment, record.kind).append(body)
            cursor.acknowledge(record.number)
        found.append(segment)
    return sorted(found, key=lambda segment: segment.body["started_at"])
