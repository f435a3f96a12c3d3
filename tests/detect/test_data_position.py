"""Rule data_position: data behind or ahead of the weights after a restart, by rows, by losses, by the order."""

from dataclasses import replace

import numpy as np
import pytest

from service.detect.inputs import DeclaredData, RunView, Segment
from service.detect.judgement import Judgement
from service.detect.replay import prefix

from .scenarios import HELD, TRAIN, curve, judged, pair, readings, series, strided_loader

STARTS = [Segment(0, 0.0, 4), Segment(1_000, 1.0, 4)]


def said(view: RunView) -> Judgement:
    return judged(view, "data_position")["data_position"]


def rows(behind: int, steps: int = 1_600, restart: int = 1_000) -> np.ndarray:
    """One new row per host and step, and from the restart on those of `behind` steps before (negative: ahead)."""
    at = np.arange(steps)
    at = np.where(at >= restart, at - behind, at)
    return at[:, None, None] * 8 + np.arange(8).reshape(1, 4, 2)


def with_rows(behind: int, sample: int = 4) -> RunView:
    view = pair(1, steps=1_600, every=100)
    return replace(view, segments=STARTS, rows=readings(rows(behind), sample), data=DeclaredData(100_000))


@pytest.mark.parametrize("behind", [3, 40, 600, 990])
def test_rows_from_before_the_restart_say_how_far_the_data_are_behind(behind):
    view = with_rows(behind)
    found = said(prefix(view, 1_000 + min(behind, 500)))
    assert (found.state, found.value) == ("yes", -behind)
    assert found.since_step == (1_001, 1_001)
    assert (found.causes[0].name, found.causes[0].weight) == ("replay since the restart at step 1,000", "shown")
    if behind < 600:  # by then everything is new again
        later = said(view)
        assert later.state == "no"
        assert f"{behind:,} step" in later.summary


def test_the_public_loader_of_the_incident_is_named_with_its_lag():
    """Its position is the update times the rows of one host: 4 hosts fall back to a quarter of their place."""
    loaded = strided_loader(4, 2, 40_000, [(0, 400), (400, 500)], seed=3)
    view = replace(
        pair(1, steps=500, every=100), segments=[Segment(0, 0.0, 4), Segment(400, 1.0, 4)], rows=readings(loaded, 2)
    )
    found = said(view)
    assert (found.state, found.value) == ("yes", -300)


def test_rows_that_are_new_are_not_behind_and_ahead_cannot_be_told():
    for behind in (0, -50):
        found = said(with_rows(behind))
        assert found.state == "cannot tell"
        assert "not behind the weights" in found.summary


def test_a_first_start_has_no_position_to_lose():
    assert said(pair(1, steps=1_600, every=100)).state == "no"


def test_nothing_that_shows_is_said_to_be_so():
    assert said(replace(pair(1, steps=1_600, every=100), segments=STARTS)).state == "cannot tell"


def ordered(behind: int, seed: int = 5) -> RunView:
    """A run that reads the reference's batches, from step 1,000 on those of `behind` steps before."""
    rng = np.random.default_rng(seed)
    at = np.arange(1, 1_601)
    batch = rng.normal(0.0, 0.0255, 2_400)
    own = np.where(at > 1_000, at - behind, at)
    evals = np.arange(100, 1_601, 100)
    return RunView(
        {TRAIN: series(at, curve(at) + batch[own] + rng.normal(0, 0.001, 1_600)), HELD: series(evals, curve(evals))},
        {TRAIN: series(np.arange(1, 2_201), curve(np.arange(1, 2_201)) + batch[1:2_201]),
         HELD: series(evals, curve(evals))},
        {}, STARTS, "r", "1", HELD,
    )  # fmt: skip


@pytest.mark.parametrize("behind", [120, -150])
def test_the_references_order_tells_behind_from_ahead(behind):
    found = said(ordered(behind))
    assert (found.state, found.value) == ("yes", -behind)
    assert ("behind" if behind > 0 else "ahead of") in found.summary


def test_the_references_batches_step_by_step_are_in_place():
    assert said(ordered(0)).state == "no"


def test_a_declared_further_pass_is_no_position_lost():
    again = np.concatenate((rows(0)[:1_000], rows(0)[:600]))
    view = replace(with_rows(0), rows=readings(again, 4), data=DeclaredData(8_000, 2.0))
    assert said(view).state != "yes"
