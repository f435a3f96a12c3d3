"""All rules over one view, and the verdict of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .findings import TRAIN, Findings
from .gaps import LevelCache
from .inputs import RunView
from .judgement import Judgement
from .rules import (
    data_order,
    definition_changed,
    downstream,
    evaluation_changed,
    heldout_regression,
    improvement,
    loss_spike,
    non_finite,
    plateau,
    repeated_rows,
    replayed_batches,
    schedule_mismatch,
    throughput_changed,
    tokens_missing,
    train_drift,
    train_only_drift,
)

Family = Literal["curve_and_data", "stability", "operation"]
VerdictState = Literal["matching", "consistent", "drifting", "diverged", "not enough data"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule's name, its family (one alert per run and family), and how it judges."""

    name: str
    family: Family
    judge: Callable[[Findings], Judgement]


RULES: tuple[Rule, ...] = (
    Rule(train_drift.RULE, "curve_and_data", train_drift.judge),
    Rule(train_only_drift.RULE, "curve_and_data", train_only_drift.judge),
    Rule(repeated_rows.RULE, "curve_and_data", repeated_rows.judge),
    Rule(replayed_batches.RULE, "curve_and_data", replayed_batches.judge),
    Rule(data_order.RULE, "curve_and_data", data_order.judge),
    Rule(heldout_regression.RULE, "curve_and_data", heldout_regression.judge),
    Rule(improvement.RULE, "curve_and_data", improvement.judge),
    Rule(evaluation_changed.RULE, "curve_and_data", evaluation_changed.judge),
    Rule(downstream.RULE, "curve_and_data", downstream.judge),
    Rule(schedule_mismatch.RULE, "curve_and_data", schedule_mismatch.judge),
    Rule(definition_changed.RULE, "curve_and_data", definition_changed.judge),
    Rule(non_finite.RULE, "stability", non_finite.judge),
    Rule(loss_spike.RULE, "stability", loss_spike.judge),
    Rule(plateau.RULE, "stability", plateau.judge),
    Rule(throughput_changed.RULE, "operation", throughput_changed.judge),
    Rule(tokens_missing.RULE, "operation", tokens_missing.judge),
)
FAMILY_OF_RULE: Mapping[str, Family] = {rule.name: rule.family for rule in RULES}

DIVERGED_RULES = frozenset({non_finite.RULE, heldout_regression.RULE, downstream.RULE})
IDENTITY_RULES = frozenset({"data_order", "definition", "recipe"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """A run's verdict, why, and the reference (with its version) it is about."""

    state: VerdictState
    because: str
    reference: str
    version: str


def evaluate(view: RunView, cache: LevelCache | None = None) -> list[Judgement]:
    """Judge one view by every rule, in the order of RULES. Pure and causal: the view is all that is looked at.

    Give the same `cache` again for views with the same reference objects, to smooth the reference only once."""
    findings = Findings(view, cache)
    return [rule.judge(findings) for rule in RULES]


def verdict(judgements: Sequence[Judgement], reference: str = "", version: str = "") -> Verdict:
    """A run's verdict, first that holds: diverged, drifting, not enough data, matching, consistent."""
    said = {j.rule: j for j in judgements}

    def answer(state: VerdictState, because: str) -> Verdict:
        return Verdict(state, because, reference, version)

    yes = [j for j in judgements if j.state == "yes"]
    diverged = [j for j in yes if j.rule in DIVERGED_RULES]
    curve = [j for j in yes if FAMILY_OF_RULE.get(j.rule) == "curve_and_data" and j not in diverged]
    if diverged or curve:
        return answer("diverged" if diverged else "drifting", " ".join(j.summary for j in [*diverged, *curve]))
    drift = said.get(train_drift.RULE)
    if drift is None or drift.state == "cannot tell":
        return answer("not enough data", drift.summary if drift else f"{TRAIN} was not judged.")
    open_questions = [j for j in judgements if j.state == "cannot tell"]
    proven = [said[r] for r in sorted(IDENTITY_RULES) if r in said and _shows_identity(said[r])]
    if not open_questions and len(proven) == len(IDENTITY_RULES):
        return answer("matching", "No rule sees a difference; data order, loss definition and recipe are shown equal.")
    because = "No rule sees a drift; that it is the same experiment (data order, definition, recipe) is not shown."
    if open_questions:
        because += " Not judged: " + ", ".join(j.rule for j in open_questions) + "."
    return answer("consistent", because)


def _shows_identity(judgement: Judgement) -> bool:
    """Whether something is shown equal: another data order is no fault, and yet not the same experiment."""
    if judgement.rule == data_order.RULE:
        return any(item.name == data_order.ORDER and item.value == "same" for item in judgement.evidence)
    return judgement.state == "no"
