"""Whole runs with a known truth, step by step: healthy ones of every kind, and each fault. For the confusion matrix.

A run of 40,000 steps beside a reference of the same length: step noise sd 0.0255 nats, tolerance 0.015, an evaluation
every 500 steps with sd 0.002, 4 hosts of 8 rows a step, one row in 16 sent as a hash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.detect_runs import HELD, NOISE, PER_STEP, TOLERANCE
from service.detect.facts import HeldoutHits
from service.detect.inputs import DeclaredData, RowReadings, RunView, Segment, Series, Tolerance

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TRAIN, RATE = "train/ce_loss", "optim/learning_rate"
SPEED = "throughput/tokens_per_second_per_device"
STEPS, EVERY, HOSTS, EACH, SAMPLE = 40_000, 500, 4, 8, 16
ROWS = STEPS * HOSTS * EACH
AT = np.arange(1, STEPS + 1)
EVALS = np.arange(EVERY, STEPS + 1, EVERY)
TASKS = {f"task_{k}": 1200 for k in range(8)}
MEAN = "downstream/mean/accuracy"
SAME_ITEMS = Tolerance(0.005, "as asked of a reproduction; the noise is that of the same items", 1, 0.0026)
PASS = 10_000  # steps in which a host has read its share of a share


@dataclass(frozen=True)
class Scene:
    """One simulated run and what is true of it."""

    view: RunView
    truth: str


def curve(steps: Ints) -> Floats:
    """A 7B-like loss curve."""
    return 2.0 + 0.9 * (steps / 10_000.0 + 1.0) ** -0.35


def hashed(rows: Ints) -> NDArray[np.uint64]:
    """A stand-in for BLAKE2b of a row's tokens: splitmix64 of its number."""
    x = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def readings(rows: Ints) -> RowReadings:
    """Sampled readings of `rows` int64 (steps, hosts, rows per host)."""
    steps = len(rows)
    hashes = hashed(rows.reshape(-1))
    keep = np.flatnonzero(hashes % np.uint64(SAMPLE) == 0)
    at, within = np.divmod(keep, HOSTS * EACH)
    return RowReadings(at + 1, within // EACH, hashes[keep], SAMPLE, np.arange(1, steps + 1),
                       np.full(steps, HOSTS * EACH))  # fmt: skip


def one_pass(rng: np.random.Generator) -> Ints:
    """Each row once."""
    return rng.permutation(ROWS).reshape(STEPS, HOSTS, EACH)


def double_sharded(rng: np.random.Generator) -> Ints:
    """Each host reads a share of its share again and again, in a new order each time."""
    out = np.empty((STEPS, HOSTS, EACH), np.int64)
    own = PASS * EACH
    for host in range(HOSTS):
        passes = [rng.permutation(own) + host * own for _ in range(STEPS // PASS)]
        out[:, host] = np.concatenate(passes).reshape(STEPS, EACH)
    return out


@dataclass
class Draft:
    """What a scene changes: gaps (40,000,) of train and (80,) of held-out, batches, rows, restarts and the rest."""

    rng: np.random.Generator
    train: Floats
    held: Floats
    batches: Floats  # step noise of the run
    reference: Floats  # and of the reference
    rows: Ints
    rate: Floats
    curve: Floats  # the reference's loss without noise (40,000,)
    restarts: list[int]
    speed: Floats
    accuracy: Floats  # (evaluations, 8) difference to the reference's
    changes: dict[str, object]

    def lasting(self, at: int, size: float) -> Floats:
        return np.where(at < AT, size, 0.0)

    def slow(self, at: int, size: float, over: int) -> Floats:
        return size * np.clip((AT - at) / over, 0.0, 1.0)


Maker = Callable[[Draft], None]


def wander(rng: np.random.Generator, sd: float) -> Floats:
    """Slow healthy wander (40,000,): AR(1) over blocks of 500 steps, joined by straight lines."""
    blocks = STEPS // 500 + 2
    out = np.empty(blocks)
    out[0] = rng.normal(0.0, sd)
    for i in range(1, blocks):
        out[i] = 0.85 * out[i - 1] + rng.normal(0.0, sd * np.sqrt(1 - 0.85**2))
    return np.interp(AT, np.arange(blocks) * 500, out)


def _same_order(d: Draft) -> None:
    d.batches = d.reference + d.rng.normal(0.0, 0.0006, STEPS)
    d.train = 0.1 * d.train


def _no_shuffle(d: Draft) -> None:
    d.train = wander(d.rng, 0.01)
    d.changes["tolerances"] = {TRAIN: Tolerance(0.0375, "declared: another order without a global shuffle", 0, NOISE,
                                                500), MEAN: SAME_ITEMS}  # fmt: skip


def _thinned(d: Draft) -> None:
    d.changes["thin"] = 100


def _unequal(d: Draft) -> None:
    d.changes["half"] = True


def _rewound(d: Draft) -> None:
    d.restarts = sorted(d.rng.integers(2_000, STEPS - 2_000, 5).tolist())


def _student(d: Draft, degrees: int) -> None:
    d.batches = d.rng.standard_t(degrees, STEPS) * NOISE / np.sqrt(degrees / (degrees - 2.0))


def _switching(d: Draft) -> None:
    d.batches = d.batches * np.where((AT // 5_000) % 4 == 3, 3.0, 1.0)


def _spikes(d: Draft) -> None:
    d.batches[d.rng.integers(0, STEPS, 40)] += d.rng.uniform(0.2, 2.0, 40)


def _missing(d: Draft) -> None:
    d.changes["missing"] = 0.1


def _transient(d: Draft) -> None:
    d.train = d.train + 0.03 * np.exp(-AT / 400.0)


def _double_shard(d: Draft) -> None:
    d.rows = double_sharded(d.rng)
    d.restarts = [int(d.rng.integers(18_000, 22_000)), int(d.rng.integers(28_000, 32_000))]
    d.train = d.train + d.slow(PASS, -0.06, 8_000) + sum(d.lasting(r, -0.04) for r in d.restarts)


def _replay(d: Draft) -> None:
    restart, lag = int(d.rng.integers(15_000, 25_000)), int(d.rng.integers(2_000, 8_000))
    d.restarts = [restart]
    d.rows[restart:] = d.rows[restart - lag : STEPS - lag].copy()
    d.batches[restart:] = d.batches[restart - lag : STEPS - lag].copy()
    for first in range(restart + lag, STEPS, lag):  # what was replayed is read on in its own order
        last = min(first + lag, STEPS)
        d.rows[first:last] = d.rows[first - lag : last - lag]
        d.batches[first:last] = d.batches[first - lag : last - lag]
    d.batches = d.batches + d.rng.normal(0.0, 0.0006, STEPS)
    d.train = d.train + d.lasting(restart, -float(d.rng.uniform(0.05, 0.15)))


def _every_host(d: Draft) -> None:
    d.rows = np.repeat(d.rows[:, :1], HOSTS, axis=1)
    d.batches = d.batches * 2.0
    d.train = d.train + d.slow(5_000, -0.04, 5_000)


def _other_order(d: Draft) -> None:
    d.train = d.train + d.slow(int(d.rng.integers(8_000, 20_000)), -float(d.rng.uniform(0.04, 0.10)), 3_000)


def _definition(d: Draft) -> None:
    d.restarts = [int(d.rng.integers(12_000, 28_000))]
    d.train = d.train + d.lasting(d.restarts[0], float(d.rng.choice([-1.0, 1.0]) * d.rng.uniform(0.03, 0.08)))


def annealed(rate: Floats) -> Floats:
    """A loss by the annealing law (Tissue et al. 2024): 1.9 + 0.5 / sqrt(S1) - 0.5 S2, with the S2 of decay 0.999."""
    momentum, total = 0.0, np.empty(STEPS)
    falls = np.maximum(-np.diff(rate, prepend=rate[0]), -1.0)
    for i, fall in enumerate(falls.tolist()):
        momentum = 0.999 * momentum + fall
        total[i] = momentum
    return 1.9 + 0.5 / np.sqrt(np.cumsum(rate) + 0.05) - 0.5 * np.cumsum(total)


def cosine(horizon: float) -> Floats:
    """A learning rate from 3e-4 down to a tenth of it over so many steps."""
    place = np.minimum(AT / horizon, 1.0)
    return 3e-4 * (0.1 + 0.45 * (1.0 + np.cos(np.pi * place)))


def _rate(d: Draft) -> None:
    d.curve = annealed(d.rate)
    d.rate = cosine(STEPS * float(d.rng.uniform(1.4, 2.0)))
    moved = annealed(d.rate) - d.curve
    d.train, d.held = d.train + moved, d.held + moved[EVALS - 1]


def _both(d: Draft, size: float, at: int, follow: float) -> None:
    moved = d.slow(at, size, 1_500)
    d.train = d.train + moved
    d.held = d.held + follow * np.interp(EVALS, AT, moved)


def _easier(d: Draft) -> None:
    _both(d, -float(d.rng.uniform(0.05, 0.10)), int(d.rng.integers(8_000, 20_000)), 0.75)


def _improvement(d: Draft) -> None:
    _both(d, -float(d.rng.uniform(0.04, 0.10)), int(d.rng.integers(8_000, 20_000)), 1.0)


def _regression(d: Draft) -> None:
    _both(d, float(d.rng.uniform(0.03, 0.08)), int(d.rng.integers(8_000, 20_000)), 1.0)


def _train_up(d: Draft) -> None:
    d.train = d.train + d.slow(int(d.rng.integers(8_000, 20_000)), float(d.rng.uniform(0.04, 0.10)), 3_000)


def _evaluation(d: Draft) -> None:
    at = int(d.rng.integers(10_000, 30_000))
    d.held = d.held + np.where(at < EVALS, float(d.rng.choice([-1.0, 1.0]) * d.rng.uniform(0.03, 0.06)), 0.0)


def _heldout_text(d: Draft) -> None:
    at = int(d.rng.integers(8_000, 16_000))
    _both(d, -0.04, at, 1.5)
    hits = np.sort(d.rng.integers(at, STEPS, 600))
    d.changes["heldout_hits"] = {
        "c4_en": HeldoutHits(hits, hashed(np.arange(600)), SAMPLE, AT, np.full(STEPS, HOSTS * EACH))
    }


def _accuracies(d: Draft) -> None:
    d.accuracy = d.accuracy - np.where(d.rng.integers(20, 50) <= np.arange(len(EVALS)), 0.03, 0.0)[:, None]


def _throughput(d: Draft) -> None:
    d.restarts = [int(d.rng.integers(12_000, 28_000))]
    d.speed = d.speed * (1.0 - np.where(d.restarts[0] < AT, float(d.rng.uniform(0.02, 0.03)), 0.0))


def _not_finite(d: Draft) -> None:
    d.train = d.train + np.where(int(d.rng.integers(20_000, 39_000)) <= AT, np.nan, 0.0)


HEALTHY: Mapping[str, Maker | None] = {
    "other order, shuffled": None, "same order": _same_order, "no global shuffle": _no_shuffle, "thinned": _thinned,
    "unequal batches": _unequal, "five restarts": _rewound, "t5": lambda d: _student(d, 5),
    "t3": lambda d: _student(d, 3), "switching variance": _switching, "spikes": _spikes, "missing data": _missing,
    "early transient": _transient,
}  # fmt: skip
FAULTS: Mapping[str, Maker] = {
    "double shard": _double_shard, "replay": _replay, "every host the same": _every_host, "other order or mix":
    _other_order, "loss definition": _definition, "learning rate": _rate, "easier data": _easier,
    "improvement": _improvement, "regression": _regression, "train alone above": _train_up,
    "evaluation changed": _evaluation, "held-out text": _heldout_text, "accuracies": _accuracies,
    "throughput": _throughput, "non-finite": _not_finite,
}  # fmt: skip


def scene(rng: np.random.Generator, truth: str) -> Scene:
    """One run of a kind named in HEALTHY or FAULTS."""
    maker = HEALTHY[truth] if truth in HEALTHY else FAULTS[truth]
    slow = wander(rng, TOLERANCE / 3.75)
    draft = Draft(
        rng, slow, 0.5 * slow[EVALS - 1], rng.normal(0.0, NOISE, STEPS), rng.normal(0.0, NOISE, STEPS), one_pass(rng),
        cosine(STEPS), curve(AT), [], rng.normal(1e4, 50.0, STEPS), np.zeros((len(EVALS), 8)), {},
    )  # fmt: skip
    base = draft.rate.copy()
    if maker is not None:
        maker(draft)
    return Scene(_view(draft, base), truth)


def _view(d: Draft, base: Floats) -> RunView:
    tokens = AT * PER_STEP
    own = AT[: STEPS // 2] if d.changes.pop("half", False) else AT
    train = d.curve + d.batches + d.train
    keep = d.rng.random(STEPS) >= float(str(d.changes.pop("missing", 0.0)))
    thin = int(str(d.changes.pop("thin", 1)))
    held = d.curve[EVALS - 1] + 0.6
    quiet = d.rng.normal(0.0, 0.002, (2, len(EVALS)))
    rates = np.interp(EVALS, (0, STEPS), (0.35, 0.6))[:, None] + 0.02 * np.arange(8)
    noise = np.sqrt(rates * (1.0 - rates) / 1200.0) / 2.0
    metrics = {
        TRAIN: Series(AT[keep], tokens[keep], train[keep]),
        HELD: Series(EVALS, EVALS * PER_STEP, held + quiet[0] + d.held),
        RATE: Series(AT, tokens, d.rate),
        SPEED: Series(AT, tokens, d.speed),
    }
    reference = {
        TRAIN: Series(AT[::thin], tokens[::thin], (d.curve + d.reference)[::thin]),
        HELD: Series(EVALS, EVALS * PER_STEP, held + quiet[1]),
        RATE: Series(AT, tokens, base),
    }
    for k, task in enumerate(TASKS):
        name = f"downstream/{task}/accuracy"
        metrics[name] = Series(EVALS, EVALS * PER_STEP, rates[:, k] + d.rng.normal(0.0, noise[:, k]) + d.accuracy[:, k])
        reference[name] = Series(EVALS, EVALS * PER_STEP, rates[:, k] + d.rng.normal(0.0, noise[:, k]))
    if len(own) < STEPS:  # batches twice as large: half the steps, each the mean of two
        pairs = train.reshape(-1, 2).mean(axis=1)
        metrics = {TRAIN: Series(own, tokens[1::2], pairs), HELD: replace(metrics[HELD], steps=EVALS // 2)}
    starts = [Segment(s, float(i), HOSTS) for i, s in enumerate([0, *d.restarts])]
    made: dict[str, object] = {
        "tolerances": {TRAIN: Tolerance(TOLERANCE, "assumed", 0, NOISE, 500), MEAN: SAME_ITEMS}, "tasks": TASKS,
        "rows": readings(d.rows) if len(own) == STEPS else None, "data": DeclaredData(ROWS, 1.0), **d.changes,
    }  # fmt: skip
    return RunView(
        metrics=metrics,
        reference=reference,
        segments=starts,
        heldout=HELD,
        reference_name="reference",
        reference_version="1",
        **made,
    )
