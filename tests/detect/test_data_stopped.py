"""Rule data_stopped: silence by the service's clock, beside the run's own pattern of pauses."""

from dataclasses import replace

import numpy as np
import pytest

from service.detect.engine import evaluate, verdict
from service.detect.facts import Arrivals
from service.detect.judgement import Judgement
from service.detect.replay import prefix
from service.detect.rules.data_stopped import look_again

from .scenarios import judged, lab

NOW = 1_800_000_000.0


def said(silent: float, pauses: list[float], *, heard: float = 1e6, finished: bool = False) -> Judgement:
    times = NOW - silent - np.cumsum([0.0, *pauses])[::-1]
    arrivals = Arrivals(NOW, NOW - silent, NOW - heard, np.sort(times), finished)
    return judged(replace(lab(1, double=False), arrivals=arrivals), "data_stopped")["data_stopped"]


STEPS = [9.0] * 200  # a 7B step
WITH_EVALUATIONS = [*([9.0] * 99 + [600.0]) * 3]  # ten minutes of evaluation every hundred steps


@pytest.mark.parametrize(
    ("silent", "pauses", "state"),
    [
        (3.0, STEPS, "no"),
        (100.0, STEPS, "no"),
        (179.0, STEPS, "no"),
        (181.0, STEPS, "yes"),
        (1_700.0, WITH_EVALUATIONS, "no"),
        (1_900.0, WITH_EVALUATIONS, "yes"),
        (1_900.0, [9.0] * 19, "cannot tell"),
        (90_000.0, [], "cannot tell"),
        (119.0, [0.1] * 200, "no"),
        (121.0, [0.1] * 200, "yes"),
    ],
)
def test_a_silence_is_judged_beside_the_runs_own_pauses(silent, pauses, state):
    assert said(silent, pauses).state == state


def test_a_yes_says_how_long_and_since_when():
    found = said(600.0, STEPS)
    assert found.since_step == (400, 401)
    assert (found.value, found.limit) == (600.0, 180.0)
    assert "10 min since step 400" in found.summary
    assert {e.name for e in found.evidence} == {"silence", "usual pause", "long pause"}


def test_a_run_that_has_ended_has_not_stopped():
    assert said(1e6, STEPS, finished=True).state == "no"


def test_a_service_that_has_only_begun_to_listen_cannot_tell():
    assert said(600.0, STEPS, heard=60.0).state == "cannot tell"
    assert said(600.0, STEPS, heard=200.0).state == "yes"


def test_one_long_pause_of_a_broken_night_does_not_make_every_later_one_usual():
    assert said(3_000.0, [*STEPS, 40_000.0]).state == "yes"


def test_without_a_clock_nothing_is_said_and_a_prefix_has_none():
    view = lab(1, double=False)
    assert judged(view, "data_stopped")["data_stopped"].state == "cannot tell"
    live = replace(view, arrivals=Arrivals(NOW, NOW - 9e9, 0.0, np.arange(100.0)))
    assert prefix(live, 400).arrivals is None
    assert verdict(evaluate(live)).state == verdict(evaluate(view)).state  # it stands beside the verdict


def test_when_a_silent_run_is_looked_at_again():
    assert look_again(said(3.0, STEPS)) == pytest.approx(7.0)
    assert look_again(said(100.0, STEPS)) == pytest.approx(80.0)
    assert look_again(said(600.0, STEPS)) is None
    assert look_again(said(600.0, STEPS, finished=True)) is None
    assert look_again(said(600.0, STEPS, heard=60.0)) == pytest.approx(180.0)


@pytest.mark.parametrize("times", [[np.nan] * 50, [np.inf] * 50, [1.0] * 50, [5.0, -np.inf, 3.0] * 20])
def test_odd_clocks_raise_nothing(times):
    arrivals = Arrivals(NOW, NOW - 500.0, 0.0, np.array(times))
    judged(replace(lab(1, double=False), arrivals=arrivals), "data_stopped")
