"""What a rule answers: a judgement with its numbers, the same in alerts, API, pages, messages and backtests."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

State = Literal["yes", "no", "cannot tell"]
Weight = Literal["shown", "likely", "possible", "ruled out"]
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number a person can check. `value` is in `unit`; `why` says what it has to do with the judgement."""

    name: str
    value: float | int | str | None
    unit: str
    why: str


@dataclass(frozen=True, slots=True)
class Cause:
    """A possible explanation of a "yes", and what speaks for or against it."""

    name: str
    weight: Weight
    because: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """One rule's answer about one run, as of step `at_step`.

    `value` and its `interval` are in `unit`, judged against `limit` (same unit; `limit_source` says where the limit
    comes from) on `n` observations. `since_step` and `since_tokens` bound the onset (earliest, latest) of a "yes".
    `causes` are ordered, most likely first. `summary` is one plain sentence.
    """

    rule: str
    state: State
    at_step: int
    summary: str
    since_step: tuple[int, int] | None = None
    since_tokens: Interval | None = None
    value: float | None = None
    interval: Interval | None = None
    unit: str = ""
    limit: float | None = None
    limit_source: str = ""
    n: int = 0
    evidence: list[Evidence] = field(default_factory=list[Evidence])
    causes: list[Cause] = field(default_factory=list[Cause])
    next_checks: list[str] = field(default_factory=list[str])

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON types (tuples as lists)."""
        body = {name: getattr(self, name) for name in _FIELDS}
        body["evidence"] = [{"name": e.name, "value": e.value, "unit": e.unit, "why": e.why} for e in self.evidence]
        body["causes"] = [{"name": c.name, "weight": c.weight, "because": c.because} for c in self.causes]
        return body


_FIELDS = tuple(found.name for found in fields(Judgement))
