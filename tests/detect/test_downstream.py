"""Task accuracies: the mean first, each task with multiplicity, and what cannot be told."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from service.detect.engine import evaluate, verdict
from service.detect.inputs import RunView, Tolerance
from service.detect.judgement import Judgement
from service.detect.rules.downstream import critical_value

from .scenarios import judged, pair, series

TASKS = {f"task_{i}": n for i, n in enumerate((1172, 2376, 1047, 1012, 1037, 1118, 534, 1219))}


def accuracies(
    seed: int, shift: float = 0.0, one: float = 0.0, checkpoints: int = 4, spread: float = 0.0, tasks=TASKS
) -> RunView:
    """`shift` on every task, `one` on the first alone; `spread` is what one checkpoint's accuracy wanders by, in sd."""
    rng = np.random.default_rng(seed)
    view = pair(1, steps=2_000)
    steps = np.arange(1, checkpoints + 1) * 400
    metrics, reference = dict(view.metrics), dict(view.reference)
    for i, (task, n) in enumerate(tasks.items()):
        truth = rng.uniform(0.5, 0.9)
        own = truth + shift + (one if i == 0 else 0.0)
        noise = (rng.binomial(n, truth, checkpoints) / n - truth) if not spread else rng.normal(0, spread, checkpoints)
        metrics[f"downstream/{task}/accuracy"] = series(steps, own + noise)
        reference[f"downstream/{task}/accuracy"] = series(steps, np.full(checkpoints, truth))
    return replace(view, metrics=metrics, reference=reference, tasks=tasks)


def said(view: RunView) -> Judgement:
    return judged(view, "downstream")["downstream"]


@pytest.mark.parametrize("seed", range(40))
def test_binomial_noise_alone_is_never_outside(seed):
    assert said(accuracies(seed, checkpoints=30)).state != "yes"


def test_a_mean_that_is_far_off_at_two_checkpoints_is_outside_and_the_run_has_diverged():
    view = accuracies(1, shift=-0.05)
    found = said(view)
    assert found.state == "yes"
    assert "the mean" in found.summary
    assert found.value == pytest.approx(-0.05, abs=0.01)
    assert verdict(evaluate(view)).state == "diverged"
    assert said(accuracies(1, shift=-0.05, checkpoints=1)).state == "cannot tell"


@pytest.mark.parametrize(("shift", "state"), [(0.0, "cannot tell"), (-0.05, "yes")])
def test_behind_the_reference_s_last_checkpoint_no_all_clear_is_given_and_what_was_outside_stays(shift, state):
    view = accuracies(5, shift=shift, checkpoints=6)
    declared = {"downstream/mean/accuracy": Tolerance(0.02, "declared", 0, 0.002)}
    ended = {m: s.first(4) if m.startswith("downstream/") else s for m, s in view.reference.items()}
    whole = said(replace(view, tolerances=declared))
    found = said(replace(view, reference=ended, tolerances=declared))
    assert (whole.state, found.state) == ("no" if shift == 0.0 else "yes", state)
    assert "ends where the run was at step 1,600" in found.summary
    alone = {m: s.first(1) if m.startswith("downstream/") else s for m, s in view.reference.items()}
    assert said(replace(view, reference=alone, tolerances=declared)).state == "cannot tell"


def test_one_task_that_moves_alone_is_named():
    found = said(accuracies(2, one=0.2))
    assert (found.state, found.summary.endswith("outside the tolerance: task_0.")) == ("yes", True)


def test_half_a_percent_cannot_be_told_from_binomial_errors_but_from_measured_ones():
    assert said(accuracies(3, spread=0.001)).state == "cannot tell"
    measured = Tolerance(0.005, "twelve reruns", 12, 0.0008)
    view = accuracies(3, spread=0.001)
    found = said(replace(view, tolerances={**view.tolerances, "downstream/mean/accuracy": measured}))
    assert (found.state, found.limit, found.limit_source) == ("no", 0.005, "twelve reruns")


def test_without_public_accuracies_it_cannot_tell_and_says_so():
    view = accuracies(4)
    bare = replace(view, reference={m: s for m, s in view.reference.items() if not m.startswith("downstream/")})
    found = said(bare)
    assert (found.state, "reference has no accuracies" in found.summary) == ("cannot tell", True)
    assert "the run has no accuracies" in said(pair(5, steps=1_000)).summary


@pytest.mark.parametrize("side", ["metrics", "reference"])
def test_accuracies_in_percent_are_refused_and_not_compared(side):
    view = accuracies(3)
    task = "downstream/task_2/accuracy"
    given = getattr(view, side)
    percent = replace(given[task], values=100.0 * given[task].values)
    found = said(replace(view, **{side: {**given, task: percent}}))
    assert (found.state, "those of task_2 are not" in found.summary) == ("cannot tell", True)


def test_checkpoints_at_which_a_task_is_missing_are_left_out():
    view = accuracies(6)
    task = "downstream/task_3/accuracy"
    holed = view.metrics[task].values.copy()
    holed[-1] = np.nan
    cut = replace(view, metrics={**view.metrics, task: series(view.metrics[task].steps, holed)})
    assert said(cut).n == 3
    assert len(said(cut).evidence) == 8


@pytest.mark.parametrize("tasks", [1, 8])
def test_all_checkpoints_and_tasks_together_are_wrongly_outside_once_in_a_hundred_runs(tasks):
    chances = [2.0 * (1.0 - NormalDist().cdf(critical_value(number, tasks))) for number in range(20_000)]
    assert (tasks + 1) * sum(chances) == pytest.approx(0.01, rel=0.001)
