"""Drift of the train loss on simulated runs: false alarms, what is found and how soon, and what it is called."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.detect_runs import (
    AVERAGE,
    BLOCKS,
    CONDITIONS,
    HARD,
    HELD,
    LAST,
    OFFSETS,
    PER_STEP,
    TOLERANCE,
    WIDE,
    Floats,
    Run,
    as_of,
    rng_of,
    simulate,
)  # fmt: skip
from benchmarks.detect_table import Row, at_most, quantiles
from service.detect import heldout
from service.detect.cache import LevelCache
from service.detect.findings import TRAIN
from service.detect.inputs import RunView, Series

TITLES = {
    CONDITIONS: "wander sd a 3.75th of the tolerance",
    OFFSETS: "the same with an offset of two thirds of it",
    HARD: "heavy tails, switching variance",
    WIDE: "wander beyond what is declared",
}


def looks(first: int) -> Iterator[int]:
    """Block counts at which held-out is asked after an alarm: each of the next 60, then 40 more up to the end."""
    yield from range(first + 1, min(first + 61, BLOCKS + 1))
    if first + 61 <= BLOCKS:
        yield from np.unique(np.geomspace(first + 61, BLOCKS, 40).astype(int)).tolist()


def heldout_answer(run: Run, blocks: int) -> str:
    """What held-out says when `blocks` blocks are complete."""
    known = run.held_steps <= LAST[blocks - 1]
    steps, values = run.held_steps[known], run.held[known]
    series = Series(steps, steps * PER_STEP, values)
    flat = Series(run.held_steps, run.held_steps * PER_STEP, np.zeros(len(run.held_steps)))
    view = RunView({HELD: series}, {HELD: flat}, {}, (), heldout=HELD)
    return heldout.find(view, as_of(run, blocks), TRAIN, LevelCache()).answer


def train_only_at(run: Run) -> int | None:
    """Blocks complete when train-only drift was first named; None: never."""
    for episode in run.train.episodes:
        if episode.side == "below":
            for blocks in looks(episode.alarm):
                if episode.end is not None and blocks > episode.end:
                    break
                if heldout_answer(run, blocks) == "flat":
                    return blocks
    return None


def average(run: Run) -> Floats:
    """The moving average of the gap over 10,000 steps, from the 20th block on."""
    total = np.cumsum(np.append(0.0, run.train.blocks.mean))
    return (total[AVERAGE:] - total[:-AVERAGE]) / AVERAGE


def healthy(names: tuple[str, ...], count: int) -> tuple[list[Row], list[float]]:
    """False alarms under these conditions, `count` runs in all; and each run's largest moving average."""
    rows: list[Row] = []
    peaks: list[float] = []
    alarms = train_only = total = 0
    most = {CONDITIONS: 200, OFFSETS: 200, HARD: 20}.get(names)
    per = -(-count // len(names))
    for condition in names:
        own = 0
        for i in range(per):
            run = simulate(rng_of(1, i, condition), condition)
            own += bool(run.train.episodes)
            train_only += train_only_at(run) is not None
            peaks.append(float(np.abs(average(run)).max()))
        rows.append(Row(f"  healthy, {condition}", "", f"{own} of {per}"))
        alarms, total = alarms + own, total + per
    bar = f"≤ 1 in {most}" if most else "reported, not barred"
    met = alarms * most <= total if most else None
    never = (train_only == 0) if most else None
    head = [
        Row(f"healthy runs, {TITLES[names]}: drift", bar, f"{alarms} of {total}", "", met),
        Row("  train-only drift in them", "0 in 1,000" if most else "", f"{train_only} of {total}", "", never),
    ]
    return [*head, *rows], peaks if names in (CONDITIONS, OFFSETS) else []


def lasting(size: float, count: int, threshold: float, offset: float = 0.0) -> list[Row]:
    """A drift that comes at once and stays."""
    delays: list[float] = []
    slow: list[float] = []
    for i in range(count):
        rng = rng_of(2, i, f"{size}{offset or ''}")
        at = int(rng.uniform(0.05, 0.9) * BLOCKS)
        sign = -1.0 if i % 2 else 1.0
        run = simulate(
            rng, CONDITIONS[i % len(CONDITIONS)], offset + np.where(np.arange(BLOCKS) >= at, sign * size, 0.0)
        )
        found = [e.alarm for e in run.train.episodes if e.alarm >= at and e.side == ("below" if sign < 0 else "above")]
        if found:
            delays.append(100.0 * (min(found) - at + 1) / BLOCKS)
        over = np.flatnonzero(sign * average(run)[max(at - AVERAGE, 0) :] >= threshold)
        if len(over):
            slow.append(100.0 * (over[0] + 1) / BLOCKS)
    beside = f" beside an offset of {offset}" if offset else ""
    barred = size >= 2 * TOLERANCE
    met = len(delays) == count and max(delays) <= 2.0 and at_most(delays, 50, 0.2)
    return [Row(
        f"drift of {size} nats{beside}: found; % of the run, median / p95 / max",
        "100 %; median ≤ 0.2, all ≤ 2" if barred else "",
        f"{len(delays)} of {count}: {quantiles(delays, 50, 95, 100)}",
        f"{len(slow)} of {count}: {quantiles(slow, 50, 95, 100)}",
        met if barred else None,
    )]  # fmt: skip


def train_only(size: float, count: int, threshold: float) -> list[Row]:
    """A drift of the train loss alone; the moving average beside it says that something moved, never what."""
    delays: list[float] = []
    slow: list[float] = []
    called_gain = unresolved = 0
    for i in range(count):
        rng = rng_of(3, i, f"{size}")
        at = int(rng.uniform(0.05, 0.9) * BLOCKS)
        run = simulate(rng, CONDITIONS[i % len(CONDITIONS)], np.where(np.arange(BLOCKS) >= at, -size, 0.0))
        named = train_only_at(run)
        if named is not None and named > at:
            delays.append(100.0 * (named - at) / BLOCKS)
        elif run.train.open is not None:
            called_gain += heldout_answer(run, BLOCKS) == "follows"
            unresolved += heldout_answer(run, BLOCKS) == "cannot tell"
        over = np.flatnonzero(average(run)[max(at - AVERAGE, 0) :] <= -threshold)
        if len(over):
            slow.append(100.0 * (over[0] + 1) / BLOCKS)
    barred = size >= 0.05
    met = len(delays) >= 0.99 * count and at_most(delays, 95, 2.0)
    return [Row(
        f"train-only drift of {size} nats: named; % of the run, median / p95", "≥ 99 %; p95 ≤ 2" if barred else "",
        f"{len(delays)} of {count}: {quantiles(delays, 50, 95)}; unresolved {unresolved}, called a gain {called_gain}",
        f"{len(slow)} of {count} unnamed: {quantiles(slow, 50, 95)}", met if barred else None,
    )]  # fmt: skip


def incident(count: int, threshold: float) -> list[Row]:
    """The incident: a linear ramp of the train loss down to -0.25 nats over 30 % of the run."""
    at_alarm: list[float] = []
    at_name: list[float] = []
    beside: list[float] = []
    for i in range(count):
        rng = rng_of(4, i, "ramp")
        at = int(rng.uniform(0.05, 0.6) * BLOCKS)
        ramp = -0.25 * np.clip((np.arange(BLOCKS) - at) / (0.3 * BLOCKS), 0.0, 1.0)
        run = simulate(rng, CONDITIONS[i % len(CONDITIONS)], ramp)
        alarm = min((e.alarm for e in run.train.episodes if e.side == "below"), default=None)
        named = train_only_at(run)
        if alarm is not None:
            at_alarm.append(float(-ramp[alarm]))
        if named is not None:
            at_name.append(float(-ramp[named - 1]))
        over = np.flatnonzero(average(run) <= -threshold)
        if len(over):
            beside.append(float(-ramp[over[0] + AVERAGE - 1]))
    return [
        Row("incident, ramp to 0.25 over 30 %: gap at the drift alert, median / p95", "median ≤ 0.02",
            f"{len(at_alarm)} of {count}: {quantiles(at_alarm, 50, 95)}",
            f"{len(beside)} of {count}: {quantiles(beside, 50, 95)}", at_most(at_alarm, 50, 0.02)),
        Row("  gap when train-only drift is named, median / p95", "median ≤ 0.04",
            f"{len(at_name)} of {count}: {quantiles(at_name, 50, 95)}", "never named", at_most(at_name, 50, 0.04)),
    ]  # fmt: skip


def shard_growth(count: int, threshold: float) -> list[Row]:
    """Double-shard growth: a slow ramp before the first restart, a step at each of three restarts."""
    at_alarm: list[float] = []
    named_at: list[float] = []
    beside: list[float] = []
    block = np.arange(BLOCKS)
    for i in range(count):
        rng = rng_of(10, i, "growth")
        at = int(rng.uniform(0.05, 0.3) * BLOCKS)
        restarts = np.sort(rng.uniform(at + 0.1 * BLOCKS, 0.95 * BLOCKS, 3)).astype(int)
        gap = -0.03 * np.clip((block - at) / (restarts[0] - at), 0.0, 1.0)
        gap = gap - 0.06 * (block[:, None] >= restarts).sum(axis=1)
        run = simulate(rng, CONDITIONS[i % len(CONDITIONS)], gap, follow=-0.3)
        alarm = min((e.alarm for e in run.train.episodes if e.side == "below"), default=None)
        named = train_only_at(run)
        if alarm is not None:
            at_alarm.append(float(-gap[alarm]))
        if named is not None:
            named_at.append(float(-gap[named - 1]))
        over = np.flatnonzero(average(run) <= -threshold)
        if len(over):
            beside.append(float(-gap[over[0] + AVERAGE - 1]))
    return [Row(
        "double-shard growth, held-out rising: gap at the drift alert / at train-only drift, medians", "",
        f"{len(at_alarm)} and {len(named_at)} of {count}: {quantiles(at_alarm, 50)} / {quantiles(named_at, 50)}",
        f"{len(beside)} of {count}: {quantiles(beside, 50)}",
    )]  # fmt: skip


def improvement(count: int) -> list[Row]:
    """A gain that held-out follows, and memorization: is either taken for the other?"""
    wrong = unresolved = found = 0
    for i in range(count):
        rng = rng_of(5, i, "gain")
        at = int(rng.uniform(0.05, 0.9) * BLOCKS)
        size = float(rng.choice([0.03, 0.05, 0.10]))
        gain = np.where(np.arange(BLOCKS) >= at, -size, 0.0)
        run = simulate(rng, CONDITIONS[i % len(CONDITIONS)], gain, follow=float(rng.uniform(0.6, 1.0)))
        wrong += train_only_at(run) is not None
        if run.train.open is not None:
            answer = heldout_answer(run, BLOCKS)
            unresolved += answer == "cannot tell"
            found += answer == "follows"
    return [Row("improvement (held-out follows by 0.6 to 1) called train-only", "0 in 1,000", f"{wrong} of {count}",
                f"followed {found}, unresolved {unresolved} at the end", wrong == 0)]  # fmt: skip


def memorization(count: int) -> list[Row]:
    """The reverse: memorization called a gain."""
    wrong = 0
    for i in range(count):
        rng = rng_of(6, i, "memory")
        at = int(rng.uniform(0.05, 0.9) * BLOCKS)
        run = simulate(rng, CONDITIONS[i % len(CONDITIONS)],
                       np.where(np.arange(BLOCKS) >= at, -float(rng.choice([0.05, 0.10])), 0.0))  # fmt: skip
        episode = run.train.open
        wrong += episode is not None and any(heldout_answer(run, b) == "follows" for b in looks(episode.alarm))
    return [Row("memorization called an improvement", "0 in 1,000", f"{wrong} of {count}", "", wrong == 0)]
