"""A 7B-like world in a database: a reference that logs every step, and runs beside it, as long as is wanted."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from service.database.engine import writing
from service.database.models import Fingerprint, Reference, ReferenceRun, Segment
from service.ingest.segments import ensure_project, ensure_run
from service.references.bundle import load_bundle
from service.references.shipped import BUNDLES
from service.series.packing import compress
from service.series.writer import write_points

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Columns = dict[str, tuple[Ints, Floats]]

SLUG, STAGE, PROJECT = "bench", "stage1", "bench"
STEPS, PER_STEP = 1_413_814, 4_194_304
TRAIN, HELD = "train/ce_loss", "heldout/c4_en/ce_loss"
EVALUATE, TEST = 1_000, 10_000  # steps between evaluations, and between tests of the eight tasks
ROWS, SAMPLE = 512, 1_024
PEAK = 3e-4


@dataclass(frozen=True, slots=True)
class Curves:
    """The numbers of one run: the same seed and steps give the same."""

    seed: int
    tasks: tuple[str, ...]

    def between(self, first: int, last: int, shift: float = 0.0) -> Columns:
        """Metrics of the steps `first` to `last` (inclusive), the train loss moved by `shift`."""
        rng = np.random.default_rng([self.seed, first])
        steps = np.arange(first, last + 1)
        held, tested = steps[steps % EVALUATE == 0], steps[steps % TEST == 0]
        found: Columns = {
            TRAIN: (steps, level(steps) + shift + rng.normal(0.0, 0.0255, len(steps))),
            "optim/grad_norm": (steps, np.exp(rng.normal(-1.0, 0.1, len(steps)))),
            "optim/learning_rate": (steps, np.full(len(steps), PEAK)),
            "throughput/tokens_per_second_per_device": (steps, rng.normal(1e4, 50.0, len(steps))),
            HELD: (held, level(held) + 0.6 + rng.normal(0.0, 0.002, len(held))),
        }
        found |= {task: (tested, 0.5 + rng.normal(0.0, 0.01, len(tested))) for task in self.tasks}
        return found


def level(steps: Ints) -> Floats:
    """A 7B-like loss without noise."""
    return 2.0 + 0.9 * (steps / 10_000.0 + 1.0) ** -0.35


def install(engine: Engine, steps: int = STEPS) -> tuple[str, ...]:
    """Store the reference (AI2's description with curves of every step). Returns its tasks' metrics."""
    bundle = load_bundle(BUNDLES / "olmo3-7b")
    said: dict[str, Any] = bundle.to_json() | {"slug": SLUG, "schedule": []}
    tasks = tuple(task.metric for task in bundle.description.tasks)
    with writing(engine) as session:
        reference = Reference(slug=SLUG, version="1", title=SLUG, digest="1", description=said, installed_at=0.0)
        session.add(reference)
        session.flush()
        run_id = make_run(session, f"{SLUG}@1", role="reference")
        session.add(ReferenceRun(reference_id=reference.id, stage=STAGE, sibling="", run_id=run_id))
        write(session, run_id, Curves(0, tasks).between(1, steps))
    return tasks


def make_run(session: Session, name: str, **fields: Any) -> int:
    """A run with one trainer segment; its key."""
    project = ensure_project(session, PROJECT, 0.0)
    run_id = ensure_run(session, project, uuid.uuid4(), {"name": name, "stage": STAGE, **fields}, 0.0)
    segment = Segment(
        uuid=uuid.uuid4(), run_id=run_id, kind="trainer", start_step=0, tokens_per_step=PER_STEP, digest=b"",
        topology={"hosts": 64}, config={}, versions={}, started_at=1.0,
    )  # fmt: skip
    session.add(segment)
    session.flush()
    return run_id


def segment_of(session: Session, run_id: int) -> Segment:
    """The run's first segment."""
    return session.scalars(select(Segment).where(Segment.run_id == run_id).order_by(Segment.id)).first() or Segment()


def write(session: Session, run_id: int, columns: Columns) -> None:
    """Sealed points."""
    segment, none = segment_of(session, run_id).id, np.empty(0, np.int64)
    write_points(session, run_id, segment, none, None, None, {n: c for n, c in columns.items() if len(c[0])})


def rows(first: int, last: int, seed: int) -> tuple[Ints, NDArray[np.uint64]]:
    """Sampled row hashes of the steps `first` to `last` and their steps; no row comes twice."""
    rng = np.random.default_rng([seed, first])
    steps = np.repeat(np.arange(first, last + 1), rng.binomial(ROWS, 1.0 / SAMPLE, last + 1 - first))
    return steps, rng.integers(0, 2**54, len(steps), np.uint64) * np.uint64(SAMPLE)


def write_rows(session: Session, run_id: int, first: int, last: int, seed: int) -> None:
    """Stored row fingerprints, joined as a run that has been there for long has them."""
    steps, hashes = rows(first, last, seed)
    size = 16_384
    edges = [*range(0, len(steps), size), len(steps)]
    begin = first
    for low, high in pairwise(edges):
        end = last if high == len(steps) else int(steps[high - 1])
        session.add(
            Fingerprint(
                run_id=run_id, segment_id=segment_of(session, run_id).id, kind="rows", host=0, sample=SAMPLE,
                points=high - low, steps=compress(steps[low:high]), hashes=hashes[low:high].tobytes(),
                seen=np.array([[begin, end, ROWS]], np.int64).tobytes(),
            )
        )  # fmt: skip
        begin = end + 1


def run_of(engine: Engine, name: str, steps: int, tasks: tuple[str, ...], seed: int) -> int:
    """A run of so many steps with its rows; its key."""
    with writing(engine) as session:
        run_id = make_run(session, name, role="reproduction", reference=SLUG)
        write(session, run_id, Curves(seed, tasks).between(1, steps))
        write_rows(session, run_id, 1, steps, seed)
    return run_id


def body(first: int, columns: Columns, count: int) -> dict[str, Any]:
    """Steps, times and metrics of a batch from step `first` on, with more metrics that no rule looks at: 20 at least
    at each step."""
    steps = np.arange(first, first + count)
    metrics: dict[str, list[float | None]] = {}
    for name, (at, values) in columns.items():
        if len(at):
            where = dict(zip(at.tolist(), values.tolist(), strict=True))
            metrics[name] = [where.get(step) for step in steps.tolist()]
    for index in range(max(20 - len(metrics), 0)):
        metrics[f"train/other_{index:02d}"] = (steps % 97 / 97.0 + index).tolist()
    return {"steps": steps.tolist(), "times": (1.7e9 + steps).tolist(), "metrics": metrics}
