"""Runs that do not line up with their reference by themselves: converted, or refused, and never mixed in silence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from service.detect.engine import evaluate
from service.detect.inputs import RunView, Segment, Series

from .scenarios import HELD, TRAIN, curve, judged, pair, series, step_change

RULES = ("train_drift", "train_only_drift")


def said(view: RunView) -> dict[str, str]:
    answers = judged(view, *RULES)
    return {rule: answers[rule].state for rule in RULES}


def changed(view: RunView, metric: str, change: Callable[[Any], Any]) -> RunView:
    own = view.metrics[metric]
    return replace(view, metrics={**view.metrics, metric: Series(own.steps, own.tokens, change(own.values))})


def up_to(metrics: Mapping[str, Series], end: int) -> dict[str, Series]:
    return {m: s.first(int(np.searchsorted(s.steps, end, side="right"))) for m, s in metrics.items()}


def at_tokens(seed: int, per_step: float, shift: float = 0.0) -> RunView:
    """A run with other batches than its reference's (4,194,304 tokens a step), equal at equal tokens."""
    view = pair(seed)
    span = view.reference[TRAIN].tokens[-1]
    steps = np.arange(1, int(span / per_step) + 1)
    place = steps * per_step / 4_194_304.0
    noise = np.random.default_rng(seed + 50).normal(0.0, 0.0255 * np.sqrt(4_194_304.0 / per_step), len(steps))
    late = np.where(place > 20_000, shift, 0.0)
    held = view.metrics[HELD]
    held = Series(np.rint(held.tokens / per_step).astype(np.int64), held.tokens, held.values)
    return replace(view, metrics={TRAIN: series(steps, curve(place) + noise + late, per_step), HELD: held})


@pytest.mark.parametrize("per_step", [2_097_152.0, 8_388_608.0, 3_000_000.0])
def test_other_batch_sizes_meet_the_reference_at_equal_tokens(per_step: float) -> None:
    assert said(at_tokens(1, per_step)) == {"train_drift": "no", "train_only_drift": "no"}
    assert said(at_tokens(2, per_step, -0.05)) == {"train_drift": "yes", "train_only_drift": "yes"}


@pytest.mark.parametrize("every", [37, 250])
def test_a_thinned_reference_is_met_by_its_level(every: int) -> None:
    thin = np.arange(every, 40_001, every)
    assert said(pair(3, reference_at=thin))["train_drift"] != "yes"
    assert said(pair(4, reference_at=thin, train=step_change(15_000, -0.08)))["train_drift"] == "yes"


def test_a_later_stage_is_compared_on_the_project_s_axis() -> None:
    """Stage 2 begins at step 1 of its own and 5 T tokens into the project; a run that forgot that is not compared."""
    view, offset = pair(5), 5e12
    moved = {
        side: {m: Series(s.steps, s.tokens + offset, s.values) for m, s in getattr(view, side).items()}
        for side in ("metrics", "reference")
    }
    assert said(replace(view, **moved)) == said(view)
    forgot = replace(view, reference=moved["reference"])
    answer = judged(forgot, "train_drift")["train_drift"]
    assert (answer.state, "token range" in answer.summary) == ("cannot tell", True)


def test_steps_without_tokens_are_not_guessed() -> None:
    """A log of steps alone has no place on the token axis until a plan tells one."""
    view = pair(6)
    unknown = {m: Series(s.steps, np.full(len(s), np.nan), s.values) for m, s in view.metrics.items()}
    answers = said(replace(view, metrics=unknown))
    assert answers["train_drift"] == "cannot tell"
    assert answers["train_only_drift"] != "yes"  # it may still be judged on the run's own held-out - train gap


def test_a_rewind_counts_the_newer_points_only() -> None:
    """After a restart from step 12,000 the drift since step 15,000 is gone with the points that held it."""
    drifted = pair(7, train=step_change(15_000, -0.05), steps=20_000)
    assert said(drifted)["train_drift"] == "yes"
    healthy = pair(7, steps=20_000)
    old, new = drifted.metrics[TRAIN], healthy.metrics[TRAIN]
    for upto in (12_001, 12_300, 20_000):
        live = np.concatenate((old.values[:12_000], new.values[12_000:upto]))
        run = series(np.arange(1, upto + 1), live)
        view = replace(
            drifted, metrics={**drifted.metrics, TRAIN: run}, segments=[Segment(0, 0.0, 8), Segment(12_000, 1.0, 8)]
        )
        assert said(view)["train_drift"] == "no"


def test_gaps_in_a_log_are_no_drift_and_hide_none() -> None:
    def holed(view: RunView) -> RunView:
        own = view.metrics[TRAIN]
        keep = ~((own.steps > 9_000) & (own.steps < 14_000)) & (own.steps % 7 != 3)
        return replace(
            view, metrics={**view.metrics, TRAIN: Series(own.steps[keep], own.tokens[keep], own.values[keep])}
        )

    assert said(holed(pair(8)))["train_drift"] == "no"
    assert said(holed(pair(9, train=step_change(20_000, -0.05)))) == {"train_drift": "yes", "train_only_drift": "yes"}


@pytest.mark.parametrize(
    ("unit", "convert"),
    [
        ("a perplexity", np.exp),
        ("in bits per token", lambda nats: nats / np.log(2.0)),
        ("in bits per byte", lambda nats: nats / np.log(2.0) / 4.3),
    ],
)
def test_a_loss_in_another_unit_is_refused_by_name(unit: str, convert: Callable[[Any], Any]) -> None:
    view = changed(pair(10), TRAIN, convert)
    answer = judged(view, "train_drift")["train_drift"]
    assert answer.state == "cannot tell"
    assert f"seems to be {unit}" in answer.summary
    assert said(view)["train_only_drift"] != "yes"
    both = said(changed(view, HELD, convert))
    assert both["train_drift"] == "cannot tell"
    assert both["train_only_drift"] != "yes"
    beginning = judged(view, "initial_parity")["initial_parity"]
    assert (beginning.state, f"seems to be {unit}" in beginning.summary) == ("cannot tell", True)
    assert {j.rule for j in evaluate(view) if j.state == "yes"} == set()


@pytest.mark.parametrize(
    ("unit", "convert"), [("a perplexity", np.exp), ("in bits per token", lambda nats: nats / np.log(2.0))]
)
def test_a_held_out_loss_in_another_unit_is_refused_by_name(unit: str, convert: Callable[[Any], Any]) -> None:
    view = changed(pair(10), HELD, convert)
    for rule, answer in judged(view, "heldout_regression", "evaluation_changed").items():
        assert answer.state == "cannot tell", rule
        assert f"{HELD} seems to be {unit}" in answer.summary
    assert {j.rule for j in evaluate(view) if j.state == "yes"} == set()
    sunk = changed(pair(10, steps=20_000, train=step_change(10_000, -0.1)), HELD, convert)
    answer = judged(sunk, "train_only_drift")["train_only_drift"]
    assert (answer.state, f"{HELD} seems to be {unit}" in answer.summary) == ("cannot tell", True)


@pytest.mark.parametrize("end", [15_000, 19_800, 20_000])
def test_behind_the_end_of_the_reference_no_all_clear_is_given(end: int) -> None:
    view = pair(13, steps=20_000, train=step_change(15_000, -0.05) if end == 15_000 else None)
    rules = ("train_drift", "train_only_drift", "heldout_regression", "evaluation_changed")
    found = judged(replace(view, reference=up_to(view.reference, end)), *rules)
    states = {rule: answer.state for rule, answer in found.items()}
    if end == 15_000:
        assert set(states.values()) == {"cannot tell"}
        for rule in ("train_drift", "heldout_regression", "evaluation_changed"):
            assert "ends where the run was at step 15,000" in found[rule].summary
    else:
        assert set(states.values()) == {"no"}, "series of finished runs need not end at the same point"


def test_a_drift_that_was_open_where_the_reference_ends_stays_open() -> None:
    view = pair(14, steps=20_000, train=step_change(10_000, -0.05))
    assert said(replace(view, reference=up_to(view.reference, 15_000))) == {
        "train_drift": "yes",
        "train_only_drift": "yes",
    }


def test_an_evaluation_that_changed_before_the_reference_ended_stays_changed() -> None:
    view = pair(14, steps=20_000, heldout=step_change(10_000, 0.1))
    found = judged(replace(view, reference=up_to(view.reference, 15_000)), "evaluation_changed")["evaluation_changed"]
    assert found.state == "yes"
    assert f"what came since is not compared: {HELD} of" in found.summary


@pytest.mark.parametrize("size", [0.25, -0.25, 0.6])
def test_a_large_drift_is_no_other_unit(size: float) -> None:
    assert said(changed(pair(11), TRAIN, lambda nats: nats + size))["train_drift"] == "yes"


def test_a_loss_that_holds_the_z_loss_from_a_restart_on_is_a_definition_and_not_memorization() -> None:
    view = pair(12, train=step_change(20_000, 0.04))
    view = replace(view, segments=[Segment(0, 0.0, 8), Segment(20_000, 1.0, 8)])
    answers = judged(view, "definition_changed", "train_only_drift", "train_drift")
    assert answers["definition_changed"].state == "yes"
    assert answers["train_only_drift"].state != "yes"
