"""What was worked out of the first points of a series, kept for as long as they are there."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar, cast

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
