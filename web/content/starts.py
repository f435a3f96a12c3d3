"""The table of a run's starts: hardware, speed, MFU, and what changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.hardware.schemas import ChangeAnswer, SegmentUse, Utilization
from web import formatting

MOST = 20  # rows, the newest
CHANGES = 4  # said in full


@dataclass(frozen=True, slots=True)
class StartLine:
    """One start. `changes` are lines; `mfu` is empty where there is none, and `note` says why or how it is counted."""

    step: int
    started_at: float | None
    devices: str
    rate: float | None
    mfu: str
    note: str
    changes: Sequence[str]
    superseded: bool


def starts(segments: Sequence[SegmentUse]) -> list[StartLine]:
    """Trainer starts and imports, the newest first."""
    return [_line(segment) for segment in reversed(segments) if segment.kind != "evaluator"][:MOST]


def _line(segment: SegmentUse) -> StartLine:
    mfu, note = _mfu(segment.utilization)
    return StartLine(
        step=segment.start_step + 1,
        started_at=segment.started_at,
        devices=_devices(segment),
        rate=segment.tokens_per_second_per_device,
        mfu=mfu,
        note=note,
        changes=_changes(segment.changes, segment.changes_left_out),
        superseded=segment.superseded,
    )


def _devices(segment: SegmentUse) -> str:
    if segment.devices is None or segment.device_kind is None:
        return "not said"
    return f"{segment.devices} × {segment.device_kind}"


def _mfu(all_counts: Sequence[Utilization]) -> tuple[str, str]:
    """The first way of counting that gives a figure, with the others beside it; else the reason."""
    known = [one for one in all_counts if one.mfu is not None]
    if not known:
        return "", next((one.why_not for one in all_counts if one.why_not), "")
    others = "; ".join(f"{_words(one)}: {formatting.percent(one.mfu)}" for one in known[1:])
    return formatting.percent(known[0].mfu), f"{_words(known[0])}{'; ' if others else ''}{others}"


def _words(one: Utilization) -> str:
    return one.title[:1].lower() + one.title[1:]


def _changes(changes: Sequence[ChangeAnswer] | None, left_out: int) -> list[str]:
    if changes is None:
        return []
    lines = [f"{change.name}: {_text(change.before)} → {_text(change.after)}" for change in changes[:CHANGES]]
    more = len(changes) - len(lines) + left_out
    return [*lines, *([f"{more} more"] if more else [])] or ["nothing"]


def _text(value: Any) -> str:
    if value is None:
        return "not there"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"
