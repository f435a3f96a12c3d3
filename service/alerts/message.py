"""What an alert says, before any channel's own form: one dictionary with every number, its words, and links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from service.detect.onset import joint_onset
from service.runs.fields import rfc3339

Body = Mapping[str, Any]

HEADLINES = {
    "repeated_rows": "training rows repeat",
    "replayed_batches": "batches are replayed",
    "train_only_drift": "train loss sinks and held-out loss does not follow",
    "train_drift": "train loss has left the reference",
    "heldout_regression": "held-out loss is worse than the reference's",
    "improvement": "train and held-out loss are better than the reference's",
    "downstream": "downstream accuracy differs from the reference's",
    "evaluation_changed": "held-out loss moved by itself",
    "definition_changed": "the loss is defined in another way since a restart",
    "data_order": "the data come in another order than declared",
    "schedule_mismatch": "the learning rate is not the reference's",
    "non_finite": "a loss is not finite",
    "loss_spike": "the loss spiked",
    "plateau": "the loss has stopped falling",
    "throughput_changed": "the speed per device changed at a restart",
    "tokens_missing": "steps or tokens are missing",
    "data_position": "the data are not where the weights are since a restart",
    "heldout_text": "held-out text is in the training rows",
    "initial_parity": "the run does not begin where the reference did",
    "definition": "the train loss is defined in another way than the reference's",
    "recipe": "the recipe is not the reference's",
    "data_stopped": "no data come any more",
}
WARNINGS = {  # every other rule is critical
    "train_drift",
    "improvement",
    "evaluation_changed",
    "schedule_mismatch",
    "data_order",
    "loss_spike",
    "plateau",
    "throughput_changed",
    "tokens_missing",
    "initial_parity",
    "definition",
    "recipe",
}
IMPLIED = {"train_drift": {"train_only_drift", "improvement"}}  # said already by any of these, so left out of a title
EVENTS = {
    "firing": "alert.firing",
    "joined": "alert.updated",
    "unmuted": "alert.updated",
    "repeated": "alert.updated",
    "resolved": "alert.resolved",
}
WEIGHTS = ("shown", "likely", "possible")
MAX_TITLE = 512
MAX_NAME = 80  # of the run, inside a title: what happened must still be seen
RECOVERY = ("since_step", "clean", "affected", "cost", "summary")  # what a message holds of what to do now
FACTS = 6  # numbers shown in words; all of them are in `evidence`


@dataclass(frozen=True, slots=True)
class RunLabel:
    """The run an alert is about. `reference` is the slug it is compared with, `version` the one in force."""

    uuid: UUID
    name: str
    stage: str
    project: str
    reference: str
    version: str


@dataclass(frozen=True, slots=True)
class AlertLabel:
    """An alert after a change. `rules` in the order they joined; times in unix seconds."""

    uuid: UUID
    family: str
    state: str
    rules: Sequence[str]
    opened_at: float
    opened_step: int
    resolved_at: float | None = None


def severity_of(rules: Iterable[str]) -> str:
    """The severity of an alert that these rules joined: critical or warning."""
    return "warning" if all(rule in WARNINGS for rule in rules) else "critical"


def headline(rule: str) -> str:
    """What a rule's "yes" means, in a few words."""
    return HEADLINES.get(rule, rule.replace("_", " "))


def title_of(run_name: str, rules: Sequence[str], judgements: Mapping[str, Body]) -> str:
    """The alert in one line of at most 512 characters: run, what, since when."""
    since = _since(rules, judgements)
    when = f", since step {since['step'][0]:,}" if since else ""
    told = [headline(rule) for rule in rules if not IMPLIED.get(rule, set()) & set(rules)]
    return cut(f"{cut(run_name, MAX_NAME)}: {'; '.join(told)}{when}", MAX_TITLE)


def compose(
    kind: str,
    number: int,
    about: Sequence[str],
    *,
    alert: AlertLabel,
    run: RunLabel,
    judgements: Mapping[str, Body],
    at: float,
    base_url: str,
    reason: str | None = None,
    recovery: Body | None = None,
) -> dict[str, Any]:
    """The message of change `number` of an alert: `kind` is one of EVENTS, `about` the rules it is about.

    `judgements` holds the newest answer of each rule of the family, whether it joined or not, as JSON. The result is
    JSON too; `facts` are its numbers in words, in the order in which they are shown. `reason` says why rules were
    withdrawn, `recovery` (JSON of a RecoveryAnswer) what to do now.
    """
    ordered = [*about, *(rule for rule in alert.rules if rule not in about)]
    others = [rule for rule in judgements if rule not in ordered]
    bodies = [judgements[rule] for rule in (*ordered, *others) if rule in judgements]
    told = {rule: judgements[rule] for rule in ordered if rule in judgements}
    evidence = _evidence(bodies)
    causes = _causes(told.values())
    since = _since(alert.rules, told)
    checks = list(dict.fromkeys(str(check) for body in told.values() for check in body["next_checks"]))
    return {
        "type": EVENTS[kind],
        "title": title_of(run.name, alert.rules, told),
        "at": rfc3339(at),
        "change": {"number": number, "kind": kind, "rules": list(about)} | ({"reason": reason} if reason else {}),
        "alert": {
            "id": str(alert.uuid),
            "url": f"{base_url}/alerts/{alert.uuid}",
            "family": alert.family,
            "state": alert.state,
            "severity": severity_of(alert.rules),
            "rules": list(alert.rules),
            "opened_at": rfc3339(alert.opened_at),
            "opened_step": alert.opened_step,
            "resolved_at": None if alert.resolved_at is None else rfc3339(alert.resolved_at),
        },
        "run": {
            "id": str(run.uuid),
            "name": run.name,
            "stage": run.stage,
            "project": run.project,
            "url": f"{base_url}/runs/{run.uuid}",
        },
        "reference": {"slug": run.reference, "version": run.version},
        "since": since,
        "summary": ([_upper(f"{reason}.")] if reason else []) + [str(body["summary"]) for body in told.values()],
        "evidence": evidence,
        "causes": causes,
        "next_checks": checks,
        "judgements": [_numbers(body) for body in bodies],
        "recovery": None if recovery is None else {key: recovery[key] for key in RECOVERY},
        "facts": _facts(since, evidence, causes, checks, recovery),
    }


def cut(text: str, limit: int) -> str:
    """At most `limit` characters of a text, ended at a word and with … where it was longer."""
    if len(text) <= limit:
        return text
    if limit <= 0:
        return ""
    kept = text[: limit - 1]
    word = kept.rfind(" ")
    return (kept[:word] if word > limit // 2 else kept).rstrip() + "…"


def tokens_in_words(tokens: float) -> str:
    """A number of tokens as people write it: 834 K, 12.3 M, 5.93 T."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if tokens >= size:
            return f"{tokens / size:.3g} {unit}" if tokens < 999.5 * size else f"{tokens / size:,.0f} {unit}"
    return f"{tokens:.0f}"


def _since(rules: Iterable[str], judgements: Mapping[str, Body]) -> dict[str, Any] | None:
    began = joint_onset(judgements[rule] for rule in rules if rule in judgements)
    return None if began is None else {"step": began[0], "tokens": began[1]}


def _evidence(bodies: Iterable[Body]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for body in bodies:
        for item in body["evidence"]:
            found.setdefault(item["name"], {key: item[key] for key in ("name", "value", "unit", "why")})
    return list(found.values())


def _causes(bodies: Iterable[Body]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for body in bodies:
        for cause in body["causes"]:
            held = found.get(cause["name"])
            if cause["weight"] in WEIGHTS and (held is None or _rank(cause) < _rank(held)):
                found[cause["name"]] = {key: cause[key] for key in ("name", "weight", "because")}
    return sorted(found.values(), key=_rank)


def _rank(cause: Body) -> int:
    return WEIGHTS.index(cause["weight"])


def _numbers(body: Body) -> dict[str, Any]:
    keys = (
        "rule",
        "state",
        "at_step",
        "since_step",
        "since_tokens",
        "value",
        "interval",
        "unit",
        "limit",
        "limit_source",
        "n",
    )
    return {key: body.get(key) for key in keys}


def _facts(
    since: Body | None,
    evidence: Sequence[Body],
    causes: Sequence[Body],
    checks: Sequence[str],
    recovery: Body | None,
) -> list[dict[str, str]]:
    facts: list[dict[str, str]] = []
    if since:
        facts.append({"label": "Since", "text": _onset(since)})
    facts += [{"label": _upper(item["name"]), "text": _amount(item)} for item in evidence[:FACTS]]
    if causes:
        first = causes[0]
        facts.append({"label": "First cause", "text": f"{first['name']} ({first['weight']}): {first['because']}"})
    if recovery is not None:
        facts.append({"label": "What now", "text": str(recovery["summary"])})
    if checks:
        facts.append({"label": "Check next", "text": checks[0]})
    return facts


def _onset(since: Body) -> str:
    low, high = since["step"]
    text = f"step {low:,}" if low == high else f"step {low:,} – {high:,}"
    if since["tokens"] and all(isinstance(end, int | float) for end in since["tokens"]):
        first, last = (tokens_in_words(end) for end in since["tokens"])
        text += f" ({first} tokens)" if first == last else f" ({first} – {last} tokens)"
    return text


def _amount(item: Body) -> str:
    value = item["value"]
    if value is None:
        return "cannot tell yet"
    if isinstance(value, str):
        return value if not item["unit"] or value.startswith("cannot tell") else f"{value} {item['unit']}"
    if item["unit"] == "share":
        return f"{value:.2%}"
    number = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return f"{number} {item['unit']}".rstrip()


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
