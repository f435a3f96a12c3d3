"""What follows when a person resolves an alert whose rules still say yes: it stays closed until they have cleared.

A rule that is held back opens and joins nothing. It is let go once it has said "no" for the clear time and by later
data, as an alert ends by itself; from then on its next "yes" opens another alert. Rules that had not joined are not
held back: what they say is news.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from service.detect.judgement import Judgement

Held = dict[str, Any]  # rule -> [unix seconds, step] of its first "no" since, None while it says "yes"


def hold(rules: Iterable[str]) -> Held | None:
    """The rules to hold back when a person resolves an alert that these hold open; None where there are none."""
    return dict.fromkeys(rules) or None


def settle(
    held: Mapping[str, Any],
    judgements: Iterable[Judgement],
    now: float,
    clear_seconds: float,
    withdrawn: Mapping[str, str] | None = None,
) -> Held:
    """The rules that are still held back after one evaluation. "Cannot tell", or no answer, changes nothing."""
    answers = {judgement.rule: judgement for judgement in judgements}
    return {
        rule: left
        for rule, since in held.items()
        if rule not in (withdrawn or {}) and (left := _after(since, answers.get(rule), now, clear_seconds)) is not GONE
    }


GONE = object()


def _after(since: Any, answer: Judgement | None, now: float, clear_seconds: float) -> Any:
    if answer is None or answer.state == "cannot tell":
        return since
    if answer.state == "yes":
        return None
    if since is None:
        return [now, answer.at_step]
    return GONE if answer.at_step != since[1] and now - since[0] >= clear_seconds else since
