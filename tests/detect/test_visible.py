"""The smallest gap that a thinned reference can show: stated, and right."""

from dataclasses import fields, replace

import numpy as np
import pytest

from service.compare.align import align, level
from service.compare.gap import Blocks, block_gaps
from service.detect.engine import evaluate
from service.detect.gaps import judge_blocks
from service.detect.inputs import RunView, Segment, Series, Tolerance
from service.detect.offset import place_of
from service.detect.visible import visible_gaps

from .golden import load
from .scenarios import TRAIN, curve, judged, pair, series

STEPS, PER_STEP = 200_000, 4_194_304.0
TOLERANCE = Tolerance(0.015, "test", 0, 0.0255, 500)
DENSE = np.arange(1, STEPS // 2, 250)
THIN = np.concatenate((DENSE, np.arange(STEPS // 2, STEPS + 1, 2_500)))


def reference(rng: np.random.Generator, at=THIN) -> Series:
    return series(at, curve(at) + rng.normal(0, 0.0255, len(at)))


@pytest.mark.parametrize("window", [3, 8])  # of ten: one where the reference is denser, one where it is thin
def test_the_stated_gap_is_what_simulated_runs_need(window):
    rng = np.random.default_rng(1)
    stated = visible_gaps(level(reference(rng), "noisy"), TOLERANCE, PER_STEP, windows=10)
    at = np.arange(25, STEPS, 25)
    needed = []
    for _ in range(40):
        base = level(reference(rng), "noisy")
        blocks = block_gaps(align(series(at, curve(at) + rng.normal(0, 0.0255 / 5, len(at))), base), 500)
        slow = rng.normal(0, 0.004, len(blocks))
        for i in range(1, len(slow)):
            slow[i] = 0.85 * slow[i - 1] + np.sqrt(1 - 0.85**2) * slow[i]
        place = place_of(blocks, base.points)
        inside = (place > stated.start[window]) & (place <= stated.end[window])
        first, end = int(np.flatnonzero(inside)[0]), int(np.flatnonzero(inside)[-1]) + 1
        cut = Blocks(*(getattr(blocks, f.name)[:end] for f in fields(Blocks)))
        low, high = 0.0, 0.3
        for _ in range(8):
            gap = (low + high) / 2
            mean = (blocks.mean + slow - gap * inside)[:end]
            found = judge_blocks(replace(cut, mean=mean), TOLERANCE, base.points).episodes
            hit = any(e.side == "below" and e.alarm >= first for e in found)
            low, high = (low, gap) if hit else (gap, high)
        needed.append(high)
    assert stated.half[window] == pytest.approx(np.median(needed), rel=0.2)
    assert stated.sure[window] == pytest.approx(np.quantile(needed, 0.95), rel=0.25)


def test_a_thinned_reference_shows_larger_gaps_only_than_a_dense_one():
    rng = np.random.default_rng(2)
    thin = visible_gaps(level(reference(rng), "noisy"), TOLERANCE, PER_STEP, windows=10)
    dense = visible_gaps(level(reference(rng, np.arange(1, STEPS + 1)), "noisy"), TOLERANCE, PER_STEP, windows=10)
    assert np.all(thin.half > 1.3 * dense.half)
    assert np.all(thin.sure >= thin.half)
    assert dense.half[5] < 0.0165
    assert thin.points[3] == pytest.approx(STEPS / 10 / 250, abs=2)
    assert thin.at(0.0) == 0
    assert thin.at(0.85) == 8
    assert thin.at(1.0) == 9


def test_a_reference_of_a_few_blocks_says_nothing():
    short = level(reference(np.random.default_rng(3), np.arange(1, 400)), "noisy")
    assert visible_gaps(short, TOLERANCE, PER_STEP) is None
    assert visible_gaps(short, TOLERANCE, 1.0) is None  # a run that counts its tokens in other units


def test_cannot_tell_states_the_smallest_gap_and_the_reference_s_points():
    view = pair(4, steps=200_000, reference_at=np.arange(500, 200_001, 20_000), every=10_000)
    found = judged(view, "train_drift")["train_drift"]
    assert found.state == "cannot tell"
    seen = next(e for e in found.evidence if e.name == "smallest visible gap")
    assert seen.value > 0.03
    assert f"{seen.value:.3f}" in found.summary
    assert "points there" in seen.why
    along = next(e for e in found.evidence if e.name == "smallest visible gap along the reference")
    assert along.value.count("%") == 10


def test_the_shipped_reference_says_what_it_can_show():
    known = load("olmo3_7b/stage1", PER_STEP)
    at = np.arange(20_000, 1_000_001, 50)
    fit = np.polynomial.Polynomial.fit(np.log(known[TRAIN].steps), known[TRAIN].values, 12)
    run = series(at, fit(np.log(at)) + np.random.default_rng(5).normal(0, 0.0255, len(at)))
    said = judged(RunView({TRAIN: run}, known, {TRAIN: TOLERANCE}, [Segment(0, 0.0, 1)]), "train_drift")["train_drift"]
    seen = next(e for e in said.evidence if e.name == "smallest visible gap")
    assert 0.018 < seen.value < 0.035
    assert len(evaluate(pair(6, steps=2_000))) > 10
