"""How well batches are recognised by the losses they leave: `python -m benchmarks.signature [--quick]`.

Noise as at 7B scale (white, sd 0.0255 nats; the same batch twice differs by sd 0.0006) and the real residuals of six
reruns of a 124M configuration and of two trainings of the lab's model (tests/golden/batch_signature). Seeds 0 to 9
were used while tuning; the table comes from REPORT_SEEDS, which were not.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.detect_table import Row
from service.compare.pairs import BLOCK, PairedGap, block_means, paired_gap
from service.compare.signature import residuals
from service.detect import batches, order
from service.detect.batches import TRAIN
from service.detect.findings import Findings
from service.detect.inputs import RunView, Segment, Series
from service.detect.rules import data_order, replayed_batches

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REPORT_SEEDS = (7101, 7102, 7103)
GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "batch_signature"
LAB = Path(__file__).parent.parent / "service" / "references" / "bundles" / "lab"
NOISE, PAIR_NOISE, MEMORIZED = 0.0255, 0.0006, 0.1
AFTER = 80  # steps a replay is followed after its restart


def reruns() -> tuple[Ints, Floats]:
    """Steps (1530,) and train losses (6, 1530) of the 124M reruns."""
    table = pd.read_csv(GOLDEN / "reruns.csv")
    return table["step"].to_numpy("int64"), table.drop(columns="step").to_numpy("float64").T


def lab_run(name: str) -> dict[str, Series]:
    """One of the two real trainings of the lab's model."""
    table = pd.read_csv(GOLDEN / f"{name}.csv")
    return {m: series(table["step"].to_numpy("int64"), table[m].to_numpy("float64")) for m in table if m != "step"}


def lab_reference(path: str = "series/stage1.csv") -> dict[str, Series]:
    """The lab's reference, or one of its siblings."""
    table = pd.read_csv(LAB / path)
    return {
        str(m): series(part["step"].to_numpy("int64"), part["value"].to_numpy("float64"))
        for m, part in table.sort_values("step").groupby("metric")
    }


def series(steps: Ints, values: Floats, per_step: float = 1024.0) -> Series:
    return Series(steps, steps * per_step, values)


def view(
    run: Series | dict[str, Series], reference: dict[str, Series] | None = None, restarts: Sequence[int] = ()
) -> RunView:
    metrics = run if isinstance(run, dict) else {TRAIN: run}
    segments = [Segment(s, float(i), 1) for i, s in enumerate([0, *restarts])]
    return RunView(metrics, reference or {}, {}, segments)


def rng_of(table: int, index: int) -> np.random.Generator:
    return np.random.default_rng([REPORT_SEEDS[index % len(REPORT_SEEDS)], table, index])


def curve(steps: Ints) -> Floats:
    return 2.0 + 0.9 * (steps / 10_000.0 + 1.0) ** -0.35


def level(values: Floats) -> Floats:
    """A run without its batches: what 25-step detrending takes away, so that another run's batches can be put on it."""
    half = 12
    padded = np.pad(values, half, mode="reflect")
    smooth: Floats = np.convolve(padded, np.ones(2 * half + 1) / (2 * half + 1), "valid")
    return smooth


def noise_like_7b(rng: np.random.Generator, n: int, kind: str) -> Floats:
    if kind == "t3":
        return rng.standard_t(3, n) * NOISE / np.sqrt(3.0)
    out = rng.normal(0.0, NOISE, n)
    if kind == "spikes":
        out[rng.integers(0, n, n // 200)] += rng.uniform(0.2, 2.0, n // 200)
    if kind == "rhythm":  # sources that come round: the same lag correlates by nature
        period = int(rng.integers(40, 400))
        out += np.tile(rng.normal(0.0, NOISE, period), n // period + 1)[:n]
    if kind == "AR(1)":
        for i in range(1, n):
            out[i] += 0.4 * out[i - 1]
    return out


ROWS: list[Row] = []  # of this process, in order


def line(what: str, bar: str, measured: str, met: bool | None = None) -> None:
    """One more row, and print it."""
    ROWS.append(Row(what, bar, measured, "", met))
    mark = "" if met is None else "  met" if met else "  MISSED"
    print(f"{what:<78} {bar:<26} {measured}{mark}", flush=True)


def quantiles(values: Sequence[float], *at: float) -> str:
    return " / ".join(f"{np.percentile(values, q):,.4g}" for q in at) if values else "none"


def healthy_restarts(count: int) -> None:
    kinds = ("white", "t3", "spikes", "AR(1)", "rhythm")
    per_run = 10
    for kind in kinds:
        wrong = looked = 0
        for i in range(count // per_run + 1):
            rng = rng_of(1, i)
            n = 30_000
            steps = np.arange(1, n + 1)
            restarts = sorted(rng.integers(500, n - AFTER, per_run).tolist())
            found = batches.find_replays(
                view(series(steps, curve(steps) + noise_like_7b(rng, n, kind)), None, restarts)
            )
            assert found is not None
            wrong += len(found.replays)
            looked += found.restarts
        line(f"healthy restarts, 7B-like, {kind}: replays said", "0 in 1,000", f"{wrong} in {looked}", wrong == 0)
    steps, runs = reruns()
    wrong = looked = 0
    for i in range(count // 10):
        rng = rng_of(2, i)
        restarts = sorted(rng.choice(np.arange(150, 1530 - AFTER), 12, replace=False).tolist())
        found = batches.find_replays(view(series(steps, runs[i % len(runs)]), None, restarts))
        assert found is not None
        wrong += len(found.replays)
        looked += found.restarts
    line("healthy restarts, real 124M losses: replays said", "0 in 1,000", f"{wrong} in {looked}", wrong == 0)


def replays(count: int) -> None:
    delays: list[float] = []
    wrong = 0
    for i in range(count):
        rng = rng_of(3, i)
        n = int(rng.integers(2_000, 50_000))
        lag = int(rng.integers(100, min(n - 100, 20_000)))
        batch = rng.normal(0.0, NOISE, n + AFTER)
        batch[n:] = batch[n - lag : n - lag + AFTER]
        steps = np.arange(1, n + AFTER + 1)
        run = curve(steps) + batch + rng.normal(0.0, PAIR_NOISE, n + AFTER)
        run[n:] -= MEMORIZED * rng.uniform(0.5, 1.5)
        wrong += _score(view(series(steps, run), None, [n]), n, lag, delays)
    line("replay after a restart, 7B-like: steps to alert, median / max", "<= 64, all with its lag",
         f"{len(delays)} of {count}, {wrong} wrong: {quantiles(delays, 50, 100)}",
         len(delays) == count and max(delays) <= 64 and not wrong)  # fmt: skip
    steps, runs = reruns()
    delays, wrong = [], 0
    for i in range(count):
        rng = rng_of(4, i)
        mine, other = rng.choice(len(runs), 2, replace=False)
        restart = int(rng.integers(300, 1450))
        lag = int(rng.integers(100, restart - 100))
        smooth = level(runs[mine])
        after = min(AFTER, 1530 - restart)
        run = runs[mine][: restart + after].copy()
        easy = runs[other] - level(runs[other])  # another rerun has other weights, as later weights would be
        run[restart:] = smooth[restart : restart + after] + easy[restart - lag : restart - lag + after] - MEMORIZED
        wrong += _score(view(series(steps[: len(run)], run), None, [restart]), restart, lag, delays)
    line("replay after a restart, real 124M residuals: steps to alert, median / max", "<= 64, all with its lag",
         f"{len(delays)} of {count}, {wrong} wrong: {quantiles(delays, 50, 100)}",
         len(delays) == count and max(delays) <= 64 and not wrong)  # fmt: skip
    found = batches.find_replays(view(lab_run("lab_replays"), None, [220]))
    assert found is not None
    one = found.replays[0] if found.replays else None
    line("a real replay, lab's model, 100 steps back: steps to alert; lag", "<= 64; 100",
         f"{one.known_at - 220}; {one.lag} (correlation {one.match.r:.3f})" if one else "missed",
         one is not None and one.lag == 100 and one.known_at - 220 <= 64)  # fmt: skip


def _score(run: RunView, restart: int, lag: int, delays: list[float]) -> int:
    found = batches.find_replays(run)
    hit = next((r for r in found.replays if r.restart == restart), None) if found else None
    if hit is None:
        return 0
    if hit.lag != lag:
        return 1
    delays.append(float(hit.known_at - restart))
    return 0


def loops(count: int) -> None:
    found_at: list[float] = []
    wrong = 0
    for i in range(count):
        rng = rng_of(5, i)
        period = int(rng.integers(500, 10_000))
        n = period + 1_000
        batch = np.resize(rng.normal(0.0, NOISE, period), n)
        steps = np.arange(1, n + 1)
        run = curve(steps) + batch + rng.normal(0.0, PAIR_NOISE, n) - np.where(steps > period, 0.05, 0.0)
        found = batches.find_replays(view(series(steps, run)))
        assert found is not None
        if found.open is not None and found.open.lag == period:
            found_at.append(float(found.open.known_at - period))
            wrong += abs(found.open.start - period - 1) > 32
    line("a loader that begins its pass again, no restart: steps to alert, median / max", "all, start within 32",
         f"{len(found_at)} of {count}, {wrong} starts wrong: {quantiles(found_at, 50, 100)}")  # fmt: skip


def identity(count: int) -> None:
    steps, runs = reruns()
    answers = Counter(
        order.find(view(series(steps, a), {TRAIN: series(steps, b)})).answer
        for i, a in enumerate(runs) for j, b in enumerate(runs) if i != j
    )  # fmt: skip
    line("order of real reruns, every pair", "100 % same", _counts(answers), set(answers) == {"same"})
    changed: Counter[str] = Counter()
    errors: list[float] = []
    shifts = 0
    for i in range(count):
        rng = rng_of(6, i)
        mine, other = rng.choice(len(runs), 2, replace=False)
        at = int(rng.integers(60, 1480))
        lag = int(rng.integers(40, 600))
        smooth = level(runs[mine])
        run = runs[mine].copy()
        run[at:] = (smooth + np.roll(runs[mine] - smooth, lag))[at:]
        found = order.find(view(series(steps, run), {TRAIN: series(steps, runs[other])}, [at]))
        changed[found.answer] += 1
        if found.since is not None:
            errors.append(float(np.mean(found.since) - at - 1))
            shifts += found.shift in (-lag, 1530 - lag)
    line("order left at step S, reruns' batches moved: answer; |error in S| max; shift named", "100 %; <= 32",
         f"{_counts(changed)}; {np.abs(errors).max():.0f}; {shifts} of {count}",
         set(changed) == {"departs"} and float(np.abs(errors).max()) <= 32)  # fmt: skip
    shuffled: Counter[str] = Counter()
    for i in range(count):
        rng = rng_of(7, i)
        mine, other = rng.choice(len(runs), 2, replace=False)
        smooth = level(runs[mine])
        run = smooth + rng.permutation(runs[mine] - smooth)
        shuffled[order.find(view(series(steps, run), {TRAIN: series(steps, runs[other])})).answer] += 1
    line("reruns with their batches shuffled", "100 % different", _counts(shuffled), set(shuffled) == {"different"})
    reference = lab_reference()
    siblings = Counter(
        order.find(view(lab_reference(f"siblings/order-seed-{q}.csv"), reference)).answer for q in (1, 2, 3)
    )
    line("lab: three siblings of other order seeds", "3 different", _counts(siblings), set(siblings) == {"different"})
    found = order.find(view(lab_run("lab_departs"), reference, [150]))
    line(
        "lab: a real run that leaves the order at step 151",
        "departs; 151 +- 32",
        f"{found.answer}; {found.since}",
        found.since is not None and abs(float(np.mean(found.since)) - 151) <= 32,
    )


def _counts(answers: Counter[str]) -> str:
    return ", ".join(f"{n} {answer}" for answer, n in answers.most_common())


def paired(count: int) -> None:
    delays: list[float] = []
    alarms = 0
    for i in range(count):
        rng = rng_of(8, i)
        reference = rng.normal(2.0, NOISE, 2000)
        run = reference + rng.normal(0.0, PAIR_NOISE, 2000)
        steps = np.arange(1, 2001)
        alarms += bool((paired_gap(steps, run, reference).beyond > 1.0).any())
        drifted = run + np.where(steps > 1000, 0.003, 0.0)
        hits = np.flatnonzero(paired_gap(steps, drifted, reference).beyond > 1.0)
        if len(hits):
            delays.append(float(steps[25 * (hits[0] + 8) - 1] - 1000))
    line("drift of 0.003 nats by pairs, 7B-like: steps, median / max; false alarms", "<= 200",
         f"{sum(0 < d <= 200 for d in delays)} of {count}: {quantiles(delays, 50, 100)}; {alarms}",
         sum(0 < d <= 200 for d in delays) == count and not alarms)  # fmt: skip


def paired_reruns() -> None:
    """The same on the real reruns, where healthy changes are larger: what is found, and what could be."""
    steps, runs = reruns()
    everyone = range(len(runs))
    for siblings in (0, 3, 4):
        false = sum(
            _alarm(paired_gap(steps, runs[i], runs[j], _rest(runs, i, j)[:siblings]))
            for i in everyone for j in everyone if i != j
        )  # fmt: skip
        line(f"healthy pairs of real reruns, {siblings or 'no'} siblings beside: false alarms", "0",
             f"{false} in {len(runs) * (len(runs) - 1)}", not false)  # fmt: skip
    pairs = [(i, j) for i in everyone for j in everyone if i != j]
    own = [paired_gap(steps, runs[i], runs[j]) for i, j in pairs]
    fallen = [paired_gap(steps, runs[i] - np.where(steps > 800, 0.03, 0.0), runs[j]) for i, j in pairs]
    line("fall of 0.03 nats at step 800, by the run's own past; most of the limit a healthy pair takes", "all",
         f"{sum(map(_alarm, fallen))} of {len(pairs)}; {max(float(np.nanmax(gap.beyond)) for gap in own):.2f}",
         all(map(_alarm, fallen)))  # fmt: skip
    for size in (0.003, 0.005, 0.01):
        shown: list[str] = []
        total = 0
        for at in (800, 1000, 1200, 1300):
            hits = 0
            for i in everyone:
                j = (i + 1) % len(runs)
                gap = paired_gap(steps, runs[i] + np.where(steps > at, size, 0.0), runs[j], _rest(runs, i, j))
                over = gap.steps[gap.beyond > 1.0]
                hits += bool(len(over)) and at < over[0] <= at + 200
            total += hits
            shown.append(f"{hits} from {at}")
        line(f"drift of {size} nats within 200 steps, real reruns, of {len(runs)}", "all", ", ".join(shown),
             total == 4 * len(runs))  # fmt: skip
    best_linear()


def _alarm(gap: PairedGap) -> bool:
    """Two changes beyond the limit in a row, on one side."""
    beyond, side = gap.beyond > 1.0, gap.change < 0.0
    return bool((beyond[1:] & beyond[:-1] & (side[1:] == side[:-1])).any())


def best_linear(size: float = 0.003) -> None:
    """What any linear statistic of the pairs could show of a step: generalized least squares with the covariance of the
    real reruns themselves, so better than one that had to learn it; and what a batch's difficulty, regressed out,
    would take away."""
    _, runs = reruns()
    gaps = np.stack([run - np.median(np.delete(runs, i, axis=0), axis=0) for i, run in enumerate(runs)])
    means: Floats = np.stack([block_means(gap)[0] for gap in gaps])
    for before, after in ((4, 4), (8, 8)):
        shown: list[str] = []
        for first, last in ((800, 1000), (1000, 1200), (1200, len(runs[0]))):
            ends = range(max(first // BLOCK, before + after), last // BLOCK)
            spans: Floats = np.concatenate([means[:, end - before - after : end] for end in ends])
            away: Floats = spans - spans.mean(axis=1, keepdims=True)
            square: Floats = away.T @ away / len(away)
            square += 0.02 * np.trace(square) / len(square) * np.eye(len(square))
            design: Floats = np.stack([np.ones(before + after), np.repeat([0.0, 1.0], [before, after])], axis=1)
            inverse: Floats = np.linalg.pinv(square).astype(np.float64)
            weights: Floats = (np.linalg.inv(design.T @ inverse @ design) @ design.T @ inverse)[1]
            shown.append(f"{size / float(np.sqrt(np.mean((spans @ weights) ** 2))):.1f} at {first} to {last}")
        pairs = f"{before * BLOCK} pairs before and {after * BLOCK} after"
        line(f"best linear statistic of {pairs}: {size} nats in its sd (3.75 is the limit)", "", ", ".join(shown))
    batch = residuals(np.median(runs, axis=0))[800:]
    most = max(abs(float(np.corrcoef(batch, residuals(gap)[800:])[0, 1])) for gap in gaps)
    line("correlation of a pair's difference with its batch's difficulty, most of the reruns", "", f"{most:.2f}")


def _rest(runs: Floats, i: int, j: int) -> list[Floats]:
    return [run for k, run in enumerate(runs) if k not in (i, j)]


def cost(steps: int) -> None:
    rng = rng_of(9, 0)
    at = np.arange(1, steps + 1)
    batch = rng.normal(0.0, NOISE, steps)
    restarts = np.linspace(steps / 10, steps * 0.9, 10).astype(int).tolist()
    reference = {TRAIN: series(at, curve(at) + batch)}
    for name, rule in (("data_order", data_order.judge), ("replayed_batches, 10 restarts", replayed_batches.judge)):
        times: list[float] = []
        for _ in range(3):
            run = series(at, curve(at) + batch + rng.normal(0.0, PAIR_NOISE, steps))
            findings = Findings(view(run, reference, restarts))
            begun = time.perf_counter()
            rule(findings)
            times.append(time.perf_counter() - begun)
        line(f"cost of {name}, {steps:,} steps", "", f"{min(times) * 1e3:.0f} ms")
    begun = time.perf_counter()
    residuals(curve(at) + batch)
    line("  of which residuals", "", f"{(time.perf_counter() - begun) * 1e3:.0f} ms")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table. Exit status 0; the numbers are for reading, no bar is enforced here."""
    parser = argparse.ArgumentParser(prog="benchmarks signature", description="Batches recognised by their losses.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    options = parser.parse_args(argv)
    part = 10 if options.quick else 1
    print(f"seeds {', '.join(map(str, REPORT_SEEDS))}; 0 to 9 were used while tuning")
    line("what", "bar", "measured")
    healthy_restarts(1000 // part)
    replays(300 // part)
    loops(60 // part)
    identity(300 // part)
    paired(100 // part)
    paired_reruns()
    cost(1_413_814 // part)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
