"""Train sinks and held-out does not follow."""

from dataclasses import replace

import numpy as np
import pytest

from service.detect.engine import evaluate
from service.detect.findings import Findings
from service.detect.inputs import RunView, Segment
from service.detect.judgement import Judgement
from service.detect.replay import prefix

from .golden import load
from .scenarios import HELD, TRAIN, curve, judged, pair, series, step_change, white

RUNS = ["00008ea0", "14511f40", "1b4db08c", "2577721d", "2e527b0b", "4f8bcdc3"]


def train_only(view: RunView) -> Judgement:
    return judged(view, "train_only_drift")["train_only_drift"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_memorization_is_named(seed):
    said = train_only(pair(seed, train=step_change(20_000, -0.05)))
    assert said.state == "yes"
    assert said.value == pytest.approx(-0.05, abs=0.006)
    assert {e.name for e in said.evidence} >= {
        "train gap", "held-out change", "share of repeated rows", "rows read", "distinct rows",
        "generalization gap change",
    }  # fmt: skip
    weights = {cause.name: cause.weight for cause in said.causes}
    # Without fingerprints nothing tells them apart.
    assert weights["repeated rows (double shard, replay)"] == "possible"
    assert weights["correlated batches: data order or mix differs from the reference"] == "possible"


def test_heldout_that_rises_counts_as_flat():
    assert train_only(pair(4, train=step_change(20_000, -0.1), heldout=step_change(20_000, 0.04))).state == "yes"


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_an_improvement_that_heldout_follows_is_not_memorization(share):
    said = train_only(pair(5, train=step_change(20_000, -0.05), heldout=step_change(20_000, -0.05 * share)))
    assert said.state == "no"
    assert "followed" in said.summary


def test_the_settled_time_before_the_fall_is_what_both_losses_are_measured_from():
    """A held-out loss that lay above the reference's all along follows, though it is still not below it."""
    after = pair(21, train=step_change(20_000, -0.05), heldout=lambda s: np.where(s > 20_000, -0.005, 0.045))
    assert train_only(after).state == "no"


def test_one_block_before_the_fall_is_no_settled_time():
    """The first block of train lies odd; both losses are as far below the reference as they have been since then."""
    odd = pair(22, steps=4_000, train=lambda s: np.where(s > 500, -0.2, 0.1), heldout=step_change(0, -0.2), every=100)
    findings = Findings(odd)
    assert findings.train is not None
    assert findings.train.open is not None
    assert findings.train.open.before == 0
    assert train_only(odd).state == "no"


def test_heldout_alone_and_drift_upwards_are_not_train_only():
    assert train_only(pair(6, heldout=step_change(20_000, 0.05))).state == "no"
    assert train_only(pair(7, train=step_change(20_000, 0.05))).state == "no"


def test_it_cannot_tell_while_evaluations_are_few_or_the_answer_straddles():
    view = pair(8, train=step_change(38_000, -0.05), every=1000)
    said = train_only(prefix(view, 39_600))
    assert (said.state, "of 3 evaluations" in said.summary) == ("cannot tell", True)
    change = next(e for e in said.evidence if e.name == "held-out change")
    assert str(change.value).startswith("cannot tell yet")
    third = pair(9, train=step_change(20_000, -0.03), heldout=step_change(20_000, -0.01))
    assert train_only(third).state == "cannot tell"


def test_one_evaluation_that_jumps_decides_nothing():
    jump = pair(10, train=step_change(20_000, -0.03), heldout=lambda s: np.where(s == 20_500, -0.03, 0.0))
    assert train_only(jump).state == "yes"


def test_without_heldout_it_cannot_tell():
    view = pair(11, train=step_change(20_000, -0.05))
    assert train_only(replace(view, metrics={TRAIN: view.metrics[TRAIN]})).state == "cannot tell"


def alone(seed: int, memorize: float, follow: float = 0.0) -> RunView:
    """A run without reference: a first steep fall, then memorization from step 20,000 on."""
    rng = np.random.default_rng(seed)
    at, evals = np.arange(1, 40_001), np.arange(500, 40_001, 500)
    early = 6.0 * np.exp(-at / 300.0)
    train = curve(at) + early - memorize * np.clip((at - 20_000) / 10_000, 0, 1) + white(40_000, 0.0255, rng)
    held = curve(evals) + 0.6 + early[evals - 1] - follow * np.clip((evals - 20_000) / 10_000, 0, 1)
    return RunView({TRAIN: series(at, train), HELD: series(evals, held)}, {}, {}, [Segment(0, 0.0, 1)], heldout=HELD)


def test_without_reference_the_run_s_own_gap_is_judged_against_its_early_value():
    said = train_only(alone(12, 0.25))
    assert said.state == "yes"
    assert "no reference used" in said.summary
    assert 20_000 <= said.since_step[1] <= 26_000
    assert train_only(alone(13, 0.0)).state == "no"
    assert train_only(alone(14, 0.25, follow=0.25)).state == "no"


def real(run: str, reference: str) -> RunView:
    name = "mn_valueembed_124m/"
    siblings = [load(f"{name}run_{r}", 524_288.0) for r in RUNS if r not in (run, reference)][:3]
    own = load(f"{name}{run if run.startswith('derived') else 'run_' + run}", 524_288.0)
    return RunView(
        own, load(f"{name}run_{reference}", 524_288.0), {}, [Segment(0, 0.0, 8)], reference,
        "1", "heldout/fineweb/ce_loss", siblings,
    )  # fmt: skip


@pytest.mark.parametrize("reference", RUNS[:3])
def test_real_healthy_reruns_raise_nothing(reference):
    for run in RUNS:
        if run != reference:
            assert [j.state for j in evaluate(real(run, reference))[:2]] == ["no", "no"], run


@pytest.mark.parametrize("reference", RUNS[:3])
@pytest.mark.parametrize(("run", "onset"), [("derived_0", 750), ("derived_1", 800)])
def test_a_lowered_train_loss_on_real_noise_is_named(run, onset, reference):
    said = train_only(real(run, reference))
    assert said.state == "yes"
    assert said.since_step[0] <= onset + 100
    assert onset <= said.since_step[1] <= onset + 250


def fine_tuning(seed: int, second: float) -> RunView:
    """Two passes with one train point an evaluation; the second pass lowers the train loss by `second` nats alone."""
    rng, at = np.random.default_rng(seed), np.arange(0, 300, 5)
    both = 0.65 + 1.9 * np.exp(-at / 6.0)
    train = both - np.where(at > 150, second, 0.0) + white(len(at), 0.03, rng)
    held = both + 0.03 + 0.0004 * np.clip(at - 150, 0, None) + white(len(at), 0.005, rng)
    return RunView({TRAIN: series(at, train), HELD: series(at, held)}, {}, {}, [Segment(0, 0.0, 1)], heldout=HELD)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_second_pass_of_a_fine_tuning_with_few_train_points_is_no_memorization_yet(seed: int):
    view = fine_tuning(seed, 0.15)
    assert "yes" not in {train_only(prefix(view, step)).state for step in range(60, 300, 15)}
    assert train_only(fine_tuning(seed, 0.6)).state == "yes"
