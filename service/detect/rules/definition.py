"""Rule `definition`: is the training loss defined as the reference's is? For the verdict `matching`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from service.detect.deviations import RESTS_ON, describe
from service.detect.findings import TRAIN, Findings
from service.detect.inputs import RunView
from service.detect.judgement import Cause, Evidence, Judgement
from service.detect.parity import first_losses, step_tokens
from service.detect.recipe import Same

RULE = "definition"
SCORED = "train/scored_tokens"
POINTS = 1_000
SHARE_LIMIT = 1e-3  # relative: one masked token in a thousand
EQUAL = 1e-3  # nats: equal weights on equal batches differ by rounding alone
MIN_PAIRS = 4
WORDS = "loss definition"


def judge(findings: Findings) -> Judgement:
    """`yes` where a declared part of the definition, or the share of scored tokens, surely differs; `no` where the
    first losses of equal batches are equal, or all that the reference says of its loss is declared alike; else
    `cannot tell`: words that differ may mean the same."""
    view = findings.view
    parts = [*_declared(view), *_scored(view)]
    proof = _proof(findings)
    evidence = [*proof[1], *(part[1] for part in parts)]
    off = [part for part in parts if part[0] == "differs"]
    allowed = [d for d in view.deviations if d.item == "loss"]
    if off and allowed:
        evidence += [Evidence(RESTS_ON, describe(d), "", "declared for the loss") for d in allowed]
        summary = f"The loss is defined in another way, as declared: {_names(off)}."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, evidence=evidence, n=len(parts))
    if off:
        return Judgement(
            RULE, "yes", findings.at_step, f"The train loss is not defined as the reference's: {_names(off)}.",
            n=len(parts), evidence=evidence,
            causes=[Cause("another loss definition", "shown", f"{p[1].name}: {p[1].value}; {p[1].why}") for p in off],
            next_checks=["Log the loss as the reference defines it, or declare the difference with its budget.",
                         "Compute both definitions on one batch of one checkpoint."],
        )  # fmt: skip
    if proof[0]:
        return Judgement(RULE, "no", findings.at_step, "The first losses of equal batches are equal: the train loss is "
                         "defined as the reference's.", n=len(parts), evidence=evidence)  # fmt: skip
    same = [part for part in parts if part[0] == "same"]
    if parts and len(same) == len(parts) and any(part[1].name == WORDS for part in same):
        summary = "The train loss is declared as the reference defines it."
        return Judgement(RULE, "no", findings.at_step, summary, n=len(parts), evidence=evidence)
    why = "the reference does not say how its loss is defined" if not parts else f"unknown: {_names(parts, 'unknown')}"
    return Judgement(RULE, "cannot tell", findings.at_step, f"Cannot tell: {why}.", n=len(parts), evidence=evidence)


Part = tuple[Same, Evidence]


def loss_of(view: RunView) -> Mapping[str, Any]:
    """What the newest trainer start declares of its loss (`loss`, or `recipe.loss`, in its configuration)."""
    config: Mapping[str, Any] = view.segments[-1].config if view.segments else {}
    recipe: Any = config.get("recipe")
    tables: list[Mapping[str, Any]] = [cast("dict[str, Any]", recipe)] if isinstance(recipe, dict) else []
    for table in (*tables, config):
        said: Any = table.get("loss")
        if isinstance(said, dict):
            return cast("dict[str, Any]", said)
        if isinstance(said, str):
            return {"definition": said}
    return {}


def _declared(view: RunView) -> list[Part]:
    said, theirs = loss_of(view), view.recipe.loss
    parts: list[Part] = []
    words = (("definition", WORDS, theirs.definition), ("unit", "loss unit", theirs.unit))
    for key, name, reference in words:
        if reference:
            mine = said.get(key)
            same: Same = "unknown"
            if isinstance(mine, str) and mine.strip():
                alike = " ".join(mine.casefold().split()) == " ".join(reference.casefold().split())
                same = "same" if alike else "differs" if key == "unit" else "unknown"
            shown = mine if isinstance(mine, str) else "not declared"
            parts.append((same, Evidence(name, shown, "", f"the reference: {reference}")))
    if theirs.z_loss is not None:
        mine = said.get("z_loss")
        same = "unknown" if not isinstance(mine, bool) else "same" if mine is theirs.z_loss else "differs"
        shown = str(mine).lower() if isinstance(mine, bool) else "not declared"
        why = f"the reference: {str(theirs.z_loss).lower()}"
        parts.append((same, Evidence("z-loss in the train loss", shown, "", why)))
    return parts


def _scored(view: RunView) -> list[Part]:
    """The share of tokens that are scored, as counted by the run and as said or counted by the reference."""
    reference = view.recipe.loss.scored_share
    if reference is None:
        reference = share_of_scored(view.reference, view)
    if not reference:
        return []
    mine = share_of_scored(view.metrics, view)
    if mine is None:
        return [("unknown", Evidence("share of scored tokens", "not counted", "", f"the reference: {reference:.6f}"))]
    same: Same = "same" if abs(mine / reference - 1.0) <= SHARE_LIMIT else "differs"
    why = f"{SCORED} over consumed tokens, the reference: {reference:.6f}; limit {SHARE_LIMIT:g}, relative"
    return [(same, Evidence("share of scored tokens", round(mine, 6), "", why))]


def share_of_scored(metrics: Mapping[str, Any], view: RunView) -> float | None:
    """Median share of scored tokens over the newest 1,000 points; None where they are not counted."""
    series = metrics.get(SCORED)
    if series is None or len(series) < 2:
        return None
    newest = slice(max(len(series) - POINTS, 0), None)
    values = series.values[newest]
    per_step = np.diff(series.tokens[newest]) / np.maximum(np.diff(series.steps[newest]), 1)
    good = np.isfinite(values[1:]) & np.isfinite(per_step) & (per_step > 0.0) & (values[1:] > 0.0)
    return float(np.median(values[1:][good] / per_step[good])) if good.any() else None


def _proof(findings: Findings) -> tuple[bool, list[Evidence]]:
    """Whether the first losses, of equal weights on equal batches, are equal."""
    first = first_losses(findings.view, TRAIN)
    run = findings.view.metrics.get(TRAIN)
    if first is None or len(first) < MIN_PAIRS or run is None or step_tokens(run) <= 0.0:
        return False, []
    worst = float(np.abs(first.gap).max())
    why = f"largest of {len(first)} pairs of first updates; only equal weights, batches and losses are below {EQUAL:g}"
    return worst <= EQUAL, [Evidence("difference of the first losses", worst, "nats", why)]


def _names(parts: list[Part], state: Same = "differs") -> str:
    return ", ".join(f"{e.name} ({e.value}; {e.why})" if s == "differs" else e.name for s, e in parts if s == state)
