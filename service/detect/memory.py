"""What was worked out before and is used again: of the first points of a series, or of what has not changed since."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from service.compare.growing import same_bits

from .inputs import DeclaredData, Deviation, RowReadings, RuleSetting, Segment, Series, Tolerance

R = TypeVar("R")


@dataclass(slots=True)
class Memory:
    """Answers by key, each with the number of leading points it rests on."""

    _made: dict[Hashable, tuple[int, object]] = field(default_factory=dict[Hashable, tuple[int, object]])

    def remember(self, key: Hashable, points: int, make: Callable[[], R]) -> R:
        """What `make` gives, which depends on the first `points` points alone."""
        if key not in self._made:
            self._made[key] = (points, make())
        return cast("R", self._made[key][1])

    def forget(self, points: int) -> None:
        """Only the first `points` points are as they were."""
        self._made = {key: held for key, held in self._made.items() if held[0] <= points}


@dataclass(slots=True)
class Unchanged:
    """The newest answer under each name, used again while what it rests on is the same."""

    _made: dict[Hashable, tuple[tuple[object, ...], object]] = field(
        default_factory=dict[Hashable, tuple[tuple[object, ...], object]]
    )

    def get(self, name: Hashable, parts: tuple[object, ...], make: Callable[[], R]) -> R:
        """What `make` gives, which depends on `parts` alone: series and arrays, compared bit by bit; what is plain,
        compared by value; and what never changes while it is there, known by being the same object."""
        held = self._made.get(name)
        if held is not None and len(held[0]) == len(parts) and all(map(same_part, held[0], parts)):
            self._made[name] = (parts, held[1])  # arrays that have moved are compared in full only once
            return cast("R", held[1])
        made = make()
        self._made[name] = (parts, made)
        return made


PLAIN = (str, int, float, bool, tuple, list, Tolerance, DeclaredData, RuleSetting, Deviation, Segment)


def same_part(old: object, new: object) -> bool:
    """Whether two parts of what an answer rests on are the same for sure."""
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if isinstance(old, Series) and isinstance(new, Series):
        return len(old) == len(new) == common_prefix(old, new)
    if isinstance(old, RowReadings) and isinstance(new, RowReadings):
        return _same_readings(old, new)
    if isinstance(old, dict) and isinstance(new, dict):  # of settings and tolerances
        mine, other = cast("dict[Any, object]", old), cast("dict[Any, object]", new)
        return mine.keys() == other.keys() and all(same_part(mine[key], other[key]) for key in mine)
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        ours, theirs = cast("list[object]", old), cast("list[object]", new)
        return len(ours) == len(theirs) and all(map(same_part, ours, theirs))
    return isinstance(old, PLAIN) and old == new


def _same_readings(old: RowReadings, new: RowReadings) -> bool:
    n, m = len(old.steps), len(old.seen_steps)
    if (old.sample, n, m) != (new.sample, len(new.steps), len(new.seen_steps)):
        return False
    rows = n == same_bits(old.steps, new.steps) == same_bits(old.hosts, new.hosts) == same_bits(old.hashes, new.hashes)
    return rows and m == same_bits(old.seen_steps, new.seen_steps) == same_bits(old.seen_rows, new.seen_rows)


def common_prefix(old: Series, new: Series) -> int:
    """How many leading points two series share: steps, tokens and values, bit by bit."""
    if old is new:
        return len(old)
    same = min(same_bits(old.tokens, new.tokens), same_bits(old.values, new.values))
    return min(same, same_bits(old.steps, new.steps))
