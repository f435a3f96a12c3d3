"""What judging live costs, stage by stage: CPU time of the judging thread for one run, with its reads and writes."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from rich.table import Table
from sqlalchemy.orm import Session

from benchmarks.live_world import ROWS, SAMPLE, Curves, body, install, rows, run_of, segment_of
from service.app import create_app
from service.broker import Broker
from service.database.engine import open_engine, reading
from service.database.migrate import ensure_schema
from service.database.models import Run
from service.detect.cache import LevelCache
from service.detect.engine import evaluate
from service.judgements.kept import KeptRuns
from service.judgements.view import build_view, reference_view
from service.settings import Settings
from service.worker import judge as judging
from service.worker.judge import Judge

WARM = 3  # rounds that are not counted
EVERY = 5  # rounds of one step between two sendings of fingerprints
# (what is wrapped, its name, the stage it is), in the order of the table; indented ones are part of the one before
STAGES = (
    ("judge", "_opinions", "read and judge"),
    ("kept", "look_ahead", "  what is new, of all runs at once"),
    ("module", "build_view", "  the view"),
    ("kept", "series", "    series"),
    ("kept", "rows", "    row readings"),
    ("rules", "evaluate", "  the rules"),
    ("judge", "_store", "write"),
    ("module", "record", "  alerts"),
)


@dataclass(slots=True)
class Spent:
    """CPU seconds by stage, and of all together."""

    whole: float = 0.0
    stages: dict[str, float] = field(default_factory=dict[str, float])
    read: float = 0.0  # of reading one run from the store
    judged: float = 0.0  # of judging it once, nothing of it known
    cold: float = 0.0  # of the first judgement of one run: its reference is smoothed, it is read, judged and written

    def timed(self, make: Callable[..., Any], stage: str) -> Callable[..., Any]:
        """The same function, its time counted."""

        @functools.wraps(make)
        def wrapped(*args: Any, **more: Any) -> Any:
            began = time.thread_time()
            try:
                return make(*args, **more)
            finally:
                self.stages[stage] = self.stages.get(stage, 0.0) + time.thread_time() - began

        return wrapped


def measure(count: int, history: int, steps: int, rounds: int) -> Spent:
    """`count` runs with `history` steps behind them; each round brings every run so many steps, and judges them all."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder)}/cost.db"
        engine = open_engine(url)
        ensure_schema(engine)
        tasks = install(engine)
        keys = [run_of(engine, f"run-{i:03d}", history, tasks, i + 1) for i in range(count)]
        judge, spent = Judge(engine, Broker(), "http://localhost", clear_seconds=60.0), Spent()
        with TestClient(create_app(Settings(database_url=url, worker=False))) as http:
            with reading(engine) as session:
                segments = [str(segment_of(session, key).uuid) for key in keys]
                spent.read, spent.judged = _from_the_store(session, session.get_one(Run, keys[0]))
            began = time.thread_time()
            judge.judge_run(keys[0])
            spent.cold = time.thread_time() - began
            with _Wrapped(judge, spent):
                for number in range(rounds + WARM):
                    for i, segment in enumerate(segments):
                        _send(http, segment, i + 1, history, steps, number, tasks)
                    if number == WARM:
                        spent.whole, spent.stages = 0.0, {}
                    began = time.thread_time()
                    judge.judge_due()
                    spent.whole += time.thread_time() - began
        engine.dispose()
    made = count * rounds
    stages = {name: value / made for name, value in spent.stages.items()}
    return Spent(spent.whole / made, stages, spent.read, spent.judged, spent.cold)


def _from_the_store(session: Session, run: Run) -> tuple[float, float]:
    """CPU seconds of reading a run of which nothing is known, and of judging it beside a reference that is."""
    reference = reference_view(session, run)
    began = time.thread_time()
    view = build_view(session, run, KeptRuns(), reference=reference)
    read = time.thread_time() - began
    levels = LevelCache()
    evaluate(view, levels)
    began = time.thread_time()
    evaluate(view, levels.of_a_run())
    return read, time.thread_time() - began


def table(count: int, history: int, rounds: int) -> Table:
    """Milliseconds for one run: of one step, of 50 and of 500."""
    found = [measure(count, history, steps, rounds) for steps in (1, 50, 500)]
    made = Table(
        f"CPU of the judging thread for one of {count} runs of {history:,} steps",
        *("one step, ms", "50 steps, ms", "500 steps, ms"),
    )
    lines = [("all", [one.whole for one in found])]
    lines += [(stage, [one.stages.get(stage, 0.0) for one in found]) for _, _, stage in STAGES]
    for name, values in lines:
        made.add_row(name, *(f"{1e3 * value:.2f}" for value in values))
    made.add_row("one run from the store: reading it", *(f"{1e3 * one.read:,.0f}" for one in found))
    made.add_row("  judging it once", *(f"{1e3 * one.judged:,.0f}" for one in found))
    made.add_row("the first judgement, from the store", *(f"{1e3 * one.cold:,.0f}" for one in found))
    return made


def _send(
    http: TestClient, segment: str, seed: int, history: int, steps: int, number: int, tasks: Sequence[str]
) -> None:
    first = history + 1 + steps * number
    last = first + steps - 1
    common = {"process": 0, "seq": number, "sent_at": time.time()}
    made = body(first, Curves(seed, tuple(tasks)).between(first, last), steps)
    answers = [http.post(f"/api/v1/segments/{segment}/batches", json=made | common)]
    if steps > 1 or number % EVERY == EVERY - 1:
        since = first if steps > 1 else last - EVERY + 1
        at, hashes = rows(since, last, seed)
        told = {
            "kind": "rows", "host": 0, "sample": SAMPLE, "steps": at.tolist(), "seen": [[since, last, ROWS]],
            "hashes": [f"{one:016x}" for one in hashes.tolist()],
        }  # fmt: skip
        answers.append(http.post(f"/api/v1/segments/{segment}/fingerprints", json=told | common))
    for answer in answers:
        answer.raise_for_status()


class _Wrapped:
    """The judge with its stages timed and no rest between judgements, until it is left."""

    def __init__(self, judge: Judge, spent: Spent) -> None:
        owners: dict[str, Any] = {
            "judge": judge, "kept": vars(judge)["_kept"], "rules": vars(judge)["_rules"], "module": judging,
        }  # fmt: skip
        self._made = [(owners[owner], name, stage) for owner, name, stage in STAGES]
        self._spent = spent
        self._before: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        for name in ("FIRST_INTERVAL", "INTERVAL", "REST"):
            self._set(judging, name, 0.0)
        for owner, name, stage in self._made:
            self._set(owner, name, self._spent.timed(getattr(owner, name), stage))

    def __exit__(self, *_: object) -> None:
        for owner, name, value in reversed(self._before):
            setattr(owner, name, value)

    def _set(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)
