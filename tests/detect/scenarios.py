"""Runs made by hand for the tests of detect: noise, drifts and row readings with fixed seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from service.detect.engine import RULES
from service.detect.findings import Findings
from service.detect.inputs import DeclaredData, RowReadings, RunView, Segment, Series, Tolerance
from service.detect.judgement import Judgement

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TRAIN = "train/ce_loss"
HELD = "heldout/c4_en/ce_loss"
TOKENS_PER_STEP = 4_194_304.0


def series(steps: Sequence[int] | Ints, values: Sequence[float] | Floats, per_step: float = TOKENS_PER_STEP) -> Series:
    at = np.asarray(steps, np.int64)
    return Series(at, at * per_step, np.asarray(values, np.float64))


def curve(steps: Ints) -> Floats:
    """A loss curve like the 7B run's after its first 10,000 steps."""
    return 2.0 + 0.9 * (steps / 10_000.0 + 1.0) ** -0.35


def white(n: int, sd: float, rng: np.random.Generator) -> Floats:
    return rng.normal(0.0, sd, n)


def ar1(n: int, sd: float, phi: float, rng: np.random.Generator) -> Floats:
    out = rng.normal(0.0, sd * np.sqrt(1 - phi**2), n)
    for i in range(1, n):
        out[i] += phi * out[i - 1]
    return out


def student(n: int, sd: float, rng: np.random.Generator) -> Floats:
    """t with 3 degrees of freedom, scaled to the given sd."""
    return rng.standard_t(3, n) * sd / np.sqrt(3.0)


def pair(
    seed: int,
    *,
    steps: int = 40_000,
    noise: float = 0.0255,
    train: Callable[[Ints], Floats] | None = None,
    heldout: Callable[[Ints], Floats] | None = None,
    every: int = 500,
    kind: str = "white",
    reference_at: Ints | None = None,
    missing: float = 0.0,
    **changes: object,
) -> RunView:
    """A run of `steps` steps beside a reference of the same length. `train` and `heldout` give the gap added at a step;
    an evaluation comes every `every` steps with sd 0.002; `reference_at` thins the reference's train curve."""
    rng = np.random.default_rng(seed)
    at = np.arange(1, steps + 1)
    make = {
        "white": lambda n: white(n, noise, rng),
        "ar1": lambda n: ar1(n, noise, 0.3, rng),
        "t3": lambda n: student(n, noise, rng),
    }[kind]
    reference = curve(at) + make(steps)
    run = curve(at) + make(steps) + (train(at) if train else 0.0)
    evals = np.arange(every, steps + 1, every)
    held_reference = curve(evals) + 0.6 + white(len(evals), 0.002, rng)
    held = curve(evals) + 0.6 + white(len(evals), 0.002, rng) + (heldout(evals) if heldout else 0.0)
    keep = rng.random(steps) >= missing
    reference_steps = at if reference_at is None else reference_at
    view: dict[str, object] = {
        "metrics": {TRAIN: series(at[keep], run[keep]), HELD: series(evals, held)},
        "reference": {
            TRAIN: series(reference_steps, reference[reference_steps - 1]),
            HELD: series(evals, held_reference),
        },
        "tolerances": {TRAIN: Tolerance(0.015, "assumed", 0, noise, 500)},
        "segments": [Segment(0, 0.0, 64)],
        "reference_name": "olmo3-7b",
        "reference_version": "1",
        "heldout": HELD,
    }
    return RunView(**{**view, **changes})  # type: ignore[arg-type]


def judged(view: RunView, *rules: str) -> dict[str, Judgement]:
    """The answers of these rules alone."""
    findings = Findings(view)
    return {rule.name: rule.judge(findings) for rule in RULES if rule.name in rules}


def step_change(at: int, size: float) -> Callable[[Ints], Floats]:
    return lambda steps: np.where(steps > at, size, 0.0)


def ramp(start: int, end: int, size: float) -> Callable[[Ints], Floats]:
    return lambda steps: size * np.clip((steps - start) / (end - start), 0.0, 1.0)


def row_hash(rows: Ints) -> NDArray[np.uint64]:
    """A stand-in for BLAKE2b of a row's tokens: splitmix64 of the row's number."""
    x = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def readings(rows: Ints, sample: int = 1, first_step: int = 1) -> RowReadings:
    """Readings of `rows` int64 (steps, hosts, rows per host), sampled 1 in `sample`."""
    steps, hosts, each = rows.shape
    at = np.repeat(np.arange(first_step, first_step + steps), hosts * each)
    host = np.tile(np.repeat(np.arange(hosts), each), steps)
    hashes = row_hash(rows.reshape(-1))
    keep = hashes % np.uint64(sample) == 0
    seen = np.arange(first_step, first_step + steps)
    return RowReadings(at[keep], host[keep], hashes[keep], sample, seen, np.full(steps, hosts * each))


def pool_loader(rows: int, hosts: int, per_host: int, steps: int, seed: int, *, double: bool) -> Ints:
    """Rows read per step and host by Grain's IndexSampler with ShardOptions over a source that is (double) or is not
    already strided by host: lab.md's mode C, or the healthy loader. A pass draws a new order."""
    out = np.zeros((steps, hosts, per_host), np.int64)
    for host in range(hosts):
        mine = np.arange(rows)[host::hosts]
        if double:
            mine = mine[: len(mine) // hosts]  # the sampler's own share of what is already a share
        order: list[Ints] = []
        for epoch in range(steps * per_host // len(mine) + 1):
            order.append(np.random.default_rng([seed, host, epoch]).permutation(mine))
        out[:, host] = np.concatenate(order)[: steps * per_host].reshape(steps, per_host)
    return out


def leaking_loader(rows: int, hosts: int, per_host: int, steps: int, seed: int, leak: float) -> Ints:
    """The double shard of `pool_loader` of which a share `leak` of the readings is of rows never read before."""
    read = pool_loader(rows, hosts, per_host, steps, seed, double=True)
    new = np.random.default_rng([seed, 99]).random(read.shape) < leak
    read[new] = rows + np.arange(int(new.sum()))
    return read


def strided_loader(hosts: int, per_host: int, rows: int, spans: Sequence[tuple[int, int]], seed: int) -> Ints:
    """MaxText's olmo_grain loader with its stride: a host's sampler holds a contiguous block of the permutation and is
    asked for positions i x hosts + host. `spans`: (first update, last update) of each trainer start; a restart puts the
    position at update x per_host although per_host x hosts per update had been used."""
    block = rows // hosts
    out: list[Ints] = []
    orders: dict[tuple[int, int], Ints] = {}

    def order(host: int, epoch: int) -> Ints:
        if (host, epoch) not in orders:
            orders[host, epoch] = np.random.default_rng([seed, host, epoch]).permutation(block) + host * block
        return orders[host, epoch]

    for start, end in spans:
        for step in range(end - start):
            batch = np.zeros((hosts, per_host), np.int64)
            for host in range(hosts):
                for j in range(per_host):
                    position = start * per_host + (step * per_host + j) * hosts + host
                    batch[host, j] = order(host, position // block)[position % block]
            out.append(batch)
    return np.stack(out)


LAB_GAP = {50: -0.011, 100: 0.013, 150: -0.167, 200: -0.109, 250: -0.276, 300: -0.251, 350: -0.361, 400: -0.384}
LAB_HELD = {50: -0.014, 100: -0.010, 150: 0.027, 200: 0.032, 250: 0.058, 300: 0.077, 350: 0.103, 400: 0.111}


def lab(
    seed: int, *, double: bool, steps: int = 400, siblings: int = 3, every: int = 50, tolerance: Tolerance | None = None
) -> RunView:
    """The lab run of facts/lab.md: 4 hosts, 3,200 rows, 8 rows a step, 1,024 tokens a step, step noise 0.115."""
    rng = np.random.default_rng(seed)
    at, evals = np.arange(1, 401), np.arange(0, 401, every)
    level = 3.75 - 0.35 * (1 - np.exp(-at / 200.0))
    held = 3.75 - 0.31 * (1 - np.exp(-evals / 200.0))

    def healthy() -> dict[str, Series]:
        offset = rng.normal(0.0, 0.006)
        return {
            TRAIN: series(at, level + offset + rng.normal(0.0, 0.115, 400), 1024.0),
            HELD: series(evals, held + offset + rng.normal(0.0, 0.006, len(evals)), 1024.0),
        }

    reference = healthy()
    run = healthy()
    if double:
        gap = np.array([LAB_GAP[-(-int(s) // 50) * 50] for s in at])
        rise = np.interp(evals, [0, *LAB_HELD], [0.0, *LAB_HELD.values()])
        run = {
            TRAIN: series(at, run[TRAIN].values + gap, 1024.0),
            HELD: series(evals, run[HELD].values + rise, 1024.0),
        }
    cut = {
        k: Series(s.steps[s.steps <= steps], s.tokens[s.steps <= steps], s.values[s.steps <= steps])
        for k, s in run.items()
    }
    rows = readings(pool_loader(3200, 4, 2, steps, seed, double=double))
    return RunView(
        metrics=cut,
        reference=reference,
        tolerances={} if tolerance is None else {TRAIN: tolerance},
        segments=[Segment(0, 0.0, 4)],
        reference_name="lab",
        reference_version="1",
        heldout=HELD,
        siblings=[healthy() for _ in range(siblings)],
        rows=rows,
        data=DeclaredData(3200, 1.0),
    )
