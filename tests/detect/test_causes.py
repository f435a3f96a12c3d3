"""Causes of a drift, what changed at its onset, and drifts that the reference itself made."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.detect_scenes import AT, STEPS, annealed, cosine
from service.detect import annealing, causes, drift_causes
from service.detect.changes import between, differences
from service.detect.engine import evaluate
from service.detect.facts import Happening, Knot, Recipe
from service.detect.findings import Findings
from service.detect.inputs import DeclaredData, Segment, Series
from service.detect.judgement import Evidence, Judgement
from service.detect.replay import prefix
from service.detect.rules import schedule_mismatch

from .scenarios import HELD, TOKENS_PER_STEP, TRAIN, judged, pair, pool_loader, readings, series, step_change


def of(view, rule: str) -> Judgement:
    return next(j for j in evaluate(view) if j.rule == rule)


def weights(found: Judgement) -> dict[str, str]:
    return {cause.name: cause.weight for cause in found.causes}


FIRST = Segment(0, 0.0, 4, {"lr": 1, "data": {"seed": 3}}, {"commit": "a"}, {"hosts": 4}, ((1, 100),))


def started(at: int, **changes) -> Segment:
    return replace(FIRST, start_step=at, started_at=1.0, rates=((at + 1, 100),), **changes)


def test_one_thing_that_changed_at_the_onset_is_the_likely_cause():
    again = started(20_000, config={"lr": 1, "data": {"seed": 4}})
    found = of(replace(pair(3, train=step_change(20_000, -0.1)), segments=[FIRST, again]), "train_drift")
    assert weights(found)["flag changed: data.seed: 3 -> 4"] == "likely"
    assert any(e.name == "flag at step 20,000" for e in found.evidence)


def test_several_things_that_changed_at_once_are_all_named_and_none_is_chosen():
    again = started(20_000, config={"lr": 1, "data": {"seed": 4}}, versions={"commit": "b"}, topology={"hosts": 8})
    told = [Happening(20_001, "data", "shard 7 was read again"), Happening(30_000, "note", "later")]
    view = replace(pair(3, train=step_change(20_000, -0.1)), segments=[FIRST, again], happenings=told)
    found = weights(of(view, "train_drift"))
    for name in ("flag changed: data.seed: 3 -> 4", "code changed: commit: a -> b", "machines changed: hosts: 4 -> 8",
                 "data changed: shard 7 was read again"):  # fmt: skip
        assert found[name] == "possible"
    assert not any("later" in name for name in found)


def test_a_restart_alone_and_what_lies_outside_the_onset_explain_nothing():
    found = of(replace(pair(3, train=step_change(20_000, -0.1)), segments=[FIRST, started(20_000)]), "train_drift")
    assert not any("changed" in name for name in weights(found) if "loss" not in name)
    assert any(e.name == "restart at step 20,000" for e in found.evidence)
    elsewhere = replace(pair(3, train=step_change(20_000, -0.1)), segments=[FIRST, started(9_000, versions={})])
    assert not any(e.name.startswith(("code", "restart")) for e in of(elsewhere, "train_drift").evidence)


def test_a_start_exactly_at_the_onset_s_last_step_did_not_cause_it():
    view = pair(3, train=step_change(20_000, -0.1))
    onset = of(view, "train_drift").since_step
    assert onset is not None
    for at, named in ((onset[1] - 1, True), (onset[1], False)):
        found = of(replace(view, segments=[FIRST, started(at, versions={"commit": "b"})]), "train_drift")
        assert found.since_step == onset
        assert ("code changed: commit: a -> b" in weights(found)) is named
        assert any(e.name == f"restart at step {at:,}" for e in found.evidence) is named


def test_changes_are_found_by_step_ramps_among_them():
    ramped = replace(FIRST, rates=((1, 100), (501, 200)))
    bigger = replace(started(1_000), rates=((1_001, 400),))
    view = replace(pair(3, steps=2_000), segments=[ramped, bigger])
    assert [(c.step, c.kind, c.text) for c in between(view, 1, 2_000)] == [
        (500, "batch size", "100 -> 200 tokens a step (ramp)"),
        (1_000, "restart", "the trainer was started again after step 1,000"),
        (1_000, "batch size", "200 -> 400 tokens a step"),
    ]
    assert between(view, 600, 900) == []
    assert between(view, 600, 1_000) == [], "it made no update up to step 1,000"
    assert len(between(view, 600, 1_000, evaluated=True)) == 2, "but may have evaluated that step"
    assert differences({"a": 1, "b": {"c": 2}}, {"b": {"c": 3}, "d": None}) == ["a: 1 -> not set", "b.c: 2 -> 3"]


def same_order(seed: int, size: float):
    """A run on the reference's batches whose train loss steps at 20,000."""
    view = pair(seed, noise=0.0255)
    theirs = view.reference[TRAIN]
    rng = np.random.default_rng(seed + 500)
    own = theirs.values + rng.normal(0, 0.001, len(theirs)) + np.where(theirs.steps > 20_000, size, 0.0)
    return replace(view, metrics={**view.metrics, TRAIN: Series(theirs.steps, theirs.tokens, own)})


ORDER = "correlated batches: data order or mix differs from the reference"
ROWS = "repeated rows (double shard, replay)"


def test_the_references_own_batches_rule_another_order_and_easier_data_out():
    found = weights(of(same_order(4, -0.1), "train_drift"))
    assert found[ORDER] == "ruled out"
    assert found["easier data (another mix, filter or packing)"] == "ruled out"


def test_without_fingerprints_repeats_and_another_order_are_both_named_with_them_the_order_is_likely():
    view = pair(4, train=step_change(20_000, -0.1))
    blind = weights(of(view, "train_only_drift"))
    assert (blind[ROWS], blind[ORDER]) == ("possible", "possible")
    assert "likely" not in blind.values()
    fresh = readings(np.arange(40_000 * 8).reshape(40_000, 4, 2), sample=64)
    seen = weights(of(replace(view, rows=fresh, data=DeclaredData(400_000)), "train_only_drift"))
    assert (seen[ROWS], seen[ORDER]) == ("ruled out", "likely")
    assert next(iter(seen)) == ORDER


def test_a_drift_upwards_is_not_laid_to_repeats():
    found = weights(of(pair(4, train=step_change(20_000, 0.1)), "train_drift"))
    assert found[ROWS] == "ruled out"
    assert found["harder data (another mix, filter or packing)"] == "possible"


@pytest.mark.parametrize(
    ("jump", "own", "state"),
    [(0.05, 0.0, "cannot tell"), (0.05, -0.01, "cannot tell"), (0.05, 0.05, "no"), (0.0, -0.05, "yes")],
)
def test_where_the_reference_itself_moved_no_drift_is_said(jump, own, state):
    view = pair(6, train=step_change(20_000, own))
    theirs = view.reference[TRAIN]
    moved = Series(theirs.steps, theirs.tokens, theirs.values + np.where(theirs.steps > 20_000, jump, 0.0))
    knot = Knot(20_000 * TOKENS_PER_STEP, "step 20,000, where two of its recordings meet")
    view = replace(view, reference={**view.reference, TRAIN: moved}, recipe=Recipe(knots=(knot,)))
    found = of(view, "train_drift")
    assert found.state == state
    if state == "cannot tell":
        assert "two of its recordings meet" in found.summary
        assert of(view, "train_only_drift").state != "yes"
        assert of(replace(view, recipe=Recipe()), "train_drift").state == "yes"


def test_a_drift_on_top_of_the_references_move_is_said():
    view = pair(6, train=step_change(20_000, -0.08))
    theirs = view.reference[TRAIN]
    moved = Series(theirs.steps, theirs.tokens, theirs.values + np.where(theirs.steps > 20_000, 0.05, 0.0))
    knot = Knot(20_000 * TOKENS_PER_STEP, "a knot")
    view = replace(view, reference={**view.reference, TRAIN: moved}, recipe=Recipe(knots=(knot,)))
    assert of(view, "train_drift").state == "yes"


def law(steps: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """The annealing law summed up step by step, as it is printed."""
    fall, inner, s2 = np.concatenate(([0.0], -np.diff(rate))), 0.0, np.zeros(len(steps))
    total = 0.0
    for i, change in enumerate(fall.tolist()):
        inner = inner * annealing.DECAY + change
        total += inner
        s2[i] = total
    return 2.0 + 0.5 * np.maximum(np.cumsum(rate), 1e-12) ** -0.4 - 0.6 * s2


def scheduled(factor: float, *, noise: float = 0.0255):
    rng = np.random.default_rng(3)
    at = np.arange(0, 30_001)
    warm = np.minimum(at / 500, 1.0)
    base = 3e-4 * warm * (0.1 + 0.45 * (1 + np.cos(np.pi * np.clip((at - 500) / 29_500, 0, 1))))
    own = np.where(at > 15_000, factor * base, base)
    view = pair(1, steps=30_000)
    loss, other = law(at, base)[1:], law(at, own)[1:]
    steps = at[1:]
    return replace(
        view,
        metrics={**view.metrics, TRAIN: series(steps, other + rng.normal(0, noise, 30_000)),
                 "optim/learning_rate": series(steps, own[1:])},
        reference={**view.reference, TRAIN: series(steps, loss + rng.normal(0, noise, 30_000)),
                   "optim/learning_rate": series(steps, base[1:])},
    ), float(other[-1] - loss[-1])  # fmt: skip


@pytest.mark.parametrize("factor", [0.4, 2.0])
def test_the_schedules_share_of_the_gap_is_said_by_a_law_of_loss_and_rate(factor):
    view, gap = scheduled(factor)
    found = judged(view, "schedule_mismatch")["schedule_mismatch"]
    assert found.state == "yes"
    said = {e.name: e for e in found.evidence}
    explained = said["gap that the schedule explains"]
    assert explained.value == pytest.approx(gap, abs=0.02)
    assert "2408.11029" in explained.why


def test_a_reference_whose_rate_never_falls_explains_nothing():
    view = pair(1, train=step_change(20_000, -0.05))
    at = view.metrics[TRAIN].steps
    rate = series(at, np.where(at > 20_000, 1.5e-4, 3e-4))
    view = replace(
        view, metrics={**view.metrics, "optim/learning_rate": rate},
        reference={**view.reference, "optim/learning_rate": series(at, np.full(len(at), 3e-4))},
    )  # fmt: skip
    found = judged(view, "schedule_mismatch")["schedule_mismatch"]
    assert next(e.value for e in found.evidence if e.name == "gap that the schedule explains") == "cannot tell"


def drawn(seed: int, rows: int, per_step: int, steps: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, rows, (steps, 1, per_step))


def test_slow_replacement_is_recognised_for_what_it_is():
    """Rows drawn with replacement, 512 a step: repeats come slowly, their share grows with what was read."""
    view = pair(1, steps=4_000)
    found = of(replace(view, segments=[Segment(0, 0.0, 1)], rows=readings(drawn(2, 10_000_000, 512, 4_000), 64),
                       data=DeclaredData(10_000_000)), "repeated_rows")  # fmt: skip
    assert found.state == "yes"
    assert found.causes[0].name == "sampling with replacement"


def test_declared_copies_and_passes_are_no_repeats_and_one_more_is():
    """A mix that holds each row twice, on purpose: shuffled together, so that copies come at any distance."""
    rng = np.random.default_rng(1)
    mix = np.concatenate([rng.permutation(np.repeat(np.arange(4_000), 2)) for _ in range(2)])
    view = replace(pair(1, steps=2_000), segments=[Segment(0, 0.0, 1)], rows=readings(mix.reshape(-1, 1, 8)))
    assert of(replace(view, data=DeclaredData(8_000, 2.0, copies=2)), "repeated_rows").state == "no"
    assert of(replace(view, data=DeclaredData(8_000, 2.0)), "repeated_rows").state == "yes"


def test_prefixes_keep_what_had_happened_by_then():
    told = [Happening(10, "data", "early"), Happening(900, "data", "late")]
    cut = prefix(replace(pair(1, steps=1_000), happenings=told, eval_sets={HELD: [(500, "a"), (800, "b")]}), 600)
    assert [h.text for h in cut.happenings] == ["early"]
    assert cut.eval_sets == {HELD: [(500, "a")]}


@pytest.mark.parametrize(
    ("made", "gap", "weight"),
    [
        (0.020, 0.030, "likely"),  # two thirds of it
        (0.028, 0.050, "likely"),  # over half of it, and the rest is beyond the tolerance
        (0.022, 0.050, "possible"),  # under half of it, and the rest is beyond the tolerance
        (0.006, 0.020, "likely"),  # over a quarter, and the rest is within the tolerance
        (0.004, 0.018, "possible"),  # under a quarter, with such a rest
        (0.012, 0.026, "likely"),  # less than half, and the rest is within the tolerance
        (0.012, 0.030, "possible"),  # less than half, and the rest is not
        (0.003, 0.016, "possible"),  # a rest within the tolerance, but hardly a part
        (-0.010, 0.016, "possible"),  # it should lie below
        (None, 0.016, "likely"),  # the law says nothing
    ],
)
def test_a_learning_rate_is_likely_where_it_makes_half_of_the_gap_or_leaves_what_healthy_runs_show(
    made, gap, weight, monkeypatch
):
    evidence = [] if made is None else [Evidence(schedule_mismatch.MADE, made, "nats", "by the law")]
    said = Judgement("schedule_mismatch", "yes", 1_000, "The learning rate is off.", evidence=evidence)
    monkeypatch.setattr(schedule_mismatch, "judge", lambda findings: said)
    found = drift_causes.of_higher_heldout(Findings(pair(1, steps=1_000)), gap, 0.015)
    assert found.weight == weight


@pytest.mark.parametrize("factor", [1.4, 1.7, 2.0])
def test_the_law_is_not_bent_by_the_first_steps_that_do_not_follow_it(factor):
    """The first steps count from another place, as after a warm-up: with them in the fit, a third is missed."""
    base, own = cosine(STEPS), cosine(factor * STEPS)
    rate = Series(AT, AT * 1.0, base)
    law = annealing.fit(AT[::20].astype(float), annealed(base)[::20], rate)
    found = annealing.explained(law, rate, Series(AT, AT * 1.0, own))
    true = annealed(own)[-1] - annealed(base)[-1]
    assert found.gap == pytest.approx(true, rel=0.25)


def test_the_law_speaks_from_a_tenth_of_the_reference_on():
    rate = Series(AT, AT * 1.0, cosine(STEPS))
    law = annealing.fit(AT[::20].astype(float), annealed(cosine(STEPS))[::20], rate)
    tenth = len(AT) // 10
    own = Series(AT[:tenth], AT[:tenth] * 1.0, 2.0 * cosine(STEPS)[:tenth])
    assert annealing.explained(law, rate, own) is not None


@pytest.mark.parametrize(("new_share", "weight"), [(0.0, "shown"), (0.05, "shown"), (0.06, "likely"), (0.4, "likely")])
def test_a_pool_that_is_not_used_up_is_no_double_shard_beyond_doubt(new_share, weight):
    """The repeats fit a share of a share; rows that are still new leave a doubt."""
    findings = Findings(sharded(pool_loader(16_000, 4, 8, 2_000, 3, double=True)))
    assert findings.rows is not None
    findings.__dict__["rows"] = replace(findings.rows, pattern=replace(findings.rows.pattern, new_share=new_share))
    cause = next(c for c in causes.of_repeated_rows(findings) if c.name.startswith("double shard"))
    assert cause.weight == weight


def sharded(rows: np.ndarray):
    view = pair(1, steps=2_000)
    return replace(view, segments=[Segment(0, 0.0, 4)], rows=readings(rows), data=DeclaredData(16_000))
