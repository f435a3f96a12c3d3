"""How well the alert rules do, on simulated 1.41M-step runs: `python -m benchmarks.detect [--quick]`.

Block statistics (500 steps a block) of runs beside a per-step reference at 7B scale: step noise sd 0.0255, tolerance
0.015, healthy wander of sd tolerance / 3.75 that lasts some 3,000 steps, held-out sd 0.002 every 1,000 steps. Beside it
stands a threshold on a moving average over 10,000 steps, calibrated to the same false alarms. Seeds 0 to 99 were used
while tuning; the table comes from REPORT_SEEDS, which were not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from service.compare.align import align, level
from service.compare.gap import Blocks, block_gaps
from service.detect import heldout, rows
from service.detect.findings import TRAIN
from service.detect.gaps import DriftEpisode, LevelCache, TrainGap, judge_blocks
from service.detect.inputs import RowReadings, RunView, Series, Tolerance

Floats = NDArray[np.float64]

REPORT_SEEDS = (7001, 7002, 7003)
STEPS, BLOCK, PER_STEP = 1_413_814, 500, 4_194_304.0
BLOCKS = STEPS // BLOCK
NOISE, TOLERANCE, EVALUATION = 0.0255, 0.015, 0.002
SE = NOISE * float(np.sqrt(2.0 / BLOCK))
HELD = "heldout/c4_en/ce_loss"
AVERAGE = 20  # blocks under the moving average
LAST = BLOCK * (np.arange(BLOCKS) + 1)
DECLARED = Tolerance(TOLERANCE, "assumed, 0.015 nats at 7B scale", 0, NOISE, BLOCK)
ENDS = np.array([1.0, float(STEPS)]) * PER_STEP
CONDITIONS = ("white", "ar1", "early transient", "missing data", "other seed")
HARD = ("t3", "switching variance")


@dataclass(frozen=True)
class Run:
    """One simulated run: its judged blocks and the gaps of its held-out evaluations."""

    train: TrainGap
    held_steps: NDArray[np.int64]
    held: Floats


def wander(rng: np.random.Generator, sd: float) -> Floats:
    """A healthy run's slow wander: AR(1) over blocks, 0.85 from one to the next."""
    kicks = rng.normal(0.0, sd * np.sqrt(1 - 0.85**2), BLOCKS)
    out = np.empty(BLOCKS)
    out[0] = rng.normal(0.0, sd)
    for i in range(1, BLOCKS):
        out[i] = 0.85 * out[i - 1] + kicks[i]
    return out


def simulate(
    rng: np.random.Generator, condition: str, train: Floats | float = 0.0, follow: float = 0.0, every: int = 1000
) -> Run:
    """`train`: gap added per block; held-out follows it by the share `follow`."""
    slow = wander(rng, TOLERANCE / 3.75)
    se = np.full(BLOCKS, SE)
    noise = rng.normal(0.0, SE, BLOCKS)
    if condition == "ar1":
        se, noise = se * np.sqrt(1.5), noise * np.sqrt(1.5)  # lag-one autocorrelation 0.2, allowed for in se
    elif condition == "early transient":
        slow += 0.03 * np.exp(-LAST / 5_000.0)
    elif condition == "missing data":
        share = np.where(rng.random(BLOCKS) < 0.1, 0.1, 1.0)
        se, noise = se / np.sqrt(share), noise / np.sqrt(share)
    elif condition == "other seed":
        slow += rng.normal(0.0, 0.0015)
    elif condition == "t3":
        noise = rng.standard_t(3, (BLOCKS, 40)).mean(axis=1) * SE * np.sqrt(40 / 3.0)
    elif condition == "switching variance":
        factor = np.where((np.arange(BLOCKS) // 50) % 4 == 3, 3.0, 1.0)
        noise, se = noise * factor, se * np.roll(factor, 10)  # the estimate lags by half its memory
    mean = slow + noise + train
    steps = LAST.astype(np.int64)
    blocks = Blocks(
        steps - BLOCK + 1, steps, (steps - BLOCK + 1) * PER_STEP, steps * PER_STEP, mean, se,
        np.full(BLOCKS, BLOCK), np.full(BLOCKS, BLOCK),
    )  # fmt: skip
    held_steps = np.arange(every, STEPS, every)
    change = np.interp(held_steps, LAST, np.broadcast_to(train, BLOCKS)) * follow
    held = change + np.interp(held_steps, LAST, slow) * 0.5 + rng.normal(0.0, EVALUATION * np.sqrt(2), len(held_steps))
    jumps = rng.random(len(held_steps)) < 0.02
    held = held + np.where(jumps, 0.011, 0.0)
    return Run(judge_blocks(blocks, DECLARED, ENDS), held_steps, held)


def as_of(run: Run, blocks: int) -> TrainGap:
    """The judged blocks as they stood when `blocks` were complete (judge_blocks is causal; tests hold it to that)."""
    train = run.train
    cut = Blocks(*(getattr(train.blocks, name)[:blocks] for name in Blocks.__slots__))
    known: list[DriftEpisode] = []
    for episode in train.episodes:
        if episode.alarm < blocks:
            known.append(replace(episode, end=None) if episode.end is not None and episode.end >= blocks else episode)
    known.sort(key=lambda e: (e.end is None, e.from_own_offset if e.end is None else False, e.alarm))
    return TrainGap(cut, train.tolerance, train.limit[:blocks], train.sd[:blocks], train.offset, known)


def looks(first: int) -> Iterator[int]:
    """Block counts at which held-out is asked after an alarm: each of the next 60, then 40 more up to the end."""
    yield from range(first + 1, min(first + 61, BLOCKS + 1))
    if first + 61 <= BLOCKS:
        yield from np.unique(np.geomspace(first + 61, BLOCKS, 40).astype(int)).tolist()


def heldout_answer(run: Run, blocks: int) -> str:
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


def first_alarm(run: Run, side: str | None = None) -> int | None:
    found = [e.alarm for e in run.train.episodes if side is None or e.side == side]
    return min(found, default=None)


def average(run: Run) -> Floats:
    total = np.cumsum(np.append(0.0, run.train.blocks.mean))
    return (total[AVERAGE:] - total[:-AVERAGE]) / AVERAGE


def line(name: str, bar: str, measured: str, beside: str = "") -> None:
    print(f"{name:<58} {bar:<34} {measured:<42} {beside}", flush=True)


def quantiles(values: Sequence[float], *at: float) -> str:
    return " / ".join(f"{np.percentile(values, q):,.4g}" for q in at) if values else "none"


def healthy(count: int) -> float:
    """Prints the false alarms; answers the moving average's threshold with at most 1 in 200 false alarms."""
    peaks: list[float] = []
    for names, bar in ((CONDITIONS, "≤ 1 in 200"), (HARD, "≤ 1 in 20")):
        alarms = train_only = total = 0
        for condition in names:
            for i in range(count // len(names)):
                run = simulate(rng_of(1, i, condition), condition)
                total += 1
                alarms += bool(run.train.episodes)
                train_only += train_only_at(run) is not None
                if names is CONDITIONS:
                    peaks.append(float(np.abs(average(run)).max()))
        line(f"healthy, {', '.join(names)}: drift", bar, f"{alarms} in {total}")
        line("  … train-only drift", "0 in 1,000", f"{train_only} in {total}")
    return float(np.percentile(peaks, 99.5))


def steps_of_drift(size: float, threshold: float, count: int) -> None:
    delays: list[float] = []
    slow: list[float] = []
    missed = 0
    for i in range(count):
        rng = rng_of(2, i, f"{size}")
        at = int(rng.uniform(0.05, 0.9) * BLOCKS)
        sign = -1.0 if i % 2 else 1.0
        run = simulate(rng, CONDITIONS[i % len(CONDITIONS)], np.where(np.arange(BLOCKS) >= at, sign * size, 0.0))
        found = [e.alarm for e in run.train.episodes if e.alarm >= at and e.side == ("below" if sign < 0 else "above")]
        if not found:
            missed += 1
        else:
            delays.append(100.0 * (min(found) - at + 1) / BLOCKS)
        over = np.flatnonzero(sign * average(run)[max(at - AVERAGE, 0) :] >= threshold)
        if len(over):
            slow.append(100.0 * (over[0] + 1) / BLOCKS)
    line(
        f"drift of {size} nats: % of the run until found, median / max",
        "100 %; ≤ 0.2 / ≤ 2" if size >= 2 * TOLERANCE else "",
        f"{count - missed} of {count}: {quantiles(delays, 50, 100)}",
        f"moving average {len(slow)} of {count}: {quantiles(slow, 50, 100)}",
    )


def train_only(size: float, count: int) -> None:
    delays: list[float] = []
    for i in range(count):
        rng = rng_of(3, i, f"{size}")
        at = int(rng.uniform(0.05, 0.9) * BLOCKS)
        run = simulate(rng, CONDITIONS[i % len(CONDITIONS)], np.where(np.arange(BLOCKS) >= at, -size, 0.0))
        named = train_only_at(run)
        if named is not None and named > at:
            delays.append(100.0 * (named - at) / BLOCKS)
    line(
        f"train-only drift of {size} nats: % of the run, median / p95", "≥ 99 %; p95 ≤ 2",
        f"{len(delays)} of {count}: {quantiles(delays, 50, 95)}",
    )  # fmt: skip


def incident(count: int, threshold: float) -> None:
    at_alarm: list[float] = []
    at_name: list[float] = []
    beside: list[float] = []
    for i in range(count):
        rng = rng_of(4, i, "ramp")
        at = int(rng.uniform(0.05, 0.6) * BLOCKS)
        ramp = -0.25 * np.clip((np.arange(BLOCKS) - at) / (0.3 * BLOCKS), 0.0, 1.0)
        run = simulate(rng, CONDITIONS[i % len(CONDITIONS)], ramp)
        alarm, named = first_alarm(run, "below"), train_only_at(run)
        if alarm is not None:
            at_alarm.append(float(-ramp[alarm]))
        if named is not None:
            at_name.append(float(-ramp[named - 1]))
        over = np.flatnonzero(average(run) <= -threshold)
        if len(over):
            beside.append(float(-ramp[over[0] + AVERAGE - 1]))
    line(
        "incident, ramp to 0.25 over 30 %: gap at the drift alert", "median ≤ 0.02",
        f"{len(at_alarm)} of {count}: {quantiles(at_alarm, 50)}", f"moving average {quantiles(beside, 50)}",
    )  # fmt: skip
    line(
        "  … gap when train-only drift is named",
        "median ≤ 0.04",
        f"{len(at_name)} of {count}: {quantiles(at_name, 50)}",
    )


def improvement(count: int) -> None:
    wrong = unresolved = 0
    for i in range(count):
        rng = rng_of(5, i, "gain")
        at = int(rng.uniform(0.05, 0.9) * BLOCKS)
        size = float(rng.choice([0.03, 0.05, 0.10]))
        gain = np.where(np.arange(BLOCKS) >= at, -size, 0.0)
        run = simulate(rng, CONDITIONS[i % len(CONDITIONS)], gain, follow=float(rng.uniform(0.6, 1.0)))
        wrong += train_only_at(run) is not None
        unresolved += run.train.open is not None and heldout_answer(run, BLOCKS) == "cannot tell"
    line("improvement (held-out follows by 0.6 to 1) called train-only", "0 in 1,000", f"{wrong} in {count}",
         f"unresolved at the end: {unresolved}")  # fmt: skip
    wrong = 0
    for i in range(count // 10):
        rng = rng_of(6, i, "memory")
        at = int(rng.uniform(0.05, 0.9) * BLOCKS)
        run = simulate(rng, "white", np.where(np.arange(BLOCKS) >= at, -float(rng.choice([0.05, 0.10])), 0.0))
        episode = run.train.open
        wrong += episode is not None and any(heldout_answer(run, b) == "follows" for b in looks(episode.alarm))
    line("  … memorization called an improvement", "0 in 1,000", f"{wrong} in {count // 10}")


def repeats(share: float, count: int) -> None:
    delays: list[float] = []
    for i in range(count):
        rng = rng_of(7, i, f"{share}")
        before, after = 20_000, int(20 / share) + 200
        at = np.repeat(np.arange(3 * (before + after)), rng.poisson(0.5, 3 * (before + after)))[: before + after]
        hashes = rng.integers(0, 2**63, before + after).astype(np.uint64)
        again = np.flatnonzero(rng.random(after) < share) + before
        hashes[again] = hashes[rng.permutation(before)[: len(again)]]
        seen = np.arange(int(at[-1]) + 1)
        found = rows.find(
            view_of(RowReadings(at, np.zeros(len(at), np.int64), hashes, 1024, seen, np.full(len(seen), 512)))
        )
        assert found is not None
        if found.episode is not None:
            delays.append(float(at[found.episode.alarm] - at[again[0]]))
    bar = {1.0: "median ≤ 12, p95 ≤ 20", 0.01: "median ≤ 1,000, p95 ≤ 2,000"}.get(share, "")
    line(f"repeats, share {share}: steps from first repeat, median / p95", bar,
         f"{len(delays)} of {count}: {quantiles(delays, 50, 95)}")  # fmt: skip


def twins(count: int) -> None:
    alarms = 0
    for i in range(count):
        rng = rng_of(8, i, "twins")
        n = 707_000
        hashes = rng.integers(0, 2**63, n).astype(np.uint64)
        natural = rng.permutation(n)[: int(1e-4 * n)]
        hashes[natural] = hashes[(natural * rng.random(len(natural))).astype(np.int64)]
        if i % 2:  # one cluster of 1,000 equal rows among the sampled hashes
            hashes[rng.permutation(n)[:1000]] = np.uint64(1)
        at = np.arange(n) * 2
        found = rows.find(view_of(RowReadings(at, np.zeros(n, np.int64), hashes, 1024, at, np.full(n, 1024))))
        alarms += found is not None and found.episode is not None
    line("clean runs with natural twins at 1e-4, half with a cluster", "0 in 200", f"{alarms} in {count}")


def view_of(readings: RowReadings) -> RunView:
    return RunView({}, {}, {}, (), rows=readings)


def cost() -> None:
    rng = rng_of(9, 0, "cost")
    steps = np.arange(1, STEPS + 1)
    tokens = steps * PER_STEP
    reference = Series(steps, tokens, 2.0 + rng.normal(0.0, NOISE, STEPS))
    run = Series(steps, tokens, 2.0 + rng.normal(0.0, NOISE, STEPS))
    placed = level(reference, "noisy")
    timed: list[tuple[str, Callable[[], object]]] = [
        ("place the run beside the reference", lambda: align(run, placed)),
        ("block means", lambda: block_gaps(align(run, placed), BLOCK)),
    ]
    blocks = block_gaps(align(run, placed), BLOCK)
    timed.append(("sequential test of all blocks", lambda: judge_blocks(blocks, DECLARED, tokens)))
    for name, call in timed:
        best = min(clock(call) for _ in range(3))
        line(f"cost, 1.4M steps: {name}", "", f"{best * 1e3:.1f} ms, {best / BLOCKS * 1e3:.4f} ms per block")
    whole = min(clock(lambda: judge_blocks(block_gaps(align(run, placed), BLOCK), DECLARED, tokens)) for _ in range(3))
    line(
        "cost, backtest in all (reference smoothed before)",
        "≤ 0.1 ms per block",
        f"{whole / BLOCKS * 1e3:.4f} ms per block",
    )


def clock(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def rng_of(table: int, index: int, name: str) -> np.random.Generator:
    seed = REPORT_SEEDS[index % len(REPORT_SEEDS)]
    return np.random.default_rng([seed, table, index, *name.encode()])


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table. Exit status 0; the numbers are for reading, no bar is enforced here."""
    parser = argparse.ArgumentParser(prog="benchmarks detect", description="The alert rules against their bars.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    options = parser.parse_args(argv)
    part = 10 if options.quick else 1
    print(f"seeds {', '.join(map(str, REPORT_SEEDS))}; 0 to 99 were used while tuning")
    line("what", "bar", "measured", "beside")
    threshold = healthy(1000 // part)
    line("moving average over 10,000 steps: its threshold", "1 in 200 false alarms", f"{threshold:.4f} nats")
    for size in (0.01, 0.02, 0.03, 0.05, 0.10, 0.25):
        steps_of_drift(size, threshold, max(100 // part, 20))
    for size in (0.03, 0.05, 0.10):
        train_only(size, max(100 // part, 20))
    incident(max(100 // part, 20), threshold)
    improvement(1000 // part)
    for share in (1.0, 0.01, 0.001):
        repeats(share, max(200 // part, 20) if share > 0.001 else 20)
    twins(200 // part)
    cost()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
