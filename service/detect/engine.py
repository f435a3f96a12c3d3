"""All rules over one view, and the verdict of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from .cadence import SPIKE, all_finite_since, series_reached, up_to_blocks
from .changes import beside_onset
from .deviations import Moment, explained, rest_on
from .findings import TRAIN, Findings
from .gaps import LevelCache
from .inputs import Deviation, RunView
from .judgement import Judgement
from .looked_at import asked, whole, without_rows
from .memory import same_part
from .normality import with_normality
from .rules import (
    data_order,
    data_position,
    data_stopped,
    definition,
    definition_changed,
    downstream,
    evaluation_changed,
    heldout_regression,
    heldout_text,
    improvement,
    initial_parity,
    loss_spike,
    non_finite,
    plateau,
    recipe,
    repeated_rows,
    replayed_batches,
    schedule_mismatch,
    throughput_changed,
    tokens_missing,
    train_drift,
    train_only_drift,
)
from .sets import on_one_set
from .settings import turned_off, with_minimum, with_tolerances

Family = Literal["curve_and_data", "identity", "stability", "operation"]
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
    Rule(data_position.RULE, "curve_and_data", data_position.judge),
    Rule(heldout_regression.RULE, "curve_and_data", heldout_regression.judge),
    Rule(improvement.RULE, "curve_and_data", improvement.judge),
    Rule(evaluation_changed.RULE, "curve_and_data", evaluation_changed.judge),
    Rule(downstream.RULE, "curve_and_data", downstream.judge),
    Rule(schedule_mismatch.RULE, "curve_and_data", schedule_mismatch.judge),
    Rule(definition_changed.RULE, "curve_and_data", definition_changed.judge),
    Rule(heldout_text.RULE, "curve_and_data", heldout_text.judge),
    Rule(initial_parity.RULE, "curve_and_data", initial_parity.judge),
    Rule(definition.RULE, "identity", definition.judge),
    Rule(recipe.RULE, "identity", recipe.judge),
    Rule(non_finite.RULE, "stability", non_finite.judge),
    Rule(loss_spike.RULE, "stability", loss_spike.judge),
    Rule(plateau.RULE, "stability", plateau.judge),
    Rule(throughput_changed.RULE, "operation", throughput_changed.judge),
    Rule(tokens_missing.RULE, "operation", tokens_missing.judge),
    Rule(data_stopped.RULE, "operation", data_stopped.judge),
)
FAMILY_OF_RULE: Mapping[str, Family] = {rule.name: rule.family for rule in RULES}

# What a declared deviation has a budget for, of what each rule looks at; prefixes of metric names.
METRICS: Mapping[str, Sequence[str]] = {
    train_drift.RULE: (TRAIN,),
    train_only_drift.RULE: (TRAIN, "heldout/"),
    improvement.RULE: (TRAIN, "heldout/"),
    definition_changed.RULE: (TRAIN, "heldout/"),
    plateau.RULE: (TRAIN,),
    initial_parity.RULE: (TRAIN, "heldout/"),
    heldout_regression.RULE: ("heldout/",),
    evaluation_changed.RULE: ("heldout/", TRAIN),
    downstream.RULE: ("downstream/",),
}

DIVERGED_RULES = frozenset({non_finite.RULE, heldout_regression.RULE, downstream.RULE})
EVALUATED_RULES = frozenset({evaluation_changed.RULE, heldout_regression.RULE, downstream.RULE})  # onset: evaluations
IDENTITY_RULES = frozenset({data_order.RULE, definition.RULE, recipe.RULE})


@dataclass(frozen=True, slots=True)
class Verdict:
    """A run's verdict, why, and the reference (with its version) it is about."""

    state: VerdictState
    because: str
    reference: str
    version: str


def evaluate(view: RunView, cache: LevelCache | None = None) -> list[Judgement]:
    """Judge one view by every rule, in the order of RULES. Pure and causal: the view is all that is looked at, and of a
    dense log only what its last multiple of 50 steps has reached (`cadence`), but for the rules of `_at_once`.

    Give the same `cache` again for views with the same reference objects, to smooth the reference only once."""
    cache = cache or LevelCache()
    view = on_one_set(_begun(view))
    counted = up_to_blocks(view)
    settled = cache.unchanged("settled", whole(counted), lambda: _settle(counted, cache))
    return [_at_once(rule, view, settled, cache) or settled.said[rule.name] for rule in RULES]


@dataclass(frozen=True, slots=True)
class _Settled:
    """What every rule says of the run as far as it counts, by rule, and what they worked out for that."""

    view: RunView
    findings: Findings
    said: Mapping[str, Judgement]


def _settle(view: RunView, cache: LevelCache) -> _Settled:
    # Rows come by themselves: then what was worked out of the losses stands.
    known = cache.unchanged("settled without rows", without_rows(view), dict[str, object])
    view = with_tolerances(view, cache)
    findings = Findings(view, cache)
    findings.__dict__.update(known)
    said = with_normality([_ask(rule, findings) for rule in RULES], findings)
    if view.deviations:
        bare = Findings(replace(view, deviations=()), cache)
        without = with_normality([_ask(rule, bare) for rule in RULES], bare)
        moment = Moment(findings.at_step, findings.tokens_at(findings.at_step))
        said = explained(said, without, _concerned(view), METRICS, moment)
    known |= findings.of_losses()
    return _Settled(view, findings, {judgement.rule: judgement for judgement in said})


def _at_once(rule: Rule, view: RunView, settled: _Settled, cache: LevelCache) -> Judgement | None:
    """The answer of a rule that does not wait for the end of a block; None where it has nothing more to look at."""
    if rule.name == data_stopped.RULE and view.arrivals is not None:  # told by the clock, of a live run alone
        return _ask(rule, Findings(view, cache))
    if rule.name == non_finite.RULE and not all_finite_since(view, settled.view):
        return _ask(rule, Findings(view, cache))
    train = view.metrics.get(TRAIN)
    if rule.name == loss_spike.RULE and train is not None:
        tail = series_reached(train, SPIKE, view.segments)
        if len(tail) == len(settled.view.metrics[TRAIN]):
            return None
        newest = replace(settled.view, metrics={**settled.view.metrics, TRAIN: tail})
        return cache.unchanged(rule.name, (settled, tail), lambda: _ask(rule, Findings(newest, cache)))
    if rule.name == repeated_rows.RULE and _more_rows(view, settled.view):
        parts = (settled, view.rows, view.windows)
        return cache.unchanged(rule.name, parts, lambda: _ask(rule, _with_rows(view, settled, cache)))
    return None


def _more_rows(view: RunView, counted: RunView) -> bool:
    """Whether there are row readings behind those that count."""
    return not (same_part(view.rows, counted.rows) and same_part(view.windows, counted.windows))


def _with_rows(view: RunView, settled: _Settled, cache: LevelCache) -> Findings:
    """All row readings, beside the losses as far as they count."""
    made = Findings(replace(settled.view, rows=view.rows, windows=view.windows), cache)
    made.__dict__.update(settled.findings.of_losses())
    return made


def _begun(view: RunView) -> RunView:
    """The view without trainer starts that have made no step yet: answers rest on points alone."""
    newest = Findings(view).at_step
    begun = [s for s in view.segments if s.start_step < newest] or list(view.segments[:1])
    return view if len(begun) == len(view.segments) else replace(view, segments=begun)


def _concerned(view: RunView) -> list[Deviation]:
    """Deviations with the budgets that matter: of metrics that the run and its reference both have."""
    shared = set(view.metrics) & set(view.reference)
    if any(metric.startswith("downstream/") for metric in shared):
        shared.add(downstream.MACRO)
    kept = [replace(d, budgets={m: b for m, b in d.budgets.items() if m in shared}) for d in view.deviations]
    return [deviation for deviation in kept if deviation.budgets]


def _ask(rule: Rule, findings: Findings) -> Judgement:
    view = findings.view
    said = turned_off(rule.name, view, findings.at_step) or asked(rule.name, rule.judge, findings)
    said = beside_onset(view, said, evaluated=rule.name in EVALUATED_RULES)
    return with_minimum(said, view.settings.get(rule.name))


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
    # Spike, plateau and operation stand beside the verdict.
    judged = [j for j in judgements if FAMILY_OF_RULE.get(j.rule) in ("curve_and_data", "identity")]
    open_questions = [j for j in judged if j.state == "cannot tell"]
    differ = [j for j in judged if j.state == "yes"]
    proven = [said[r] for r in sorted(IDENTITY_RULES) if r in said and _shows_identity(said[r])]
    declared = rest_on(judgements)
    if not open_questions and not differ and len(proven) == len(IDENTITY_RULES) and not declared:
        return answer("matching", "No rule sees a difference; data order, loss definition and recipe are shown equal.")
    because = "No rule sees a drift; that it is the same experiment (data order, definition, recipe) is not shown."
    if differ:
        because = "No rule sees a drift, but it is another experiment. " + " ".join(j.summary for j in differ)
    if open_questions:
        because += " Not judged: " + ", ".join(j.rule for j in open_questions) + "."
    if declared:
        because += f" It rests on declared deviations: {'; '.join(declared)}."
    return answer("consistent", because)


def _shows_identity(judgement: Judgement) -> bool:
    """Whether something is shown equal: another data order is no fault, and yet not the same experiment."""
    if judgement.rule == data_order.RULE:
        return any(item.name == data_order.ORDER and item.value == "same" for item in judgement.evidence)
    return judgement.state == "no"
