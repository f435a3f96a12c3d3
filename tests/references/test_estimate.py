"""Noise and tolerance worked out from curves whose noise is known."""

from __future__ import annotations

import numpy as np
import pytest

from service.detect.inputs import Series
from service.references.description import Stage
from service.references.estimate import estimate, heldout_sets, live
from service.references.token_check import TokenCheck

TRAIN, HELDOUT = "train/ce_loss", "heldout/c4/ce_loss"


def series(seed: int, noise: float, count: int = 4000, every: int = 1, shift: float = 0.0) -> Series:
    steps = np.arange(1, count + 1, dtype=np.int64) * every
    values = 2.0 + 2.0 / (1 + steps / 100) + shift + np.random.default_rng(seed).normal(0, noise, count)
    return Series(steps, steps * 1000.0, values)


def test_the_later_launch_wins_step_by_step() -> None:
    first, second = np.array([1, 2, 3, 9]), np.array([2, 3, 4])
    steps, values = live([(first, np.array([1.0, 2.0, 3.0, 9.0])), (second, np.array([20.0, np.nan, 40.0]))])
    assert steps.tolist() == [1, 2, 3, 4, 9]
    np.testing.assert_array_equal(values, [1.0, 20.0, np.nan, 40.0, 9.0])


def test_without_siblings_the_noise_is_measured_and_the_tolerance_assumed() -> None:
    found = estimate({TRAIN: series(0, 0.025), HELDOUT: series(1, 0.002, 140, 30), "train/PPL": series(2, 1.0)})
    assert set(found) == {TRAIN, HELDOUT}, "only what is judged"
    assert found[TRAIN].noise_sd == pytest.approx(0.025, rel=0.1)
    assert found[HELDOUT].noise_sd == pytest.approx(0.002, rel=0.3)
    assert (found[TRAIN].value, found[HELDOUT].value) == (pytest.approx(0.015, abs=0.002), 0.005)
    assert all(entry.runs == 0 and "assumed" in entry.source for entry in found.values())
    assert found[TRAIN].window_steps is not None


def test_siblings_measure_the_tolerance() -> None:
    reference = {TRAIN: series(0, 0.02), HELDOUT: series(1, 0.002, 140, 30)}
    near = [{TRAIN: series(s, 0.02), HELDOUT: series(s, 0.002, 140, 30)} for s in (5, 6, 7)]
    far = [{TRAIN: series(s, 0.02, shift=0.02), HELDOUT: series(s, 0.002, 140, 30, 0.02)} for s in (5, 6, 7)]
    close, wide = estimate(reference, near), estimate(reference, far)
    for metric in (TRAIN, HELDOUT):
        assert close[metric].runs == wide[metric].runs == 3
        assert wide[metric].value > 0.02 > close[metric].value
    one = estimate(reference, [{TRAIN: near[0][TRAIN]}])
    assert (one[TRAIN].runs, one[HELDOUT].runs) == (1, 0), "a sibling without evaluations says nothing of them"


def test_odd_curves() -> None:
    nothing = Series(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    assert estimate({TRAIN: nothing}) == {}
    short = Series(np.array([1, 2]), np.array([1.0, 2.0]), np.array([3.0, np.nan]))
    found = estimate({TRAIN: short, HELDOUT: short})
    assert found[TRAIN].noise_sd is None
    assert found[HELDOUT].value == 0.005


def test_the_first_held_out_set_counts_first() -> None:
    sets = heldout_sets(["train/ce_loss", "heldout/pile/ce_loss", "heldout/c4/ce_loss", "heldout/pile/ce_loss"])
    assert [(one["name"], one["primary"]) for one in sets] == [("pile", True), ("c4", False)]


def test_tokens_of_a_source() -> None:
    steps = np.array([0, 1, 2, 4])
    check = TokenCheck()
    assert check.per_step() is None
    check.add("a", steps, steps * 500.0)
    assert check.per_step() == 500
    whole = Stage(name="s", steps=4, tokens_per_step=500, token_offset=0)
    assert check.disagreement(whole) is None
    assert "at 3 points (a says 500 at step 1, not 501)" in str(
        check.disagreement(whole.model_copy(update={"tokens_per_step": 501}))
    )
    later = TokenCheck()
    later.add("b", steps, 7000 + steps * 500.0)  # counted on from the stage before
    assert later.disagreement(whole.model_copy(update={"token_offset": 7000.0})) is None
    assert later.disagreement(whole) is not None
