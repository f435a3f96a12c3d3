"""What is kept between judgements never changes an answer: growth, rewinds, late points, other runs."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.compare.align import align, level
from service.compare.gap import Blocks, block_gaps
from service.detect.cache import LevelCache, common_prefix
from service.detect.engine import evaluate
from service.detect.inputs import Series
from service.detect.replay import prefix

from .scenarios import TRAIN, curve, lab, pair, series, step_change


def same_blocks(a: Blocks, b: Blocks) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name), equal_nan=True) for f in fields(Blocks))


def changed(run: Series, kind: str, at: int, rng: np.random.Generator) -> Series:
    """The run as it is read next: grown already, and with its past from `at` on rewound, holed or filled in."""
    steps, values = run.steps.copy(), run.values.copy()
    keep = np.ones(len(run), bool)
    if kind == "rewound":
        values[at:] += rng.normal(0, 0.1, len(run) - at)
    elif kind == "one late point":
        values[at] += 1.0
    elif kind == "points gone":
        keep[at : at + 30] = False
    elif kind == "not finite":
        values[at : at + 3] = np.nan
    return Series(steps[keep], run.tokens[keep].copy(), values[keep])


KINDS = ("grown", "rewound", "one late point", "points gone", "not finite")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(20, 2_200), st.integers(0, 1_999)), min_size=2, max_size=6),
    st.sampled_from([1, 1, 3, 40]), st.sampled_from([1, 7]), st.integers(0, 1000), st.booleans(),
)  # fmt: skip
def test_blocks_are_those_made_from_scratch_to_the_last_bit(changes, thin, reference_thin, seed, holes):
    rng = np.random.default_rng(seed)
    at = np.arange(1, 2_001)
    reference = series(
        at[::reference_thin], curve(at[::reference_thin]) + rng.normal(0, 0.02, len(at[::reference_thin]))
    )
    placed = level(reference, "noisy")
    keep = rng.random(2_200) < (0.7 if holes else 1.0)
    steps = np.arange(1, 2_201)[keep][::thin]
    run = series(steps, curve(steps) + rng.normal(0, 0.02, len(steps)))
    cache = LevelCache()
    for kind, upto, where in changes:
        n = max(int(np.searchsorted(run.steps, upto)), 1)
        run = changed(run, kind, min(where, len(run) - 1), rng)
        now = Series(run.steps[:n], run.tokens[:n], run.values[:n])
        if len(now):
            assert same_blocks(cache.blocks(now, placed, 50), block_gaps(align(now, placed), 50))
            assert np.array_equal(cache.non_finite(now), np.flatnonzero(~np.isfinite(now.values)))


@pytest.mark.parametrize("view", [lab(3, double=True), pair(3, train=step_change(20_000, -0.05))], ids=["lab", "7b"])
def test_every_rule_says_the_same_with_and_without_what_was_kept(view):
    cache = LevelCache()
    last = int(view.metrics[TRAIN].steps[-1])
    for step in [*range(last // 8, last + 1, last // 8), last // 2, last]:
        assert evaluate(prefix(view, step), cache) == evaluate(prefix(view, step))


def test_runs_that_share_a_cache_do_not_mix():
    first, second = pair(4, steps=5_000), pair(5, steps=5_000)
    second = replace(second, reference=first.reference, tolerances=first.tolerances)
    cache = LevelCache()
    for step in (2_000, 4_000, 5_000):
        for view in (first, second):
            assert evaluate(prefix(view, step), cache) == evaluate(prefix(view, step))


def test_another_version_of_the_reference_is_smoothed_anew():
    view, cache = pair(6, steps=5_000), LevelCache()
    evaluate(view, cache)
    lifted = {m: Series(s.steps, s.tokens, s.values + 0.1) for m, s in view.reference.items()}
    other = replace(view, reference=lifted)
    assert evaluate(other, cache) == evaluate(other)


def test_only_new_points_are_placed_again(monkeypatch):
    view, cache, placed = pair(7, steps=20_000), LevelCache(), []
    real = align
    monkeypatch.setattr(
        "service.detect.cache.align", lambda run, ref, **k: placed.append(len(run)) or real(run, ref, **k)
    )
    copies = {m: Series(s.steps.copy(), s.tokens.copy(), s.values.copy()) for m, s in view.metrics.items()}
    evaluate(prefix(view, 19_000), cache)
    evaluate(prefix(replace(view, metrics=copies), 19_500), cache)
    assert placed == [19_000, 501]


def test_the_common_prefix_is_compared_bit_by_bit():
    one = series([1, 2, 3], [0.0, np.nan, 1.0])
    assert common_prefix(one, series([1, 2, 3, 4], [0.0, np.nan, 1.0, 2.0])) == 3
    assert common_prefix(one, series([1, 2, 3], [-0.0, np.nan, 1.0])) == 0
    assert common_prefix(one, series([1, 2, 5], [0.0, np.nan, 1.0])) == 2
    assert common_prefix(one, series([1, 2, 3], [0.0, np.nan, 1.0], per_step=1.0)) == 0
