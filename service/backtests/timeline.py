"""A run as it grew, and what the rules would have said of it at each look, by the code that judges live."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from service.detect.inputs import RunView
from service.detect.judgement import Judgement
from service.detect.recovery import Checkpoint, Pace, Recovery, recovery
from service.detect.replay import judge_prefixes

LOOKS = 200


@dataclass(frozen=True, slots=True)
class Look:
    """A moment: the newest step, and of which of the timeline's views."""

    step: int
    view: int


@dataclass(slots=True)
class Timeline:
    """A run as it grew: one view for each stretch between two rewinds, with what was live then.

    `spans` holds each view's first and last step of its own. `checkpoints` (live now) and `pace` are the run's, where
    known."""

    title: str
    views: list[RunView]
    spans: list[tuple[int, int]]
    notes: list[str] = field(default_factory=list[str])
    looks: list[Look] = field(default_factory=list[Look])
    checkpoints: list[Checkpoint] = field(default_factory=list[Checkpoint])
    pace: Pace | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """An answer that differs from the one `before` (at `before_step`; None: the first), or a rule's `last`."""

    step: int
    judgement: Judgement
    before: Judgement | None
    before_step: int
    last: bool
    view: int = 0


@dataclass(frozen=True, slots=True)
class Stretch:
    """A rule said yes from the look at `from_step` to that at `to_step` (None: to the end); `first`: what it said."""

    rule: str
    from_step: int
    to_step: int | None
    first: Judgement


def told(timeline: Timeline, every: int | None, rules: Sequence[str] | None) -> list[Said]:
    """Every change of an answer in order of time, then the last answer of each rule."""
    span = sum(last - first + 1 for first, last in timeline.spans)
    every = every or max(1, span // LOOKS)
    timeline.looks = []
    said: list[Said] = []
    newest: dict[str, tuple[int, Judgement]] = {}
    for look, judgements in judged(timeline, every):
        timeline.looks.append(look)
        for judgement in judgements:
            if rules and judgement.rule not in rules:
                continue
            before_step, before = newest.get(judgement.rule, (0, None))
            newest[judgement.rule] = (look.step, judgement)
            if before is None or before.state != judgement.state:
                said.append(Said(look.step, judgement, before, before_step, last=False, view=look.view))
    end = len(timeline.views) - 1
    return said + [Said(step, judgement, None, 0, last=True, view=end) for step, judgement in newest.values()]


def judged(timeline: Timeline, every: int) -> Iterator[tuple[Look, list[Judgement]]]:
    """The answers of every rule at each look, `every` steps apart."""
    for i, (view, (first, last)) in enumerate(zip(timeline.views, timeline.spans, strict=True)):
        steps = [*range(max(first + every - 1, 1), last, every), last]
        for step, judgements in zip(steps, judge_prefixes(view, steps), strict=True):
            yield Look(step, i), judgements


def stretches(said: Iterable[Said]) -> list[Stretch]:
    """When each rule said yes, in order of beginning."""
    found: list[Stretch] = []
    going: dict[str, int] = {}
    for one in said:
        if one.last:
            continue
        rule = one.judgement.rule
        if one.judgement.state == "yes":
            going[rule] = len(found)
            found.append(Stretch(rule, one.step, None, one.judgement))
        elif rule in going:
            at = going.pop(rule)
            found[at] = replace(found[at], to_step=one.step)
    return found


def what_then(timeline: Timeline, one: Said) -> Recovery | None:
    """Where a restart could have gone back to when a rule first said yes; None where no checkpoint is known, or of a
    part that was superseded since."""
    onset = one.judgement.since_step
    if onset is None or not timeline.checkpoints or one.view != len(timeline.views) - 1:
        return None
    train = timeline.views[one.view].metrics.get("train/ce_loss")
    at = -1 if train is None else int(train.steps.searchsorted(one.step, side="right")) - 1
    tokens = float(train.tokens[at]) if train is not None and at >= 0 else None
    return recovery(onset, timeline.checkpoints, Checkpoint(one.step, tokens), timeline.pace)
