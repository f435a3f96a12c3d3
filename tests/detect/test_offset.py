"""The run's own settled offset: healthy ones stay quiet, what leaves them is found, nothing looks ahead."""

from dataclasses import fields

import numpy as np
import pytest

from service.compare.gap import Blocks
from service.detect.gaps import TrainGap, judge_blocks
from service.detect.inputs import Tolerance
from service.detect.offset import place_of, settled_offsets

BLOCKS, BLOCK, PER_STEP, TOLERANCE = 2_827, 500, 4_194_304.0, 0.015
SE = 0.0255 * np.sqrt(2 / BLOCK)
ENDS = np.array([1.0, BLOCKS * BLOCK]) * PER_STEP


def wander(rng: np.random.Generator, sd: float) -> np.ndarray:
    out = rng.normal(0, sd, BLOCKS)
    for i in range(1, BLOCKS):
        out[i] = 0.85 * out[i - 1] + np.sqrt(1 - 0.85**2) * out[i]
    return out


def blocks_of(mean: np.ndarray) -> Blocks:
    last = BLOCK * (np.arange(len(mean)) + 1)
    every = np.full(len(mean), BLOCK)
    return Blocks(last - BLOCK + 1, last, (last - BLOCK + 1) * PER_STEP, last * PER_STEP, mean,
                  np.full(len(mean), SE), every, every)  # fmt: skip


def judged(seed: int, gap: np.ndarray | float, runs: int = 0) -> TrainGap:
    rng = np.random.default_rng(seed)
    mean = gap + wander(rng, TOLERANCE / 3.75) + rng.normal(0, SE, BLOCKS)
    return judge_blocks(blocks_of(mean), Tolerance(TOLERANCE, "test", runs, 0.0255, BLOCK), ENDS)


AT = np.arange(BLOCKS)


@pytest.mark.parametrize("offset", [0.01, -0.01, 0.005])
def test_a_constant_offset_of_two_thirds_of_the_tolerance_is_healthy_for_a_whole_run(offset):
    assert sum(bool(judged(seed, offset).episodes) for seed in range(40)) == 0


@pytest.mark.parametrize("offset", [0.0, 0.01, -0.01])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_drift_of_two_tolerances_is_found_from_any_healthy_offset(offset, sign):
    for seed in range(10):
        at = 160 + 260 * seed
        found = judged(seed, offset + np.where(at <= AT, sign * 0.03, 0.0))
        alarm = min(e.alarm for e in found.episodes if e.side == ("below" if sign < 0 else "above"))
        assert at <= alarm <= at + 56  # 2 % of the run


def test_a_settled_offset_beyond_the_tolerance_is_a_drift_in_time():
    for seed in range(10):
        found = judged(seed, 0.02)
        assert found.open is not None
        assert (found.open.side, found.open.from_own_offset) == ("above", False)
        assert found.open.alarm < 0.1 * BLOCKS


def test_a_drift_below_the_tolerance_from_the_own_offset_is_found_and_stays_open():
    for at in (400, 900):
        found = judged(3, np.where(at <= AT, -0.012, 0.012))
        assert found.open is not None
        assert (found.open.side, found.open.from_own_offset) == ("below", True)
        assert found.offset == pytest.approx(0.012, abs=0.003)


def test_one_odd_block_opens_nothing():
    for at in (20, 100, 1_500):
        assert judged(4, np.where(at == AT, 5.0, 0.0)).episodes == []


def test_what_is_known_at_a_block_does_not_depend_on_later_ones():
    rng = np.random.default_rng(5)
    mean = rng.normal(0, 0.01, BLOCKS)
    whole = settled_offsets(mean, place_of(blocks_of(mean), ENDS), np.ones(BLOCKS))
    for cut in (50, 100, 200, 500, 1_000):
        part = settled_offsets(mean[:cut], place_of(blocks_of(mean[:cut]), ENDS), np.ones(cut))
        assert np.array_equal(part.value, whole.value[:cut], equal_nan=True)
        tolerance = Tolerance(TOLERANCE, "test", 0, 0.0255, BLOCK)
        mean_cut = blocks_of(np.where(cut <= AT, 7.0, mean))
        early = judge_blocks(Blocks(*(getattr(mean_cut, f.name)[:cut] for f in fields(Blocks))), tolerance, ENDS)
        later = [e for e in judge_blocks(mean_cut, tolerance, ENDS).episodes if e.alarm < cut]
        assert {(e.side, e.first, e.alarm) for e in early.episodes} == {(e.side, e.first, e.alarm) for e in later}


def test_the_offset_is_known_from_5_percent_on_and_its_error_falls():
    known = settled_offsets(np.zeros(BLOCKS), (AT + 1) / BLOCKS, np.ones(BLOCKS))
    first = int(np.flatnonzero(~np.isnan(known.value))[0])
    assert 0.045 < first / BLOCKS < 0.05
    assert np.all(np.diff(known.error[first:]) <= 0.0)
    assert known.error[-1] == pytest.approx(np.sqrt(12 / (0.22 * BLOCKS)), rel=0.15)
    assert settled_offsets(np.zeros(8), (np.arange(8) + 1) / 8, np.ones(8)).newest is None
