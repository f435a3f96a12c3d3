"""Spikes, plateaus, restarts that change the loss or the speed, tokens that are missing, learning rates that differ."""

from dataclasses import replace

import numpy as np
import pytest

from service.detect.inputs import RowReadings, RunView, Segment, Series
from service.detect.judgement import Judgement
from service.detect.replay import prefix
from service.detect.rules.throughput_changed import RATE as THROUGHPUT

from .scenarios import HELD, TRAIN, curve, judged, pair, pool_loader, readings, series, step_change, student, white

LR = "optim/learning_rate"


def said(view: RunView, rule: str) -> Judgement:
    return judged(view, rule)[rule]


def with_values(view: RunView, values, metric=TRAIN) -> RunView:
    at = view.metrics[TRAIN]
    return replace(view, metrics={**view.metrics, metric: Series(at.steps, at.tokens, values)})


def spiked(width: int, height: float, at: int = 1_900) -> RunView:
    view = pair(1, steps=2_000)
    values = view.metrics[TRAIN].values.copy()
    values[at : at + width] += height
    return with_values(view, values)


@pytest.mark.parametrize("height", [0.5, 5.0])
def test_a_spike_of_some_steps_is_told_at_its_first_step_and_forgotten_later(height):
    found = said(spiked(10, height), "loss_spike")
    assert found.state == "yes"
    assert found.since_step == (1_900, 1_901)
    assert "it is over" in found.summary
    assert said(prefix(spiked(10, height), 1_908), "loss_spike").summary.endswith("it lasts.")
    assert said(spiked(10, height, at=1_500), "loss_spike").state == "no"


@pytest.mark.parametrize("seed", range(5))
def test_heavy_tails_and_single_odd_points_are_no_spike(seed):
    rng = np.random.default_rng(seed)
    view = pair(2, steps=20_000)
    heavy = with_values(view, curve(view.metrics[TRAIN].steps) + student(20_000, 0.0255, rng))
    for step in range(500, 20_001, 500):
        assert said(prefix(heavy, step), "loss_spike").state == "no"
    assert said(spiked(1, 3.0), "loss_spike").state == "no"
    assert next(e.value for e in said(spiked(1, 3.0), "loss_spike").evidence) == 1


def test_a_short_log_cannot_tell_of_spikes():
    assert said(pair(3, steps=60), "loss_spike").state == "cannot tell"


def falling(run_falls: float, seed: int = 4) -> RunView:
    """A reference that falls by 0.2 nats over the second half, and a run that makes that share of it."""
    rng = np.random.default_rng(seed)
    at = np.arange(1, 40_001)
    fall = 0.2 * np.clip(at - 20_000, 0, None) / 20_000
    view = pair(seed)
    reference = series(at, 2.5 - fall + white(40_000, 0.0255, rng))
    run = series(at, 2.5 - run_falls * fall + white(40_000, 0.0255, rng))
    return replace(view, metrics={TRAIN: run}, reference={TRAIN: reference})


def test_a_run_that_stops_falling_where_the_reference_goes_on_is_on_a_plateau():
    found = said(falling(0.0), "plateau")
    assert found.state == "yes"
    assert found.value == pytest.approx(0.0, abs=0.03)
    assert 19_000 <= found.since_step[0] <= 21_000
    assert said(falling(1.0), "plateau").state == "no"
    assert said(falling(0.8), "plateau").state == "no"


def test_where_the_reference_hardly_falls_a_plateau_cannot_be_told():
    at = np.arange(1, 40_001)
    flat = series(at, 2.0 + white(40_000, 0.0255, np.random.default_rng(1)))
    view = replace(pair(5), metrics={TRAIN: flat}, reference={TRAIN: flat})
    assert said(view, "plateau").state == "cannot tell"
    assert said(replace(view, reference={}), "plateau").state == "cannot tell"


RESTARTED = [Segment(0, 0.0, 1), Segment(20_000, 1.0, 1)]


def unique_rows(last: int) -> RowReadings:
    return readings(pool_loader(40_000, 1, 1, 2_000, 1, double=False), 1, last - 2_000)


def test_a_step_at_a_restart_with_heldout_unmoved_is_a_changed_definition():
    up = replace(pair(6, train=step_change(20_000, 0.05)), segments=RESTARTED)
    found = said(up, "definition_changed")
    assert found.state == "yes"
    assert found.value == pytest.approx(0.05, abs=0.006)
    assert found.since_step == (20_000, 20_500)
    down = replace(pair(7, train=step_change(20_000, -0.05)), segments=RESTARTED)
    assert said(down, "definition_changed").state == "cannot tell"  # a replay looks the same
    assert said(replace(down, rows=unique_rows(40_000)), "definition_changed").state == "yes"


def test_a_step_that_is_gradual_elsewhere_shared_or_explained_is_no_changed_definition():
    elsewhere = replace(pair(8, train=step_change(30_000, 0.05)), segments=RESTARTED)
    shared = replace(pair(9, train=step_change(20_000, 0.05), heldout=step_change(20_000, 0.05)), segments=RESTARTED)
    repeated = replace(
        pair(10, train=step_change(20_000, -0.05)), segments=RESTARTED,
        rows=readings(pool_loader(400, 1, 1, 2_000, 1, double=False), 1, 20_000),
    )  # fmt: skip
    for view in (elsewhere, shared, repeated, replace(pair(11), segments=RESTARTED), pair(12)):
        assert said(view, "definition_changed").state == "no"
    few = replace(pair(13, train=step_change(20_000, 0.05), every=8_000), segments=RESTARTED)
    assert said(prefix(few, 30_000), "definition_changed").state == "cannot tell"


@pytest.mark.parametrize(("share", "state"), [(0.3, "yes"), (0.7, "no")])
def test_a_step_of_which_heldout_makes_less_than_half_is_a_changed_definition(share, state):
    view = pair(15, train=step_change(20_000, 0.06), heldout=step_change(20_000, 0.06 * share))
    assert said(replace(view, segments=RESTARTED), "definition_changed").state == state


def speeds(before: float, after: float, seed: int = 1, noise: float = 0.02) -> RunView:
    rng = np.random.default_rng(seed)
    view = replace(pair(14, steps=4_000), segments=[Segment(0, 0.0, 1), Segment(2_000, 1.0, 1)])
    rate = np.where(view.metrics[TRAIN].steps > 2_000, after, before) * (1 + noise * rng.normal(size=4_000))
    rate[2_000:2_010] /= 10  # compilation
    rate[::100] /= 2  # checkpoints
    return with_values(view, rate, THROUGHPUT)


@pytest.mark.parametrize(
    ("after", "state", "word"), [(9_700, "yes", "fell"), (10_300, "yes", "rose"), (10_000, "no", "")]
)
def test_a_change_of_speed_across_a_restart(after, state, word):
    found = said(speeds(10_000, after), "throughput_changed")
    assert (found.state, word in found.summary) == (state, True)
    assert found.value == pytest.approx(after / 10_000 - 1, abs=0.003)
    assert found.since_step == ((2_000, 2_001) if state == "yes" else None)


def test_a_speed_near_the_limit_or_too_noisy_or_without_restart_cannot_be_told():
    assert said(speeds(10_000, 9_900), "throughput_changed").state == "cannot tell"
    assert said(speeds(10_000, 9_900, noise=0.5), "throughput_changed").state == "cannot tell"
    alone = replace(speeds(10_000, 9_000), segments=[Segment(0, 0.0, 1)])
    assert said(alone, "throughput_changed").state == "cannot tell"
    assert said(prefix(speeds(10_000, 9_000), 2_050), "throughput_changed").state == "cannot tell"
    assert said(pair(15, steps=2_000), "throughput_changed").state == "cannot tell"


def test_a_token_count_that_runs_ahead_is_named_and_a_batch_ramp_is_not():
    view = pair(16, steps=4_000)
    at = view.metrics[TRAIN]
    tokens = at.tokens.copy()
    tokens[2_500:] += 10 * 4_194_304.0
    ahead = replace(view, metrics={TRAIN: Series(at.steps, tokens, at.values)})
    found = said(ahead, "tokens_missing")
    assert (found.state, found.since_step) == ("yes", (2_500, 2_501))
    assert "41,943,040 tokens" in found.summary
    ramp = np.cumsum(np.where(at.steps > 2_000, 8e6, 4e6))
    assert said(replace(view, metrics={TRAIN: Series(at.steps, ramp, at.values)}), "tokens_missing").state == "no"


def test_holes_in_the_log_and_skipped_steps_count_from_one_in_a_hundred():
    view = pair(17, steps=4_000)
    at = view.metrics[TRAIN]
    for share, state in ((0.002, "no"), (0.05, "yes")):
        keep = np.ones(4_000, bool)
        keep[1_000 : 1_000 + int(share * 4_000)] = False
        holed = replace(view, metrics={TRAIN: Series(at.steps[keep], at.tokens[keep], at.values[keep])})
        assert said(holed, "tokens_missing").state == state
    for every, state in ((1_000, "no"), (20, "yes")):
        skipped = (at.steps % every == 0).astype(float)
        assert said(with_values(view, skipped, "optim/skipped"), "tokens_missing").state == state


def test_an_irregular_log_cannot_tell_of_holes():
    steps = np.cumsum(np.random.default_rng(1).integers(1, 40, 500))
    view = replace(pair(18, steps=2_000), metrics={TRAIN: series(steps, curve(steps))})
    assert said(view, "tokens_missing").state == "cannot tell"


def rates(run, reference, metric: bool = True) -> RunView:
    at = np.arange(1, 4_001)
    view = with_values(pair(19, steps=4_000), run(at), LR)
    own = series(at, reference(at))
    if metric:
        return replace(view, reference={**view.reference, LR: own})
    return replace(view, schedule=own)


def cosine(steps, total=4_000, warmup=200):
    return (
        np.where(steps < warmup, steps / warmup, 0.55 + 0.45 * np.cos(np.pi * (steps - warmup) / (total - warmup)))
        * 3e-4
    )


@pytest.mark.parametrize("metric", [True, False])
def test_a_schedule_that_differs_is_found_with_its_onset_and_ratio(metric):
    halved = rates(lambda s: np.where(s > 3_000, 0.9, 1.0) * cosine(s), cosine, metric)
    found = said(halved, "schedule_mismatch")
    assert found.state == "yes"
    assert found.value == pytest.approx(0.9, abs=0.005)
    assert 2_990 <= found.since_step[0] <= found.since_step[1] <= 3_005
    assert said(rates(cosine, cosine, metric), "schedule_mismatch").state == "no"
    assert said(rates(lambda s: cosine(s, total=8_000), cosine, metric), "schedule_mismatch").state == "yes"


def test_counting_steps_from_zero_is_no_other_schedule():
    assert said(rates(lambda s: cosine(s - 1), cosine), "schedule_mismatch").state == "no"


def test_without_a_rate_on_either_side_it_cannot_tell():
    both = rates(cosine, cosine)
    assert said(replace(both, reference={}, schedule=None), "schedule_mismatch").state == "cannot tell"
    bare = replace(both, metrics={TRAIN: both.metrics[TRAIN], HELD: both.metrics[HELD]})
    assert "the run sends no learning rate" in said(bare, "schedule_mismatch").summary


def risen(n: int, by: float, noise: float, every: int = 1, back: bool = False) -> RunView:
    """A loss that falls, and is `by` nats higher from three quarters on (back again for the last tenth)."""
    steps = np.arange(1, n + 1) * every
    values = curve(steps) + np.random.default_rng(5).normal(0.0, noise, n)
    values[3 * n // 4 : 9 * n // 10 if back else n] += by
    return RunView({TRAIN: series(steps, values)}, {}, {}, [Segment(0, 0.0, 1)])


@pytest.mark.parametrize(("n", "every"), [(20, 200), (39, 200), (5_000, 1)])
def test_a_loss_that_rose_for_good_is_told_for_as_long_as_it_stays(n, every):
    found = said(risen(n, 2.0, 0.03, every), "loss_spike")
    assert found.state == "yes"
    assert found.value == pytest.approx(2.0, abs=0.25)
    assert "stays there" in found.summary
    low, high = found.since_step
    assert low <= (3 * n // 4 + 1) * every <= high + 4 * every
    assert said(risen(n, 0.0, 0.03, every), "loss_spike").state != "yes"
    assert said(risen(n, 2.0, 0.03, every, back=True), "loss_spike").state != "yes" or n == 5_000


@pytest.mark.parametrize("by", [0.15, 0.24])
def test_a_rise_that_stages_and_schedules_make_is_none(by):
    assert "stays there" not in said(risen(5_000, by, 0.02), "loss_spike").summary


def test_a_rise_within_a_noisy_loss_is_none():
    assert "stays there" not in said(risen(5_000, 0.5, 0.15), "loss_spike").summary
