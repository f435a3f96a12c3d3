"""The answer at the top of a run's page, from the judgements' JSON: since when, how far, how sure, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.detect.onset import joint_onset
from web import formatting

Body = Mapping[str, Any]

TONES = {"matching": "ok", "consistent": "ok", "drifting": "warn", "diverged": "bad"}
RULES = (  # what tells most comes first
    "repeated_rows",
    "replayed_batches",
    "data_position",
    "train_only_drift",
    "train_drift",
    "heldout_text",
    "heldout_regression",
    "downstream",
    "non_finite",
)
STATES = ("yes", "cannot tell", "no")
WEIGHTS = ("shown", "likely", "possible", "ruled out")
NOT_YET = "cannot tell yet"


@dataclass(frozen=True, slots=True)
class Fact:
    """One number of the headline. `tone` is "warn" where it speaks for a drift."""

    label: str
    value: str
    note: str = ""
    tone: str = ""


def facts(judgements: Mapping[str, Body]) -> list[Fact]:
    """Since when, gap, held-out change, repeated rows, first cause; empty before anything was judged.

    `judgements` maps rules to their newest answer.
    """
    if not judgements:
        return []
    return [
        _since(judgements),
        _gap(judgements),
        _heldout(judgements),
        _rows(judgements),
        _cause(judgements),
    ]


def onset(judgements: Mapping[str, Body]) -> tuple[list[float], list[float] | None] | None:
    """When what the rules that say "yes" see began: steps (earliest, latest), and tokens where they are known."""
    began = joint_onset(body for body in judgements.values() if body.get("state") == "yes")
    if began is None:
        return None
    steps, tokens = began
    ends = [formatting.as_float(end) for end in tokens or ()]
    known = [end for end in ends if end is not None and end == end]
    return steps, known if len(known) == 2 else None


def causes(judgements: Mapping[str, Body]) -> list[Body]:
    """The causes of every rule that says "yes", each once with its strongest weight, most likely first."""
    best: dict[str, Body] = {}
    for body in _saying_yes(judgements):
        for cause in body.get("causes") or ():
            held = best.get(cause["name"])
            if held is None or _rank(cause) < _rank(held):
                best[cause["name"]] = cause
    return sorted(best.values(), key=_rank)


def next_checks(judgements: Mapping[str, Body]) -> list[str]:
    """What to look at next, each once, the most telling first."""
    told = _saying_yes(judgements)
    return list(dict.fromkeys(str(check) for body in told for check in body.get("next_checks") or ()))


def all_evidence(judgements: Mapping[str, Body]) -> list[Body]:
    """Every number behind the judgements, each name once."""
    found: dict[str, Body] = {}
    for body in in_order(judgements):
        for item in body.get("evidence") or ():
            found.setdefault(item["name"], item)
    return list(found.values())


def in_order(judgements: Mapping[str, Body]) -> list[Body]:
    """The judgements: what is wrong, what cannot be told, what is right; in each the most telling rule first."""
    by_rule = [judgements[rule] for rule in sorted(judgements, key=_place)]
    return sorted(by_rule, key=lambda body: STATES.index(body["state"]) if body.get("state") in STATES else 0)


def _place(rule: str) -> tuple[int, str]:
    return (RULES.index(rule) if rule in RULES else len(RULES), rule)


def _saying_yes(judgements: Mapping[str, Body]) -> list[Body]:
    return [body for body in in_order(judgements) if body.get("state") == "yes"]


def evidence(judgements: Mapping[str, Body], name: str) -> Body | None:
    """The newest evidence of that name."""
    bodies: Sequence[Body] = sorted(judgements.values(), key=lambda body: -body.get("at_step", 0))
    return next((item for body in bodies for item in body.get("evidence") or () if item["name"] == name), None)


def _rank(cause: Body) -> int:
    return WEIGHTS.index(cause["weight"]) if cause["weight"] in WEIGHTS else len(WEIGHTS)


def _since(judgements: Mapping[str, Body]) -> Fact:
    began = onset(judgements)
    if began is None:
        step = max(body.get("at_step", 0) for body in judgements.values())
        known = (judgements.get("train_drift") or {}).get("state") == "no"
        value = "no drift seen" if known else NOT_YET
        return Fact("No longer the same since", value, f"judged up to step {formatting.step(step)}" if known else "")
    steps, tokens = began
    note = f"{formatting.span(tokens, 'tokens')} tokens" if tokens else ""
    return Fact("No longer the same since", f"step {formatting.span(steps)}", note, "warn")


def _gap(judgements: Mapping[str, Body]) -> Fact:
    label, body = "Train gap", judgements.get("train_drift")
    if body is None or body.get("value") is None:
        return Fact(label, NOT_YET, str(body["summary"]) if body else "")
    limit = body.get("limit")
    note = "" if limit is None else f"tolerance ±{formatting.number(limit)}"
    value = formatting.in_unit(body["value"], body.get("unit", ""), body.get("interval"))
    return Fact(label, value, note, "warn" if body["state"] == "yes" else "")


def _heldout(judgements: Mapping[str, Body]) -> Fact:
    label, item = "Held-out change", evidence(judgements, "held-out change")
    if item is None or item["value"] is None:
        return Fact(label, NOT_YET)
    alone = (judgements.get("train_only_drift") or {}).get("state") == "yes"
    text = item["value"]
    if not isinstance(text, str):
        return Fact(label, formatting.in_unit(text, item["unit"]), item["why"])
    numbers = re.search(r"([+-][\d.]+) \(([+-][\d.]+) … ([+-][\d.]+)\)", text)
    if numbers is None:
        return Fact(label, text, str(item["why"]).rpartition("; ")[2])
    value, low, high = (number.replace("-", formatting.MINUS) for number in numbers.groups())
    if text.startswith(NOT_YET):
        return Fact(label, NOT_YET, f"{value} ({low} to {high}) {item['unit']}")
    note = f"{low} to {high}" + (", does not follow" if alone else "")
    return Fact(label, f"{value} {item['unit']}", note, "warn" if alone else "")


def _rows(judgements: Mapping[str, Body]) -> Fact:
    label, body = "Repeated rows", judgements.get("repeated_rows")
    if body is None or body.get("value") is None:
        return Fact(label, "not known", "no row fingerprints: run.log_rows sends them")
    read, distinct = evidence(judgements, "rows read"), evidence(judgements, "distinct rows")
    note = ""
    if read and distinct and read["value"] is not None and distinct["value"] is not None:
        note = f"{formatting.number(distinct['value'])} distinct of {formatting.number(read['value'])} rows read"
    return Fact(label, formatting.percent(body["value"]), note, "warn" if body["state"] == "yes" else "")


def _cause(judgements: Mapping[str, Body]) -> Fact:
    ranked = [cause for cause in causes(judgements) if cause["weight"] != "ruled out"]
    if not ranked:
        wrong = any(body.get("state") == "yes" for body in judgements.values())
        return Fact("First cause", "not known yet" if wrong else "nothing to explain")
    first = ranked[0]
    return Fact("First cause", str(first["name"]), str(first["weight"]), "warn" if first["weight"] == "shown" else "")
