"""The life of an alert, as a pure state machine: an episode and new judgements in, the next one and its changes out.

An episode opens with the first "yes" of a family and gains every rule that says "yes" later. A rule leaves it only by
saying "no": "cannot tell", or no answer at all, keeps the rule in. Once every rule has left, the episode is *clearing*;
it is resolved when it has stayed so for the clear time and by later data, and a "yes" before that reopens it.
So a state that flaps faster than the clear time is one episode, and missing data never ends one.
The two thresholds are apart, too: a gap to the reference that has come back inside its limit clears only once it is
below the clear level, a share of that limit.
A rule may also be *withdrawn*, with a reason: somebody muted it or turned it off, or a rewind took back what it rested
on. It leaves at once, and an episode whose every rule was withdrawn is resolved at once with that reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from service.detect.judgement import Judgement
from service.judgements.bodies import to_body

State = Literal["firing", "acknowledged", "resolved"]
Kind = Literal["firing", "joined", "evidence", "clearing", "reopened", "withdrawn", "resolved"]

MESSAGES: frozenset[Kind] = frozenset({"firing", "joined", "resolved"})
WITHDRAWN = "withdrawn"  # in a recorded judgement: why its rule left the episode
LEVELLED = frozenset({"train_drift", "heldout_regression", "downstream"})  # their value grows with what is wrong
CLEAR_LEVEL = 0.8  # share of the limit below which such a value must come before its "no" counts
MATERIAL = 0.25  # a value that moved by this share of the last recorded one is worth a record


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that happened to an alert. `rules` are those it is about; `body` is JSON."""

    kind: Kind
    rules: tuple[str, ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_message(self) -> bool:
        """Whether channels hear of it."""
        return self.kind in MESSAGES


@dataclass(frozen=True, slots=True)
class Episode:
    """One alert.

    `rules` joined, in this order. `judgements` holds each rule's last recorded answer, "yes" or "no" (JSON of a
    Judgement). `clearing` is (unix seconds, step) of the evaluation at which the last rule left, None while any holds.
    """

    state: State
    rules: tuple[str, ...]
    judgements: Mapping[str, Mapping[str, Any]]
    clearing: tuple[float, int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it still lasts."""
        return self.state != "resolved"

    @property
    def active(self) -> tuple[str, ...]:
        """The rules that hold it open."""
        return tuple(
            rule
            for rule in self.rules
            if self.judgements[rule]["state"] == "yes" and not self.judgements[rule].get(WITHDRAWN)
        )


def advance(
    episode: Episode | None,
    judgements: Iterable[Judgement],
    now: float,
    clear_seconds: float,
    withdrawn: Mapping[str, str] | None = None,
    clear_level: float = CLEAR_LEVEL,
) -> tuple[Episode | None, list[Change]]:
    """What one evaluation does to the open episode of one family (None: there is none).

    `judgements` are the family's answers, at most one per rule; `now` is in unix seconds. A resolved episode comes back
    with state "resolved"; the next "yes" opens another one. The same answers again change nothing. `withdrawn` gives
    the rules whose answers count for nothing here, with the reason. A "no" whose value is still beyond `clear_level` of
    its limit counts as "cannot tell" for a rule that holds the episode open.
    """
    withdrawn = withdrawn or {}
    said = {judgement.rule: judgement for judgement in judgements}
    answers = {rule: j for rule, j in said.items() if j.state != "cannot tell" and rule not in withdrawn}
    if episode is None or not episode.is_open:
        return _open(answers)
    recorded = dict(episode.judgements)
    answers = {rule: j for rule, j in answers.items() if not _is_near(recorded.get(rule), j, clear_level)}
    joined = tuple(rule for rule, answer in answers.items() if answer.state == "yes" and rule not in recorded)
    moved = tuple(r for r in episode.rules if r in answers and _says_otherwise(recorded[r], answers[r]))
    left = tuple(r for r in episode.rules if r in withdrawn and not recorded[r].get(WITHDRAWN))
    recorded |= {rule: to_body(answers[rule]) for rule in (*joined, *moved)}
    for rule in left:
        body = to_body(said[rule]) if rule in said else recorded[rule]
        recorded[rule] = {**body, WITHDRAWN: withdrawn[rule]}
    following = replace(episode, rules=(*episode.rules, *joined), judgements=recorded)
    changes: list[Change] = []
    if episode.clearing and following.active:
        following = replace(following, clearing=None)
        changes.append(Change("reopened", following.active))
    changes += [Change("joined", (rule,), {"judgements": {rule: recorded[rule]}}) for rule in joined]
    if moved:
        changes.append(Change("evidence", moved, {"judgements": {rule: recorded[rule] for rule in moved}}))
    if left:
        changes.append(Change("withdrawn", left, {"reason": _reason(withdrawn, left)}))
    if following.active:
        return following, changes
    if left and all(recorded[rule].get(WITHDRAWN) for rule in following.rules):
        step = max((j.at_step for j in said.values()), default=0)
        body = {"step": step, "reason": _reason(withdrawn, left)}
        return replace(following, state="resolved"), [*changes, Change("resolved", following.rules, body)]
    step = max((answer.at_step for answer in answers.values()), default=None)
    if step is None:  # nothing but "cannot tell": neither towards the end nor away from it
        return following, changes
    if following.clearing is None:
        return replace(following, clearing=(now, step)), [*changes, Change("clearing", (), {"step": step})]
    since, since_step = following.clearing
    silent = [rule for rule in following.rules if rule not in answers and not recorded[rule].get(WITHDRAWN)]
    if not silent and step != since_step and now - since >= clear_seconds:
        return replace(following, state="resolved"), [*changes, Change("resolved", following.rules, {"step": step})]
    return following, changes


def _open(answers: Mapping[str, Judgement]) -> tuple[Episode | None, list[Change]]:
    rules = tuple(rule for rule, answer in answers.items() if answer.state == "yes")
    if not rules:
        return None, []
    bodies = {rule: to_body(answers[rule]) for rule in rules}
    return Episode("firing", rules, bodies), [Change("firing", rules, {"judgements": bodies})]


def _reason(withdrawn: Mapping[str, str], rules: tuple[str, ...]) -> str:
    """Why these rules left: each reason once, with its rules where there are several reasons."""
    reasons = dict.fromkeys(withdrawn[rule] for rule in rules)
    if len(reasons) == 1:
        return next(iter(reasons))
    return "; ".join(f"{rule}: {withdrawn[rule]}" for rule in rules)


def _is_near(old: Mapping[str, Any] | None, new: Judgement, clear_level: float) -> bool:
    """Whether a rule that said yes says no although its value, on the same side, is not below the clear level yet."""
    if old is None or old["state"] != "yes" or new.state != "no" or new.rule not in LEVELLED:
        return False
    before = old.get("value")
    if not isinstance(before, int | float) or new.value is None or new.limit is None:
        return False
    return math.copysign(1.0, before) * new.value > clear_level * abs(new.limit)


def _says_otherwise(old: Mapping[str, Any], new: Judgement) -> bool:
    """Whether an answer is worth a record: it says something else, or its rule is back after it was withdrawn."""
    return materially_different(old, new) or (bool(old.get(WITHDRAWN)) and new.state == "yes")


def materially_different(old: Mapping[str, Any], new: Judgement) -> bool:
    """Whether an answer says something else than the recorded one, beyond the last digits of its numbers.

    It does if the state, the first cause or its weight is another one, if the two onsets exclude each other, or if the
    value has left the recorded interval and moved by a quarter of itself.
    """
    if old["state"] != new.state:
        return True
    causes: list[Mapping[str, Any]] = old["causes"]
    first = (causes[0]["name"], causes[0]["weight"]) if causes else None
    if first != ((new.causes[0].name, new.causes[0].weight) if new.causes else None):
        return True
    if new.state != "yes":
        return False
    return _onset_moved(old.get("since_step"), new.since_step) or _value_moved(old, new.value)


def _onset_moved(old: list[int] | None, new: tuple[int, int] | None) -> bool:
    if old is None or new is None:
        return (old is None) != (new is None)
    return new[0] > old[1] or new[1] < old[0]


def _value_moved(old: Mapping[str, Any], value: float | None) -> bool:
    before = old.get("value")
    if not isinstance(before, int | float) or value is None:
        return False
    interval = old.get("interval")
    if interval and all(isinstance(end, int | float) for end in interval) and interval[0] <= value <= interval[1]:
        return False
    return abs(value - before) > MATERIAL * abs(before)
