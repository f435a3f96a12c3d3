"""An answer is used again only while all that it rests on is the same for sure."""

from __future__ import annotations

import numpy as np
import pytest

from service.compare import growing
from service.detect.inputs import RuleSetting, Segment, Series, Tolerance
from service.detect.memory import Unchanged


def points(*values: float) -> Series:
    at = np.arange(1, len(values) + 1)
    return Series(at, at * 2.0, np.array(values))


LIKE = [
    (points(1.0, float("nan")), points(1.0, float("nan"))),
    ((1, "a", 2.0), (1, "a", 2.0)),
    ({"rule": RuleSetting(0.1, "set")}, {"rule": RuleSetting(0.1, "set")}),
    ({"m": points(1.0)}, {"m": points(1.0)}),
    ([Segment(0, 1.0, 2, {"lr": 1})], [Segment(0, 1.0, 2, {"lr": 1})]),
    (Tolerance(0.1, "s"), Tolerance(0.1, "s")),
    (None, None),
]
UNLIKE = [
    (points(1.0), points(1.0, 2.0)),
    (points(0.0), points(-0.0)),
    ((1, 2), (1, 2, 3)),
    ({"a": 1}, {"b": 1}),
    ([Segment(0, 1.0, 2, {"lr": 1})], [Segment(0, 1.0, 2, {"lr": 2})]),
    (1, True),
    (None, points(1.0)),
    (object(), object()),
    (np.zeros(2), np.zeros(2)),  # what is not known to be plain must be the same object
]


@pytest.mark.parametrize(("parts", "same"), [(p, True) for p in LIKE] + [(p, False) for p in UNLIKE])
def test_when_an_answer_is_made_anew(parts: tuple[object, object], same: bool) -> None:
    made: list[int] = []
    kept = Unchanged()
    for part in parts:
        kept.get("name", (part,), lambda: made.append(len(made)))
    assert len(made) == (1 if same else 2)


def test_what_was_compared_in_full_is_known_by_its_place_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    real = growing.same_bits
    kept, first, moved = Unchanged(), points(1.0, 2.0), points(1.0, 2.0)
    kept.get("name", (first,), lambda: 1)
    kept.get("name", (moved,), lambda: 2)
    monkeypatch.setattr("service.detect.memory.same_bits", lambda a, b: compared.append(len(a)) or real(a, b))
    assert kept.get("name", (moved,), lambda: 3) == 1
    assert compared == []
