"""Text that is read again in other rows: windows repeat, rows do not. Boilerplate, planned passes, and replays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from service.detect import repeated_text
from service.detect.cache import LevelCache
from service.detect.engine import evaluate
from service.detect.inputs import DeclaredData, RowReadings, RuleSetting, RunView, Segment
from service.detect.judgement import Judgement
from service.detect.replay import prefix

PER_STEP, ROWS = 4, 512  # sampled windows, and rows, of a step
ROWS_SAMPLE, WINDOWS_SAMPLE = 1024, 1024 * 8192


def read(numbers: np.ndarray, sample: int) -> RowReadings:
    """`numbers` (steps, sampled): hashes of each step."""
    steps = np.arange(1, len(numbers) + 1)
    hashes = numbers.reshape(-1).astype(np.uint64)
    at = np.repeat(steps, numbers.shape[1])
    return RowReadings(at, np.zeros(len(at), np.int64), hashes, sample, steps, np.full(len(steps), ROWS))


def view_of(windows: np.ndarray, rows: np.ndarray | None = None, restart: int = 0) -> RunView:
    rng = np.random.default_rng(7)
    if rows is None:
        rows = rng.integers(0, 2**50, (len(windows), 1)) * ROWS_SAMPLE
    starts = [Segment(0, 0.0, 1)] + ([Segment(restart, 1.0, 1)] if restart else [])
    return RunView({}, {}, {}, starts, rows=read(rows, ROWS_SAMPLE), windows=read(windows, WINDOWS_SAMPLE))


def fresh(steps: int, seed: int, boilerplate: float = 0.0, pieces: int = 1_000) -> np.ndarray:
    """Windows (steps, 4) that are new, but for a share that is drawn from so many pieces of boilerplate."""
    rng = np.random.default_rng(seed)
    known = rng.integers(0, 2**41, pieces)
    new = rng.integers(0, 2**41, (steps, PER_STEP))
    return np.where(rng.random(new.shape) < boilerplate, known[rng.integers(0, pieces, new.shape)], new)


def said(view: RunView) -> Judgement:
    return next(j for j in evaluate(view) if j.rule == "repeated_rows")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("boilerplate", [0.0, 0.03, 0.05])
def test_boilerplate_is_natural(seed: int, boilerplate: float) -> None:
    judged = said(view_of(fresh(8_000, seed, boilerplate)))
    assert judged.state == "no"
    assert "windows" in judged.summary


@pytest.mark.parametrize("seed", range(5))
def test_a_corpus_with_more_boilerplate_is_judged_by_its_own(seed: int) -> None:
    found = repeated_text.find(view_of(fresh(12_000, seed, 0.25, pieces=5_000)))
    assert found is not None
    assert (found.natural_source, found.onset) == ("this run's first 20,000 sampled windows", None)
    assert 0.05 < found.natural < 0.12


def test_an_early_share_that_is_no_background_is_not_taken_for_one() -> None:
    found = repeated_text.find(view_of(fresh(12_000, 1, 0.6, pieces=4_200)))
    assert found is not None
    assert (found.natural, found.natural_source) == (0.05, "assumed: boilerplate and quotations in a corpus")


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_in_other_rows_is_named_with_its_restart(seed: int) -> None:
    windows = fresh(3_000, seed, 0.03)
    windows[2_000:] = windows[1_000:2_000]  # the text again; the rows are all new
    view = view_of(windows, restart=2_000)
    assert said(prefix(view, 2_000)).state == "no"
    assert said(prefix(view, 2_012)).state == "yes"
    judged = said(view)
    assert judged.state == "yes"
    assert judged.since_step is not None
    assert abs(judged.since_step[1] - 2_001) <= 8
    assert judged.value == pytest.approx(1.0)
    assert [cause.name for cause in judged.causes] == [
        "documents are read again and packed into other rows", "the packer's position was not restored"
    ]  # fmt: skip
    assert "1,000 steps behind" in judged.causes[0].because
    assert {e.name: e.value for e in judged.evidence}["share of repeated text"] == pytest.approx(1.0)


def test_rows_that_repeat_are_told_as_rows() -> None:
    windows, rows = fresh(3_000, 1), np.random.default_rng(2).integers(0, 2**50, (3_000, 1)) * ROWS_SAMPLE
    windows[2_000:], rows[2_000:] = windows[1_000:2_000], rows[1_000:2_000]
    judged = said(view_of(windows, rows, restart=2_000))
    assert judged.state == "yes"
    assert "packed anew" not in judged.summary
    assert judged.causes[0].name == "replay since the restart at step 2,000"


def test_a_planned_pass_is_legal() -> None:
    windows = fresh(3_000, 3)
    windows[1_500:] = windows[:1_500]
    view = view_of(windows)
    assert said(view).state == "yes"
    assert said(replace(view, data=DeclaredData(1_500 * ROWS, 2.0))).state == "no"


def test_a_growing_run_says_the_same() -> None:
    windows = fresh(1_200, 4, 0.03)
    windows[800:] = windows[300:700]
    view, cache = view_of(windows), LevelCache()
    for step in (1, 100, 790, 803, 830, 1_200):
        here = prefix(view, step)
        assert repeated_text.find(here, cache) == repeated_text.find(here)
    assert repeated_text.find(replace(view, windows=None)) is None


def test_what_is_natural_can_be_set_and_a_replay_still_shows() -> None:
    """Code and tables repeat 20 % to 80 % of their windows without being read twice."""
    full = fresh(6_000, 1, 0.7, pieces=8_000)
    assert said(view_of(full)).state == "yes"
    mine = {"repeated_text": RuleSetting(tolerance=0.7, tolerance_source="set by Ann for this run: tables")}
    quiet = said(replace(view_of(full), settings=mine))
    assert quiet.state == "no"
    assert "0.7 of them natural (set by Ann for this run: tables; shipped: 0.05, assumed" in quiet.summary
    full[4_000:] = full[2_000:4_000]
    again = said(replace(view_of(full), settings=mine))
    assert (again.state, again.limit) == ("yes", 0.7)
