"""What changed in a run within an interval of steps: starts, code, flags, machines, data, evaluator, batch size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from .inputs import RunView, Segment
from .judgement import Cause, Evidence, Judgement
from .recipe import flat

MOST_FLAGS = 12  # of one start that are named one by one
TOLD = {"config", "code", "data", "evaluator", "hardware", "evaluation_set", "note"}
# Named on every start, and no cause of anything.
PASSING = ("started_at", "hostname", "pid", "job_id", "run_id", "log_dir", "launch")


@dataclass(frozen=True, slots=True)
class Change:
    """Something that changed with update `step` + 1: `kind` (restart, code, flags, machines, batch size, data, …)."""

    step: int
    kind: str
    text: str


def between(view: RunView, first: int, last: int, *, evaluated: bool = False) -> list[Change]:
    """All that changed from `first` to `last` and may show at `last`, by step. The first start of the run is no change.

    A start after step `last` made no update up to it; an evaluation at that step (`evaluated`) may be its work."""
    found: list[Change] = []
    segments = sorted(view.segments, key=lambda s: (s.start_step, s.started_at))
    for before, start in pairwise(segments):
        if first - 1 <= start.start_step < last + evaluated:
            found += _of_start(before, start)
    for segment in segments:
        found += _ramps(segment, first, last)
    found += [
        Change(h.step, "evaluation set" if h.kind == "evaluation_set" else h.kind, h.text)
        for h in view.happenings if h.kind in TOLD and first - 1 <= h.step <= last
    ]  # fmt: skip
    return sorted(found, key=lambda c: c.step)


def _of_start(before: Segment, start: Segment) -> list[Change]:
    step = start.start_step
    found = [Change(step, "restart", f"the trainer was started again after step {step:,}")]
    code = differences(before.versions, start.versions)
    if code:
        found.append(Change(step, "code", "; ".join(code[:MOST_FLAGS])))
    flags = differences(before.config, start.config)
    for flag in flags[:MOST_FLAGS]:
        found.append(Change(step, "flag", flag))
    if len(flags) > MOST_FLAGS:
        found.append(Change(step, "flag", f"{len(flags) - MOST_FLAGS} more flags"))
    machines = differences(before.topology, start.topology)
    if not machines and before.hosts != start.hosts:
        machines = [f"hosts: {before.hosts} -> {start.hosts}"]
    if machines:
        found.append(Change(step, "machines", "; ".join(machines[:MOST_FLAGS])))
    old, new = _rate_at(before, step + 1), _rate_at(start, step + 1)
    if old is not None and new is not None and old != new:
        found.append(Change(step, "batch size", f"{old:,} -> {new:,} tokens a step"))
    return found


def _ramps(segment: Segment, first: int, last: int) -> list[Change]:
    return [
        Change(step - 1, "batch size", f"{old:,} -> {new:,} tokens a step (ramp)")
        for (_, old), (step, new) in pairwise(segment.rates)
        if first <= step <= last and step > segment.start_step
    ]  # fmt: skip


def _rate_at(segment: Segment, update: int) -> int | None:
    fitting = [tokens for step, tokens in segment.rates if step <= update]
    return fitting[-1] if fitting else None


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Entries of two nested tables that differ, as "name: old -> new"; those that only one has, too."""
    old, new = flat(before), flat(after)
    names = [n for n in sorted({*old, *new}) if old.get(n) != new.get(n) and n.rpartition(".")[2] not in PASSING]
    return [f"{n}: {_short(old.get(n))} -> {_short(new.get(n))}" for n in names]


def _short(value: Any) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def beside_onset(view: RunView, judgement: Judgement, *, evaluated: bool = False) -> Judgement:
    """The judgement with all that changed within its onset as evidence. One thing that changed there is a likely cause
    of what began there; several cannot be told apart, and are all named as possible. `evaluated`: what began shows in
    evaluations (`between`)."""
    if judgement.state != "yes" or judgement.since_step is None:
        return judgement
    found = between(view, *judgement.since_step, evaluated=evaluated)
    if not found:
        return judgement
    low, high = judgement.since_step
    where = f"step {low:,}" if low == high else f"step {low:,} to {high:,}"
    evidence = [Evidence(f"{c.kind} at step {c.step:,}", c.text, "", f"within the onset ({where})") for c in found]
    return replace(
        judgement, evidence=[*judgement.evidence, *evidence], causes=[*judgement.causes, *_causes(found, where)]
    )


def _causes(found: list[Change], where: str) -> list[Cause]:
    """A restart alone explains nothing by itself; what changed with it does."""
    real = [c for c in found if c.kind not in ("restart", "note")]
    if not real:
        return []
    if len(real) == 1:
        return [Cause(f"{real[0].kind} changed: {real[0].text}", "likely", f"nothing else changed within {where}")]
    because = f"{len(real)} things changed within {where}; from this run alone they cannot be told apart"
    return [Cause(f"{c.kind} changed: {c.text}", "possible", because) for c in real]
