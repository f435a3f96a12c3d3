"""Replays told from the losses: real trainings, real residuals put together, noise as at 7B scale, and healthy runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from service.detect import batches
from service.detect.engine import evaluate
from service.detect.inputs import DeclaredData, Floats, RowReadings, RunView, Segment
from service.detect.judgement import Judgement
from service.detect.replay import judge_prefixes, prefix

from .scenarios import TRAIN, ar1, curve, series, student
from .test_data_order import RUNS, SIGNATURE, STEPS, lab, smooth

NOISE = 0.0255


def alone(run: Floats, restarts: tuple[int, ...] = (), **more: object) -> RunView:
    steps = np.arange(1, len(run) + 1)
    view = RunView(
        {TRAIN: series(steps, run)}, {}, {}, [Segment(s, float(i), 64) for i, s in enumerate((0, *restarts))]
    )
    return replace(view, **more)  # type: ignore[arg-type]


def said(view: RunView) -> Judgement:
    return next(j for j in evaluate(view) if j.rule == "replayed_batches")


def like_7b(seed: int, n: int, source: int, after: int, memorized: float = 0.1) -> Floats:
    """n steps, then `after` steps that repeat those from step `source` + 1 on."""
    rng = np.random.default_rng(seed)
    batch = rng.normal(0.0, NOISE, n + after)
    batch[n:] = batch[source : source + after]
    run = curve(np.arange(1, n + after + 1)) + batch + rng.normal(0.0, 0.0006, n + after)
    run[n:] -= memorized
    return run


def real(seed: int, restart: int, lag: int, after: int = 80) -> Floats:
    """A real rerun that after `restart` repeats its batches of `lag` steps before, as another rerun lost on them."""
    rng = np.random.default_rng(seed)
    mine, other = rng.choice(len(RUNS), 2, replace=False)
    run = RUNS[mine][: restart + after].copy()
    easy = RUNS[other] - smooth(RUNS[other])
    run[restart:] = smooth(RUNS[mine])[restart : restart + after] + easy[restart - lag : restart - lag + after] - 0.1
    return run


def first_yes(view: RunView, restart: int) -> tuple[int, Judgement]:
    looks = range(restart - 8, restart + 73, 8)
    for step, judgements in zip(looks, judge_prefixes(view, looks), strict=True):
        judgement = next(j for j in judgements if j.rule == "replayed_batches")
        if judgement.state == "yes":
            return step, judgement
    raise AssertionError("never said")


def test_a_real_replay_is_found_with_its_lag_within_64_steps():
    view = RunView(lab(SIGNATURE / "lab_replays.csv"), {}, {}, [Segment(0, 0.0, 4), Segment(220, 1.0, 4)])
    step, judgement = first_yes(view, 220)
    assert 220 < step <= 284
    assert judgement.since_step == (221, 221)
    assert "batches of step 121 on again, 100 steps later" in judgement.summary
    assert judgement.causes[0].name == "replay since a restart"
    assert "step 220" in judgement.causes[0].because
    assert said(view).state == "yes", "it goes on to the end"


@pytest.mark.parametrize(("seed", "restart", "lag"), [(1, 1200, 600), (2, 700, 130), (3, 1440, 1100)])
def test_real_residuals_replayed(seed, restart, lag):
    run = real(seed, restart, lag)
    step, judgement = first_yes(alone(run, (restart,)), restart)
    assert step <= restart + 64
    assert judgement.since_step == (restart + 1, restart + 1)
    assert f"{lag:,} steps later" in judgement.summary


@pytest.mark.parametrize(("seed", "source"), [(1, 100), (2, 9_000), (3, 18_800)])
def test_7b_noise_replayed(seed, source):
    step, judgement = first_yes(alone(like_7b(seed, 20_000, source, 80), (20_000,)), 20_000)
    assert step <= 20_064
    assert f"step {source + 1:,} on again, {20_000 - source:,} steps later" in judgement.summary
    assert judgement.value > judgement.limit


def test_what_is_known_when_is_what_was_said_then():
    view = alone(real(5, 900, 400), (900,))
    found = batches.find_replays(view)
    known = found.replays[0].known_at
    assert batches.find_replays(prefix(view, known)).open is not None
    assert batches.find_replays(prefix(view, known - 1)).open is None


@pytest.mark.parametrize("kind", ["white", "t3", "AR(1)", "spikes", "rhythm"])
def test_healthy_restarts_say_nothing(kind):
    for seed in range(3):
        rng = np.random.default_rng([seed, 77])
        n = 12_000
        if kind == "t3":
            noise = student(n, NOISE, rng)
        elif kind == "AR(1)":
            noise = ar1(n, NOISE, 0.4, rng)
        else:
            noise = rng.normal(0.0, NOISE, n)
        if kind == "spikes":
            noise[rng.integers(0, n, 60)] += 1.5
        if kind == "rhythm":  # sources that come round: the same lag correlates by nature
            noise += np.resize(rng.normal(0.0, NOISE, 120), n)
        restarts = tuple(sorted(int(r) for r in rng.integers(500, n - 70, 8)))
        found = batches.find_replays(alone(curve(np.arange(1, n + 1)) + noise, restarts))
        assert found.replays == []


def test_healthy_restarts_of_real_reruns_say_nothing():
    for run in RUNS:
        for start in (200, 230, 260):
            found = batches.find_replays(alone(run, tuple(range(start, 1460, 90))))
            assert found.replays == []
            assert found.restarts >= 13


def test_a_strong_rhythm_that_was_there_before_the_restart_is_no_replay_of_it():
    rng = np.random.default_rng(12)
    batch = np.resize(rng.normal(0.0, NOISE, 60), 3000) + rng.normal(0.0, 0.1 * NOISE, 3000)
    found = batches.find_replays(alone(2.0 + batch, (2000,)))
    assert all(r.restart is None for r in found.replays)


def test_a_loader_that_begins_again_without_a_restart():
    rng = np.random.default_rng(13)
    batch = np.resize(rng.normal(0.0, NOISE, 4000), 4600)
    run = curve(np.arange(1, 4601)) + batch + rng.normal(0.0, 0.0006, 4600) - np.where(np.arange(4600) >= 4000, 0.05, 0)
    judgement = said(alone(run))
    assert judgement.state == "yes"
    assert judgement.since_step[0] == pytest.approx(4001, abs=16)
    assert "4,000 steps later" in judgement.summary
    assert judgement.causes[0].name == "the loader began again without a restart"


def test_of_many_passes_each_names_the_one_before():
    rng = np.random.default_rng(23)
    run = np.resize(rng.normal(0.0, NOISE, 600), 2500) + rng.normal(0.0, 0.0006, 2500) + 2.0
    found = batches.find_replays(alone(run))
    assert [(r.lag, r.end) for r in found.replays] == [(600, None)]


def test_declared_passes_in_the_same_order_are_legal():
    batch = np.resize(np.random.default_rng(14).normal(0.0, NOISE, 1500), 2600)
    run = alone(2.0 + batch)
    assert said(run).state == "yes"
    for rows, state in ((1500 * 8, "no"), (1200 * 8, "yes")):  # a pass of 1,500 steps, and one that it cannot be
        declared = replace(run, data=DeclaredData(rows, 2.0), rows=read(2600, 8))
        assert said(declared).state == state
    legal = said(replace(run, data=DeclaredData(12_000, 2.0)))
    assert legal.state == "no"
    assert "only as declared" in legal.summary
    back = alone(like_7b(15, 3000, 1800, 200), (3000,), data=DeclaredData(12_000, 2.0))
    assert said(back).state == "yes", "a restart that goes back is no pass"


def read(steps: int, rows: int) -> RowReadings:
    none = np.zeros(0, np.int64)
    return RowReadings(none, none, np.zeros(0, np.uint64), 1024, np.arange(1, steps + 1), np.full(steps, rows))


def test_a_replay_ends_where_new_batches_come():
    n, lag = 3000, 150
    rng = np.random.default_rng(16)
    after = curve(np.arange(n + lag + 1, n + lag + 401)) + rng.normal(0.0, NOISE, 400)
    view = alone(np.concatenate((like_7b(17, n, n - lag, lag), after)), (n,))
    assert said(prefix(view, n + 100)).state == "yes"
    later = said(view)
    assert later.state == "no"
    assert "repeated those from step 2,851 on" in later.summary
    assert batches.find_replays(view).replays[0].end == pytest.approx(n + lag + 1, abs=20)


def test_gradient_norm_shows_a_replay_that_the_loss_hides():
    rng = np.random.default_rng(18)
    n = 5000
    loss = curve(np.arange(1, n + 81)) + rng.normal(0.0, NOISE, n + 80)
    norm = np.exp(rng.normal(-1.0, 0.2, n + 80))
    norm[n:] = norm[1000:1080] * 1.3
    steps = np.arange(1, n + 81)
    view = RunView({TRAIN: series(steps, loss), "optim/grad_norm": series(steps, norm)}, {}, {},
                   [Segment(0, 0.0, 1), Segment(n, 1.0, 1)])  # fmt: skip
    judgement = said(view)
    assert judgement.state == "yes"
    assert "optim/grad_norm correlates" in judgement.summary
    assert "4,000 steps later" in judgement.summary


def test_a_log_of_every_fourth_step_shows_replays_whose_lag_it_holds():
    run = like_7b(19, 8000, 4000, 400)
    steps = np.arange(4, 8401, 4)
    view = replace(alone(run, (8000,)), metrics={TRAIN: series(steps, run[steps - 1])})
    judgement = said(view)
    assert judgement.state == "yes"
    assert "4,000 steps later" in judgement.summary
    assert next(e.value for e in judgement.evidence if e.name == "spacing of the train loss") == 4


@pytest.mark.parametrize(
    "metrics", [{}, {TRAIN: series([3], [2.0])}, {TRAIN: series(STEPS[:50], RUNS[0][:50])},
                {TRAIN: series(STEPS, np.full(1530, np.nan))}, {TRAIN: series(STEPS, np.full(1530, 2.0))}]
)  # fmt: skip
def test_too_little_cannot_tell(metrics):
    judgement = said(replace(alone(RUNS[0], (20,)), metrics=metrics))
    assert judgement.state == "cannot tell"
    assert "of 64 train losses" in judgement.summary


def test_a_replay_does_not_hide_behind_missing_points():
    run = like_7b(20, 6000, 2500, 80)
    run[np.random.default_rng(21).integers(0, 6080, 600)] = np.nan
    judgement = said(alone(run, (6000,)))
    assert judgement.state == "yes"
    assert "3,500 steps later" in judgement.summary
