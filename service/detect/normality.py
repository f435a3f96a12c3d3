"""Is this gap normal? A run's current gaps set beside those of healthy pairs, as evidence in judgements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from service.compare.bank import Differs, Normality, Scale, normality, phase_of
from service.compare.medians import median

from .bank import SCALE_POINTS, scale_of_view
from .findings import TRAIN, Findings
from .judgement import Evidence, Judgement

TRAIN_PERCENTILE = "train gap among healthy pairs"
HELDOUT_PERCENTILE = "held-out gap among healthy pairs"
EVALUATIONS = 3  # the newest ones whose median is set beside single healthy evaluations
WITH_TRAIN = ("train_drift", "train_only_drift", "improvement")
WITH_HELDOUT = ("train_only_drift", "improvement", "heldout_regression", "evaluation_changed")
ORDER_RULE, ORDER = "data_order", "order"


def with_normality(judgements: Sequence[Judgement], findings: Findings) -> list[Judgement]:
    """The judgements of the curve, each with the percentile of its gap among healthy pairs where there is one."""
    differs = _differs(judgements)
    scale = _scale(findings)
    cache, parts = findings.cache, (differs, scale, findings.view.reference)
    train = cache.unchanged(
        TRAIN_PERCENTILE, (findings.train, *parts), lambda: train_normality(findings, differs, scale)
    )
    held = cache.unchanged(
        HELDOUT_PERCENTILE, (findings.heldout_gap, *parts), lambda: heldout_normality(findings, differs, scale)
    )
    made: list[Judgement] = []
    for judgement in judgements:
        extra = [
            _evidence(name, found)
            for name, found, rules in (
                (TRAIN_PERCENTILE, train, WITH_TRAIN), (HELDOUT_PERCENTILE, held, WITH_HELDOUT)
            )
            if found is not None and judgement.rule in rules and judgement.evidence
        ]  # fmt: skip
        made.append(replace(judgement, evidence=[*judgement.evidence, *extra]) if extra else judgement)
    return made


def train_normality(findings: Findings, differs: Differs, scale: Scale) -> Normality | None:
    """Where the newest train gap stands among healthy pairs."""
    train, now = findings.train, findings.gap_now
    if train is None or now is None:
        return None
    blocks = train.blocks
    window = int(blocks.last_step[-1] - blocks.first_step[-1]) + 1
    place = _place(findings, TRAIN, float(blocks.last_tokens[-1]))
    return normality(now[0], TRAIN, scale, differs, phase_of(place), window)


def heldout_normality(findings: Findings, differs: Differs, scale: Scale) -> Normality | None:
    """The same for the median of the newest three held-out evaluations."""
    held = findings.heldout_gap
    if held is None or len(held) == 0:
        return None
    place = _place(findings, held.metric, float(held.tokens[-1]))
    gap = median(held.gap[-EVALUATIONS:])
    return normality(gap, held.metric, scale, differs, phase_of(place), 1)


def _scale(findings: Findings) -> Scale:
    view, train = findings.view, findings.view.metrics.get(TRAIN)
    first = None if train is None else train.first(SCALE_POINTS)
    parts = (first, view.reference_name, view.recipe)
    return findings.cache.unchanged("scale", parts, lambda: scale_of_view(view))


def _place(findings: Findings, metric: str, tokens: float) -> float:
    points = findings.view.reference[metric].tokens
    return (tokens - float(points[0])) / max(float(points[-1] - points[0]), 1e-9)


def _differs(judgements: Sequence[Judgement]) -> Differs:
    """In what the run differs from its reference, as far as the losses tell."""
    for judgement in judgements:
        if judgement.rule == ORDER_RULE:
            for item in judgement.evidence:
                if item.name == ORDER and item.value in ("same", "different", "departs"):
                    return "init" if item.value == "same" else "order"
    return "unknown"


def _evidence(name: str, found: Normality) -> Evidence:
    words = f"share of healthy gaps nearer to zero; {found.source}; the largest was {found.largest:.4f} nats"
    return Evidence(name, round(found.percentile, 1), "%", words)
