"""Rules about the held-out loss: regression, improvement, an evaluation that changed."""

from dataclasses import replace

import numpy as np
import pytest

from service.detect.engine import evaluate, verdict
from service.detect.inputs import RunView, Segment, Series, Tolerance
from service.detect.judgement import Judgement
from service.detect.replay import prefix

from .scenarios import HELD, TRAIN, judged, lab, pair, ramp, step_change

RATE = "optim/learning_rate"
ASKED = ("heldout_regression", "improvement", "evaluation_changed", "train_only_drift")


def said(view: RunView) -> dict[str, Judgement]:
    return judged(view, *ASKED)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_healthy_run_is_no_worse_no_better_and_evaluated_alike(seed):
    found = said(pair(seed))
    assert {r: found[r].state for r in ("heldout_regression", "improvement", "evaluation_changed")} == {
        "heldout_regression": "no", "improvement": "no", "evaluation_changed": "no",
    }  # fmt: skip


def test_heldout_above_with_train_above_is_a_regression_and_the_run_has_diverged():
    view = pair(4, train=step_change(20_000, 0.05), heldout=step_change(20_000, 0.05))
    found = said(view)["heldout_regression"]
    assert found.state == "yes"
    assert found.value == pytest.approx(0.05, abs=0.006)
    assert found.interval[0] < 0.05 < found.interval[1]
    assert found.since_step[0] <= 20_000 <= found.since_step[1] <= 21_500
    assert found.limit == pytest.approx(0.005)
    assert "goes worse" in found.causes[0].name
    assert verdict(evaluate(view)).state == "diverged"


def test_memorization_that_makes_heldout_worse_is_a_regression_with_that_cause():
    found = said(pair(5, train=ramp(15_000, 30_000, -0.2), heldout=ramp(15_000, 30_000, 0.08)))
    assert (found["train_only_drift"].state, found["heldout_regression"].state) == ("yes", "yes")
    assert "memorization" in found["heldout_regression"].causes[0].name
    assert found["evaluation_changed"].state == "no"


def test_the_lab_s_double_sharded_run_ends_in_a_regression_and_its_siblings_do_not():
    assert said(lab(1, double=True))["heldout_regression"].state == "yes"
    assert said(lab(1, double=False))["heldout_regression"].state == "no"


@pytest.mark.parametrize("at", [[20_000], [20_000, 30_000], [40_000], [39_500, 40_000]])
def test_one_off_jumps_that_revert_are_nothing(at):
    view = pair(6, heldout=lambda s: np.where(np.isin(s, at), 0.011, 0.0))
    found = said(view)
    assert found["heldout_regression"].state == "no"
    assert found["evaluation_changed"].state != "yes"


def test_a_small_lasting_rise_of_heldout_is_found_in_time():
    view = pair(7, heldout=step_change(10_000, 0.011), every=200)
    assert said(view)["heldout_regression"].state == "yes"
    assert said(pair(7, heldout=step_change(10_000, 0.004), every=200))["heldout_regression"].state == "no"


def test_without_a_shared_heldout_loss_or_with_few_evaluations_it_cannot_tell():
    view = pair(8)
    bare = said(replace(view, metrics={TRAIN: view.metrics[TRAIN]}))
    assert bare["heldout_regression"].summary == "Cannot tell: the run has no held-out loss."
    other = said(replace(view, reference={TRAIN: view.reference[TRAIN]}))["heldout_regression"]
    assert (other.state, "reference has no such held-out" in other.summary) == ("cannot tell", True)
    early = said(prefix(view, 1_000))
    assert early["heldout_regression"].state == early["evaluation_changed"].state == "cannot tell"


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_both_losses_below_is_an_improvement(share):
    found = said(pair(9, train=step_change(20_000, -0.05), heldout=step_change(20_000, -0.05 * share)))
    assert found["improvement"].state == "yes"
    assert found["train_only_drift"].state == "no"
    assert found["improvement"].since_step[0] <= 20_000 <= found["improvement"].since_step[1] + 500
    assert float(next(e.value for e in found["improvement"].evidence if e.name == "held-out share")) == pytest.approx(
        share, abs=0.15
    )


def test_memorization_and_half_a_gain_are_no_improvement():
    assert said(pair(10, train=step_change(20_000, -0.05)))["improvement"].state == "no"
    half = said(pair(11, train=step_change(20_000, -0.08), heldout=step_change(20_000, -0.04)))["improvement"]
    assert half.state == "cannot tell"
    assert said(pair(12, train=step_change(20_000, 0.05)))["improvement"].state == "no"


def test_an_improvement_by_another_learning_rate_names_it():
    view = pair(13, train=step_change(20_000, -0.05), heldout=step_change(20_000, -0.05))
    at = view.metrics[TRAIN]
    flat = Series(at.steps, at.tokens, np.full(len(at), 3e-4))
    halved = Series(at.steps, at.tokens, np.where(at.steps > 20_000, 1.5e-4, 3e-4))
    view = replace(
        view,
        metrics={**view.metrics, "optim/learning_rate": halved},
        reference={**view.reference, "optim/learning_rate": flat},
    )
    assert said(view)["improvement"].causes[0].name == "another learning rate"


@pytest.mark.parametrize("size", [0.05, -0.05])
def test_heldout_that_jumps_alone_is_a_changed_evaluation_and_no_regression(size):
    view = replace(pair(14, heldout=step_change(20_000, size)), segments=[Segment(0, 0.0, 1), Segment(20_000, 1.0, 1)])
    found = said(view)
    changed = found["evaluation_changed"]
    assert changed.state == "yes"
    assert changed.value == pytest.approx(size, abs=0.006)
    assert changed.since_step == (20_000, 20_500)
    assert changed.causes[0].name == "the evaluation changed with that restart"
    assert found["heldout_regression"].state != "yes"


def test_an_evaluation_that_was_put_right_again_is_no_change_any_more():
    view = pair(15, heldout=lambda s: np.where((s > 15_000) & (s <= 25_000), 0.05, 0.0))
    assert said(prefix(view, 24_000))["evaluation_changed"].state == "yes"
    assert said(view)["evaluation_changed"].state == "no"


def test_a_jump_that_train_shares_is_no_changed_evaluation():
    found = said(pair(16, train=step_change(20_000, 0.05), heldout=step_change(20_000, 0.05)))
    assert found["evaluation_changed"].state == "no"


@pytest.mark.parametrize(("share", "state"), [(0.3, "yes"), (0.8, "no")])
def test_a_jump_of_which_train_makes_less_than_half_is_a_changed_evaluation(share, state):
    found = said(pair(18, train=step_change(20_000, 0.06 * share), heldout=step_change(20_000, 0.06)))
    assert found["evaluation_changed"].state == state


def test_a_declared_heldout_tolerance_is_used_with_its_source():
    view = pair(17, heldout=step_change(20_000, 0.03))
    wide = replace(view, tolerances={**view.tolerances, HELD: Tolerance(0.1, "three reruns", 3, 0.01)})
    found = said(wide)["heldout_regression"]
    assert (found.state, found.limit, found.limit_source) == ("no", 0.1, "three reruns")


def test_a_gain_shows_in_heldout_before_the_train_gap_leaves_what_healthy_runs_do():
    # The train tolerance is four times as wide: a gap of -0.055 is no drift, and the held-out one a gain all the same.
    wide = {TRAIN: Tolerance(0.06, "assumed", 0, 0.0255), HELD: Tolerance(0.005, "assumed", 0, 0.002)}
    view = replace(pair(21, train=step_change(0, -0.055), heldout=step_change(0, -0.04)), tolerances=wide)
    found = said(view)
    assert judged(view, "train_drift")["train_drift"].state == "no"
    assert found["improvement"].state == "yes"
    assert (found["improvement"].value, found["improvement"].limit) == (pytest.approx(-0.04, abs=0.005), 0.005)
    alone = said(replace(pair(21, heldout=step_change(0, -0.04)), tolerances=wide))
    assert alone["improvement"].state == "no"
    # Train below by a third of the held-out gain, but by less than healthy runs of that tolerance wander beside it.
    unsure = pair(21, train=step_change(0, -0.03), heldout=step_change(0, -0.04))
    assert said(replace(unsure, tolerances=wide))["improvement"].state == "no"


def test_a_gain_from_the_first_steps_on_is_no_memorization():
    """The early gap is larger than the lasting one, as where a run learns faster at first: what lies before is none."""
    early = lambda s: -0.05 - 0.1 * np.exp(-s / 800.0)  # noqa: E731
    found = said(pair(22, train=early, heldout=early, every=250))
    assert found["train_only_drift"].state == "no"
    assert found["improvement"].state == "yes"


def test_heldout_that_rises_at_once_and_alone_is_not_called_a_regression_before_three_evaluations():
    view = pair(23, heldout=step_change(20_000, 0.05), every=500)
    states = {s: said(prefix(view, s))["heldout_regression"].state for s in range(20_000, 23_001, 500)}
    assert set(states.values()) <= {"no", "cannot tell"}
    together = pair(23, train=step_change(20_000, 0.05), heldout=step_change(20_000, 0.05), every=500)
    assert said(prefix(together, 22_000))["heldout_regression"].state == "yes"


def test_a_higher_heldout_loss_that_another_learning_rate_makes_names_it():
    """The rate stays high, by the annealing law both losses lie above, and the train gap is within its tolerance."""
    view = pair(24, heldout=step_change(20_000, 0.03))
    at = view.metrics[TRAIN]
    view = replace(view, metrics={**view.metrics, RATE: Series(at.steps, at.tokens, np.full(len(at), 3e-4))})
    falls = Series(at.steps, at.tokens, 3e-4 * (1.0 - 0.9 * at.steps / at.steps[-1]))
    found = said(replace(view, reference={**view.reference, RATE: falls}))["heldout_regression"]
    assert found.state in ("yes", "cannot tell")
    same = said(replace(view, reference={**view.reference, RATE: view.metrics[RATE]}))["heldout_regression"]
    assert "another learning rate" not in [c.name for c in same.causes]
