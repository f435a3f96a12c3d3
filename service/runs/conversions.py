"""What was done to a trainer's numbers before they were stored, as its segments declare it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

from service.runs.schemas import SegmentAnswer

KEY = "trainer_hooks"  # of a segment's config (docs/adapters.md)
MOST = 40  # lines shown, of at most LINES declared: a segment's config is whatever its sender says
LINES = 200
WILDCARDS = 3  # in one name; each multiplies the time of a search


@dataclass(frozen=True, slots=True)
class Conversion:
    """One line: the metric of ours, the formula in the trainer's own names, and why."""

    metric: str
    formula: str
    why: str


def conversions(segments: Sequence[SegmentAnswer], metrics: Collection[str]) -> tuple[list[str], list[Conversion]]:
    """How the newest segments that declare it count steps, and the conversions of metrics that the run has.

    A conversion was made where the trainer's own value stands beside it, under the declared prefix.
    """
    steps: list[str] = []
    found: dict[Conversion, None] = {}
    for segment in segments:
        declared = _mapping(segment.config.get(KEY))
        meaning, prefix = declared.get("steps"), str(declared.get("raw", ""))
        if isinstance(meaning, str) and meaning not in steps:
            steps.append(meaning)
        parameters = _mapping(declared.get("parameters"))
        lines = declared.get("conversions")
        for line in map(_mapping, cast("list[Any]", lines)[:LINES] if isinstance(lines, list) else []):
            own = _pattern(prefix + str(line.get("from", "")))
            if own is not None and any(own.fullmatch(metric) for metric in metrics):
                formula = _with_values(str(line.get("formula", "")), parameters)
                found[Conversion(str(line.get("metric", "")), formula, str(line.get("why", "")))] = None
    return steps[-MOST:], list(found)[-MOST:]


def _with_values(formula: str, parameters: dict[str, Any]) -> str:
    """`accumulation` → `4`: what a parameter was is what a reader wants to know."""
    words = re.split(r"(\b\w+\b)", formula)
    return "".join(f"{parameters[word]:g}" if _is_number(parameters.get(word)) else word for word in words)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _pattern(name: str) -> re.Pattern[str] | None:
    """`{set}` in a declared name stands for any text; None where that would be searched too long."""
    parts = re.split(r"\{\w+\}", name)
    return re.compile(".+".join(map(re.escape, parts)), re.DOTALL) if len(parts) <= WILDCARDS + 1 else None


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
