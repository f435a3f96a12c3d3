"""Train-only drift and gains where the batches are shared: what only pairs see."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from service.detect.findings import Findings
from service.detect.inputs import RunView, Segment, Tolerance
from service.detect.judgement import Judgement
from service.detect.replay import prefix

from .golden import load
from .scenarios import HELD, TRAIN, Floats, Ints, judged, pair, series, step_change, white
from .test_train_only_drift import RUNS

RULES = ("train_drift", "train_only_drift", "improvement")
Shape = Callable[[Ints], Floats]


def shared(seed: int, train: Shape | None = None, heldout: Shape | None = None, steps: int = 12_000) -> RunView:
    """A run on the reference's batches: one step's noise is shared but for 0.0006 nats."""
    view, rng = pair(seed, steps=steps, every=250, heldout=heldout), np.random.default_rng([seed, 1])
    at = np.arange(1, steps + 1)
    run = view.reference[TRAIN].values + white(steps, 0.0006, rng) + (train(at) if train else 0.0)
    return replace(view, metrics={**view.metrics, TRAIN: series(at, run)})


def answers(view: RunView) -> dict[str, Judgement]:
    return judged(view, *RULES)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_fall_within_the_tolerance_is_named_train_only_by_pairs(seed: int):
    view = shared(seed, step_change(7_000, -0.02))
    view = replace(view, tolerances={TRAIN: Tolerance(0.04, "assumed", 0, 0.0255, 500)})
    said = answers(view)
    assert Findings(view).train.open is None
    assert [said[rule].state for rule in RULES] == ["yes", "yes", "no"]
    assert said["train_only_drift"].value == pytest.approx(-0.02, abs=0.001)
    assert 6_800 <= said["train_only_drift"].since_step[0] <= 7_000 <= said["train_only_drift"].since_step[1] <= 7_200
    assert "the model memorizes" in said["train_only_drift"].summary


@pytest.mark.parametrize("share", [0.6, 1.0])
def test_a_gain_within_the_tolerance_is_an_improvement_by_pairs(share: float):
    said = answers(shared(4, step_change(7_000, -0.02), step_change(7_000, -0.02 * share)))
    assert (said["train_drift"].state, said["train_only_drift"].state) == ("yes", "no")
    assert said["improvement"].state in ("yes", "cannot tell")
    assert answers(shared(5, step_change(7_000, -0.02), step_change(7_000, -0.02)))["improvement"].state == "yes"


def test_a_rise_and_a_fall_too_small_for_heldout_are_not_named():
    assert answers(shared(6, step_change(7_000, 0.02)))["train_only_drift"].state == "no"
    small = answers(shared(7, step_change(7_000, -0.004)))
    assert (small["train_drift"].state, small["train_only_drift"].state) == ("yes", "cannot tell")


def test_few_evaluations_since_the_fall_cannot_tell():
    view = shared(8, step_change(7_000, -0.02))
    assert answers(prefix(view, 7_600))["train_only_drift"].state == "cannot tell"


def test_an_offset_that_opened_the_drift_does_not_hide_the_fall():
    """The run begins 0.03 nats below on train, 0.02 on held-out; at 7,000 train falls by 0.044 more, held-out not."""
    view = shared(
        9, lambda at: np.where(at > 7_000, -0.074, -0.03), lambda at: np.full(len(at), -0.02)
    )  # fmt: skip
    early = answers(prefix(view, 6_900))
    assert (early["train_drift"].state, early["train_only_drift"].state) == ("yes", "cannot tell")
    said = answers(view)["train_only_drift"]
    assert said.state == "yes"
    assert said.value == pytest.approx(-0.044, abs=0.002)
    assert 6_800 <= said.since_step[0] <= 7_000 <= said.since_step[1] <= 7_200


def real(run: str, reference: str, siblings: int) -> RunView:
    name = "mn_valueembed_124m/"
    beside = [load(f"{name}run_{r}", 524_288.0) for r in RUNS if r not in (run, reference)][:siblings]
    own = load(f"{name}{run if run.startswith('derived') else 'run_' + run}", 524_288.0)
    return RunView(
        own, load(f"{name}run_{reference}", 524_288.0), {}, [Segment(0, 0.0, 8)], reference, "1",
        "heldout/fineweb/ce_loss", beside, same_order_declared=True,
    )  # fmt: skip


@pytest.mark.parametrize("siblings", [3, 4])
@pytest.mark.parametrize("run", ["derived_0", "derived_1"])
def test_a_lowered_train_loss_on_real_noise_is_named_beside_every_rerun(run: str, siblings: int):
    for reference in RUNS:
        said = answers(real(run, reference, siblings))
        assert [said[rule].state for rule in RULES] == ["yes", "yes", "no"], reference


@pytest.mark.parametrize("siblings", [0, 3, 4])
def test_healthy_reruns_on_the_same_batches_raise_nothing_at_any_step(siblings: int):
    for i, run in enumerate(RUNS):
        view = real(run, RUNS[i - 1], siblings)
        for step in (500, 1000, 1530):
            assert "yes" not in {j.state for j in answers(prefix(view, step)).values()}, (run, step)


def test_heldout_is_what_the_evidence_says():
    view = shared(10, step_change(7_000, -0.02))
    found = Findings(view).heldout
    assert (found.answer, found.metric) == ("flat", HELD)
    assert found.why.startswith("by pairs of equal batches")
