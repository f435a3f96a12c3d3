"""The rules beside drift, on simulated runs: false alarms on healthy ones, and what each is there to find."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.detect_runs import (
    BLOCKS,
    CONDITIONS,
    DECLARED,
    HELD,
    LAST,
    OFFSETS,
    PER_STEP,
    STEPS,
    Floats,
    Run,
    as_of,
    rng_of,
    simulate,
)  # fmt: skip
from benchmarks.detect_table import Row, quantiles
from service.detect.cache import LevelCache
from service.detect.findings import TRAIN, Findings
from service.detect.inputs import RunView, Segment, Series, Tolerance
from service.detect.rules import definition_changed, evaluation_changed, heldout_regression, improvement, plateau

RULES = (heldout_regression, improvement, evaluation_changed, definition_changed, plateau)
DECLARED_HELD = Tolerance(0.005, "assumed at 7B scale", 0, 0.002)
RESTARTS = tuple(int(s) for s in np.linspace(0.02, 0.98, 35) * STEPS)
LOOKS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0)


def findings(run: Run, blocks: int, reference: Series, cache: LevelCache) -> Findings:
    """What the rules share, from block statistics as they stood when `blocks` were complete."""
    known = run.held_steps <= LAST[blocks - 1]
    steps = run.held_steps[known]
    held = Series(steps, steps * PER_STEP, run.held[known])
    flat = Series(run.held_steps, run.held_steps * PER_STEP, np.zeros(len(run.held_steps)))
    at = LAST[:blocks].astype(np.int64)
    noise = np.random.default_rng(0).normal(0.0, 0.0255, len(at))  # batches of its own
    train = Series(at, at * PER_STEP, np.interp(at, reference.steps, reference.values) + noise)
    view = RunView(
        {TRAIN: train, HELD: held}, {TRAIN: reference, HELD: flat}, {TRAIN: DECLARED, HELD: DECLARED_HELD},
        [Segment(0, 0.0, 1), *(Segment(s, 1.0, 1) for s in RESTARTS if s < LAST[blocks - 1])], heldout=HELD,
    )  # fmt: skip
    found = Findings(view, cache)
    found.__dict__["train"] = as_of(run, blocks)  # the cached property's own place
    return found


def curve() -> Series:
    """A 7B-like train loss at the blocks' ends."""
    at = LAST.astype(np.int64)
    return Series(at, at * PER_STEP, 2.0 + 0.9 * (at / 10_000.0 + 1.0) ** -0.35)


def said(run: Run, looks: Sequence[int], reference: Series, cache: LevelCache) -> set[str]:
    """Rules that say yes at one of the looks."""
    yes: set[str] = set()
    for blocks in looks:
        shared = findings(run, blocks, reference, cache)
        yes |= {rule.RULE for rule in RULES if rule.judge(shared).state == "yes"}
    return yes


FAULTS = (
    (heldout_regression.RULE, 0.03, 1.0),
    (improvement.RULE, -0.05, 0.9),
    (evaluation_changed.RULE, 0.0, 0.05),
    (definition_changed.RULE, 0.05, 0.0),
)


def quiet(first: int, last: int) -> dict[str, int]:
    """Of the healthy runs number `first` to `last` - 1, how many each rule says yes about, asked at ten places."""
    reference, cache = curve(), LevelCache()
    looks = [max(int(share * BLOCKS), 30) for share in LOOKS]
    alarms = dict.fromkeys((rule.RULE for rule in RULES), 0)
    conditions = CONDITIONS + OFFSETS
    for i in range(first, last):
        condition = conditions[i % len(conditions)]
        for name in said(simulate(rng_of(11, i, condition), condition), looks, reference, cache):
            alarms[name] += 1
    return alarms


def quiet_rows(parts: Sequence[dict[str, int]], count: int) -> list[Row]:
    """The rows of all parts together."""
    return [
        Row(f"healthy, 35 restarts, asked at ten places: {name}", "0 in 1,000",
            f"{sum(part[name] for part in parts)} of {count}", "", not any(part[name] for part in parts))
        for name in parts[0]
    ]  # fmt: skip


def faults(count: int) -> list[Row]:
    """What each of these rules is there to find: found, and after how much of the run."""
    reference, cache = curve(), LevelCache()
    rows: list[Row] = []
    for name, train, held in FAULTS:
        delays: list[float] = []
        others = 0
        for i in range(count):
            at = int(np.searchsorted(LAST, RESTARTS[3 + i % 28])) + 1
            step = np.where(np.arange(BLOCKS) >= at, 1.0, 0.0)
            run = shifted(simulate(rng_of(12, i, name), "white", train * step, 0.0 if train == 0.0 else held),
                          held if train == 0.0 else 0.0, at)  # fmt: skip
            yes: set[str] = set()
            for blocks in range(at + 4, min(at + 61, BLOCKS + 1), 4):
                yes |= said(run, [blocks], reference, cache)
                if name in yes:
                    delays.append(100.0 * (blocks - at) / BLOCKS)
                    break
            others += bool(yes - {name})
        what = f"train {train:+.2f}, held-out {held if train == 0.0 else train * held:+.3f} at a restart: {name}"
        rows.append(Row(f"{what}; % of the run, median / p95", "≥ 99 %",
                        f"{len(delays)} of {count}: {quantiles(delays, 50, 95)}; another rule as well {others}", "",
                        len(delays) >= 0.99 * count))  # fmt: skip
    return rows


def shifted(run: Run, size: float, at: int) -> Run:
    """The same run with its held-out loss moved alone, from block `at` on."""
    moved: Floats = run.held + np.where(run.held_steps > LAST[at - 1], size, 0.0)
    return Run(run.train, run.held_steps, moved)
