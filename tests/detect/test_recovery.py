"""The clean checkpoint, the unsure ones, and what going back costs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from service.detect.recovery import Checkpoint, Pace, recovery

PACE = Pace(36.0, "36 s a step")


def saved(*steps: int) -> list[Checkpoint]:
    return [Checkpoint(step, step * 10.0, f"gs://b/{step}") for step in steps]


def test_the_newest_one_before_the_onset_is_clean_and_the_cost_is_from_it_to_now() -> None:
    found = recovery((101, 101), saved(50, 100, 101, 150), Checkpoint(200, 2_000.0), PACE)
    assert found.clean is not None
    assert found.cost is not None
    assert (found.clean.step, found.unsure, found.affected) == (100, (), 2)
    assert (found.cost.steps, found.cost.tokens, found.cost.hours) == (100, 1_000.0, 1.0)
    assert found.summary == (
        "The last checkpoint that is surely clean is step 100 (gs://b/100); a restart from it does 100 steps, "
        "1,000 tokens, 1.0 h again."
    )


def test_inside_the_onset_interval_it_cannot_be_told() -> None:
    found = recovery((80, 120), saved(50, 80, 100, 120), Checkpoint(200), PACE)
    assert found.clean is not None
    assert found.clean.step == 50
    assert [c.step for c in found.unsure] == [80, 100]
    assert found.affected == 1
    assert "cannot be told whether steps 80, 100 are clean" in found.summary


def test_without_one_it_says_so() -> None:
    none = recovery((80, 120), [], Checkpoint(200), None)
    assert (none.clean, none.cost) == (None, None)
    assert "No live checkpoint was reported" in none.summary
    late = recovery((80, 120), saved(150), Checkpoint(200), None)
    assert late.summary == "No reported checkpoint is surely from before the onset (step 80 to 120)."


def test_a_pace_that_is_not_known_is_not_made_up() -> None:
    found = recovery((10, 10), [Checkpoint(5)], Checkpoint(20), None)
    assert found.cost is not None
    assert (found.cost.tokens, found.cost.hours) == (None, None)
    assert "does 15 steps again" in found.summary


@settings(deadline=None)
@given(
    steps=st.lists(st.integers(0, 300), max_size=12),
    low=st.integers(0, 200),
    width=st.integers(0, 60),
    now=st.integers(0, 300),
)
def test_every_checkpoint_up_to_now_is_in_one_class(steps: list[int], low: int, width: int, now: int) -> None:
    found = recovery((low, low + width), saved(*steps), Checkpoint(now), PACE)
    known = {s for s in steps if s <= now}
    clean = {s for s in known if s < low}
    assert (found.clean.step if found.clean else None) == max(clean, default=None)
    assert len(clean) + len(found.unsure) + found.affected == len(known)
    assert (found.cost is None) == (found.clean is None)
    assert found.cost is None or found.cost.steps >= 0
