"""Rule `recipe`: is the run's recipe the reference's, entry by entry? For the verdict `matching`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from service.detect import recipe
from service.detect.deviations import RESTS_ON, describe
from service.detect.findings import TRAIN, Findings
from service.detect.judgement import Cause, Evidence, Judgement
from service.detect.parity import step_tokens
from service.detect.recipe import Entry
from service.detect.rules import schedule_mismatch

RULE = "recipe"
SHOWN = 8  # entries of a kind that are named in the summary


def judge(findings: Findings) -> Judgement:
    """`yes` where an entry surely differs and no declared deviation is about that part; `no` where every entry is equal
    (the schedule also by its measured learning rate); else `cannot tell`, with what is not known."""
    view = findings.view
    config: Mapping[str, Any] = view.segments[-1].config if view.segments else {}
    if not view.recipe.entries:
        summary = "Cannot tell: the reference's recipe is not described."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, unit="entries")
    declared = _declared(findings)
    entries = findings.cache.unchanged(
        (RULE, "entries"), (view.recipe, config, declared),
        lambda: recipe.compare(view.recipe.entries, config, declared),
    )  # fmt: skip
    measured = _measured_schedule(findings)
    off = [e for e in entries if e.same == "differs"]
    unknown = [e for e in entries if e.same == "unknown" and not (measured and e.item == recipe.SCHEDULE)]
    same = len(entries) - len(off) - len(unknown)
    items = {d.item for d in view.deviations}
    undeclared = [e for e in off if e.item not in items]
    evidence = [_evidence(e) for e in off]
    if measured:
        evidence.append(Evidence("schedule", "same", "", f"measured: {measured}"))
    evidence.append(Evidence("entries alike", same, "entries", f"of {len(entries)} that the reference's recipe has"))
    if unknown:
        evidence.append(Evidence("entries not known", len(unknown), "entries", _names(unknown, len(unknown))))
    evidence += [
        Evidence(RESTS_ON, describe(d), "", f"declared for {d.item}")
        for d in view.deviations if any(e.item == d.item for e in off)
    ]  # fmt: skip
    answer = partial(
        Judgement, RULE, at_step=findings.at_step, value=float(len(undeclared)), unit="entries", limit=0.0,
        limit_source="a recipe is the same or it is not", n=len(entries), evidence=evidence,
    )  # fmt: skip
    if undeclared:
        summary = f"The recipe differs from the reference's: {_differences(undeclared)}."
        return answer(
            state="yes", summary=summary,
            causes=[Cause(f"another recipe: {e.item}", "shown", _difference(e)) for e in undeclared],
            next_checks=["Set what is not meant to differ; declare what is, with its budget (`pacenote deviation`)."],
        )  # fmt: skip
    if off:
        summary = f"Cannot tell: the recipe differs as declared: {_differences(off)}."
    elif unknown:
        summary = f"Cannot tell: {same} of {len(entries)} entries are alike; not known: {_names(unknown, SHOWN)}."
    else:
        summary = f"All {len(entries)} entries of the recipe are the reference's."
        return answer(state="no", summary=summary)
    return answer(state="cannot tell", summary=summary)


def _declared(findings: Findings) -> dict[str, Any]:
    """What the run declared beside its configuration, and the tokens of a step by its own count."""
    data, train = findings.view.data, findings.view.metrics.get(TRAIN)
    found: dict[str, Any] = {}
    if data is not None:
        found = {"data.rows": data.rows, "data.epochs": data.epochs, "data.passes": data.epochs}
    if train is not None and len(train) > 1 and (tokens := step_tokens(train)) > 1.0:
        found["data.tokens_per_step"] = round(tokens)
    return found


def _measured_schedule(findings: Findings) -> str:
    """Where the learning rate was compared and is the same: in words."""
    if not any(recipe.SCHEDULE in name for name in findings.view.recipe.entries):
        return ""
    rate = findings.said(schedule_mismatch.judge)
    return rate.summary if rate.state == "no" else ""


def _evidence(entry: Entry) -> Evidence:
    why = f"the reference: {entry.reference}; as {entry.found_as}"
    return Evidence(f"recipe: {entry.name}", str(entry.run), "", why)


def _difference(entry: Entry) -> str:
    return f"{entry.name} is {entry.run}, the reference's {entry.reference}"


def _differences(entries: Sequence[Entry]) -> str:
    more = f", and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
    return "; ".join(_difference(e) for e in entries[:SHOWN]) + more


def _names(entries: Sequence[Entry], most: int) -> str:
    more = f" and {len(entries) - most} more" if len(entries) > most else ""
    return ", ".join(e.name for e in entries[:most]) + more
