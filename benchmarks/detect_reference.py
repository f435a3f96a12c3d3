"""What a thinned reference shows, block statistics against full resolution, and what judging costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.detect_runs import (
    BLOCK,
    BLOCKS,
    DECLARED,
    HELD,
    LAST,
    NOISE,
    PER_STEP,
    STEPS,
    TOLERANCE,
    Floats,
    rng_of,
    wander,
)  # fmt: skip
from benchmarks.detect_table import Row, quantiles
from service.compare.align import Level, align, level
from service.compare.gap import Blocks, block_gaps
from service.detect.cache import LevelCache
from service.detect.engine import evaluate
from service.detect.findings import TRAIN
from service.detect.gaps import judge_blocks
from service.detect.inputs import RunView, Segment, Series
from service.detect.offset import place_of
from service.detect.replay import prefix
from service.detect.visible import visible_gaps

SHIPPED = Path(__file__).parents[1] / "service/references/bundles/olmo3-7b/series/stage1.csv"
EVERY = 25  # steps between the logged points of the simulated run beside the thinned reference
EDGE = 50  # steps after which the rules look at a dense log again


def shipped() -> Series:
    """The train loss of the shipped `olmo3-7b` reference."""
    rows = pd.read_csv(SHIPPED)
    rows = rows[rows["metric"] == TRAIN].drop_duplicates("step", keep="last").sort_values("step")
    steps = rows["step"].to_numpy("int64")
    return Series(steps, steps * PER_STEP, rows["value"].to_numpy("float64"))


WINDOWS = (*range(0, 50, 5), 49)


def needed_gaps(first: int, last: int) -> Floats:
    """The smallest gaps that runs number `first` to `last` - 1 need, (runs, windows), each beside a reference that is
    simulated at the shipped one's steps."""
    real = shipped()
    late = real.steps > 2_000
    fit = np.polynomial.Polynomial.fit(np.log(real.steps[late]), real.values[late], 10)

    def truth(steps: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Floats:
        return np.asarray(fit(np.log(np.maximum(steps, 2_000))), np.float64)

    stated = visible_gaps(level(real, "noisy"), DECLARED, PER_STEP)
    assert stated is not None
    at = np.arange(EVERY, STEPS, EVERY)
    needed = np.zeros((last - first, len(WINDOWS)))
    for row, number in enumerate(range(first, last)):
        rng = rng_of(13, number, "visible")
        reference = level(
            Series(real.steps, real.tokens, truth(real.steps) + rng.normal(0.0, NOISE, len(real))), "noisy"
        )
        noise = NOISE / np.sqrt(EVERY)  # of a block mean as if every step were logged
        run = Series(at, at * PER_STEP, truth(at) + rng.normal(0.0, noise, len(at)))
        blocks = block_gaps(align(run, reference), BLOCK)
        blocks = replace(blocks, mean=blocks.mean + wander(rng, TOLERANCE / 3.75)[: len(blocks)])
        place = place_of(blocks, reference.points)
        for k, window in enumerate(WINDOWS):
            inside = (place > stated.start[window]) & (place <= stated.end[window])
            needed[row, k] = least_gap(blocks, inside, reference)
    return needed


def visible_rows(parts: Sequence[Floats]) -> list[Row]:
    """The smallest gaps that are stated beside the shipped reference, against those that simulated runs need."""
    stated = visible_gaps(level(shipped(), "noisy"), DECLARED, PER_STEP)
    assert stated is not None
    needed = np.concatenate(parts)
    rows: list[Row] = []
    for k, window in enumerate(WINDOWS):
        found = float(np.median(needed[:, k]))
        ratio = stated.half[window] / found
        rows.append(Row(
            f"shipped reference, {stated.start[window]:.0%} to {stated.end[window]:.0%}: smallest gap",
            "right within 20 %", f"{stated.half[window]:.4f} stated, {found:.4f} simulated, ratio {ratio:.2f}",
            f"{stated.points[window]} reference points", abs(ratio - 1.0) <= 0.2,
        ))  # fmt: skip
    return rows


def least_gap(blocks: Blocks, inside: np.ndarray[tuple[int], np.dtype[np.bool_]], reference: Level) -> float:
    """The least gap through the marked blocks that is found before they end."""
    first, end = int(np.flatnonzero(inside)[0]), int(np.flatnonzero(inside)[-1]) + 1
    cut = Blocks(*(getattr(blocks, f.name)[:end] for f in fields(Blocks)))
    low, high = 0.0, 0.3
    for _ in range(9):
        gap = (low + high) / 2.0
        judged = judge_blocks(replace(cut, mean=cut.mean - gap * inside[:end]), DECLARED, reference.points)
        found = any(e.side == "below" and e.alarm >= first for e in judged.episodes)
        low, high = (low, gap) if found else (gap, high)
    return high


def full_resolution(first: int, last: int) -> tuple[int, list[float]]:
    """Runs number `first` to `last` - 1 of 1.41M single steps: healthy alarms, and per drift of 0.03 nats that is found
    the % of the run until then."""
    alarms, delays = 0, list[float]()
    steps = np.arange(1, STEPS + 1)
    for i in range(first, last):
        rng = rng_of(14, i, "full")
        reference = Series(steps, steps * PER_STEP, rng.normal(2.0, NOISE, STEPS))
        slow = np.repeat(wander(rng, TOLERANCE / 3.75), BLOCK)
        slow = np.append(slow, np.full(STEPS - len(slow), slow[-1]))
        offset = TOLERANCE * 2.0 / 3.0 * (0.0, 1.0, -1.0)[i % 3]
        values = rng.normal(2.0, NOISE, STEPS) + slow + offset
        base = level(reference, "noisy")

        def judged(values: Floats, base: Level = base) -> list[tuple[str, int]]:
            run = Series(steps, steps * PER_STEP, values)
            return [(e.side, e.alarm) for e in judge_blocks(block_gaps(align(run, base), BLOCK), DECLARED,
                                                            base.points).episodes]  # fmt: skip

        alarms += bool(judged(values))
        at = int(rng.uniform(0.05, 0.9) * STEPS)
        sunk = [alarm for side, alarm in judged(values - 0.03 * (steps > at)) if side == "below"]
        if sunk:
            delays.append(100.0 * (LAST[min(sunk)] - at) / STEPS)
    return alarms, delays


def full_rows(parts: Sequence[tuple[int, list[float]]], count: int) -> list[Row]:
    """The rows of all parts together."""
    alarms, delays = sum(a for a, _ in parts), [d for _, more in parts for d in more]
    good = len(delays) == count and max(delays) <= 2.0 and float(np.median(delays)) <= 0.2
    return [
        Row("full resolution, a third each without and with offset: drift", "as by blocks", f"{alarms} of {count}", "",
            alarms == 0),
        Row("  drift of 0.03 nats: found; % of the run, median / p95 / max", "as by blocks",
            f"{len(delays)} of {count}: {quantiles(delays, 50, 95, 100)}", "", good),
    ]  # fmt: skip


def cost() -> list[Row]:
    """CPU time of this process, so that other work on the machine does not count."""
    rng = rng_of(9, 0, "cost")
    steps = np.arange(1, STEPS + 1)
    tokens = steps * PER_STEP
    evaluations = np.arange(1_000, STEPS, 1_000)

    def run(seed: float) -> dict[str, Series]:
        return {
            TRAIN: Series(steps, tokens, 2.0 + rng.normal(seed, NOISE, STEPS)),
            HELD: Series(evaluations, evaluations * PER_STEP, 2.6 + rng.normal(seed, 0.002, len(evaluations))),
            "optim/learning_rate": Series(steps, tokens, np.full(STEPS, 3e-4)),
            "throughput/tokens_per_second_per_device": Series(steps, tokens, rng.normal(1e4, 50.0, STEPS)),
        }

    view = RunView(run(0.0), run(0.0), {TRAIN: DECLARED}, [Segment(0, 0.0, 64), Segment(700_000, 1.0, 64)],
                   heldout=HELD)  # fmt: skip
    known = LevelCache()
    evaluate(view, known)
    base = known.get(TRAIN, view.reference[TRAIN])
    backtest = least(3, lambda: judge_blocks(block_gaps(align(view.metrics[TRAIN], base), BLOCK), DECLARED, tokens))
    per_block = backtest / BLOCKS
    once = least(3, lambda: evaluate(view, known.of_a_run()))
    first = least(2, lambda: evaluate(view, LevelCache()))
    rows = [
        Row("drift charts, a whole run of 1.4M steps", "≤ 0.1 ms per block", f"{per_block * 1e3:.3f} ms", "",
            per_block <= 1e-4),
        Row("all rules, a run of 1.4M steps once, its reference known", "≤ 0.3 s", f"{once:.2f} s", "", once <= 0.3),
        Row("  nothing known of the reference either", "", f"{first:.2f} s"),
    ]  # fmt: skip
    for steps_more, which in ((EDGE, "50"), (BLOCK, "500")):
        last = STEPS // BLOCK * BLOCK
        grown = [prefix(view, last - steps_more * k) for k in range(30, 0, -1)]
        rows.append(_one_more(f"all rules, {which} steps more, arrays that only grew", grown, known))
    copied = [replace(v, metrics={m: Series(s.steps.copy(), s.tokens.copy(), s.values.copy())
                                  for m, s in v.metrics.items()}) for v in grown[:6]]  # fmt: skip
    rows.append(_one_more("all rules, 500 steps more, other arrays that begin alike", copied, known))
    return rows


def _one_more(what: str, views: Sequence[RunView], known: LevelCache) -> Row:
    """The cost of each further view of one run, as the worker judges it."""
    kept = known.of_a_run()
    evaluate(views[0], kept)
    spent = cpu(lambda: [evaluate(view, kept) for view in views[1:]]) / (len(views) - 1)
    return Row(what, "≤ 1 ms", f"{spent * 1e3:.2f} ms", "", spent <= 1e-3)


def least(times: int, call: Callable[[], object]) -> float:
    """Seconds of CPU that the cheapest of so many calls takes."""
    return min(cpu(call) for _ in range(times))


def cpu(call: Callable[[], object]) -> float:
    """Seconds of CPU that a call takes."""
    start = time.process_time()
    call()
    return time.process_time() - start
