"""Reads what a restart would need to know: live checkpoints, the run's own pace, and the forks that were made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
from sqlalchemy.orm import Session

from service.database.models import Run
from service.detect.onset import joint_onset
from service.detect.recovery import Checkpoint, Pace, Recovery, recovery
from service.hardware.throughput import RATE
from service.judgements.repository import JudgementRepository
from service.recovery.repository import RecoveryRepository
from service.recovery.schemas import ForkAnswer, RecoveryAnswer, recovery_answer
from service.runs.repository import RunRepository
from service.series.lineage import lineage
from service.series.live import live_limits
from service.series.repository import SeriesRepository

TRAIN = "train/ce_loss"
TIME = "axis/time"
NEWEST = 1_000  # steps that the pace is measured on
GOOD = ("matching", "consistent")
BEGINNINGS = {"curve_and_data", "stability"}  # families whose onset is one of wrong weights


def what_now(session: Session, run: Run, judgements: Iterable[Mapping[str, Any]]) -> RecoveryAnswer:
    """What to do about the rules that say yes among these (JSON bodies): where to restart, at what cost."""
    onset = joint_onset(body for body in judgements if body.get("state") == "yes")
    forks = _forks(session, run)
    if onset is None:
        return recovery_answer(run.uuid, None, forks)
    found = find(session, run, (int(onset[0][0]), int(onset[0][1])))
    return recovery_answer(run.uuid, found, [_started(fork, found) for fork in forks])


def of_run(session: Session, run: Run) -> RecoveryAnswer:
    """What to do now, by the newest answers of the rules about weights."""
    rows = JudgementRepository(session).of_run(run.id)
    return what_now(session, run, [row.body for row in rows if row.family in BEGINNINGS])


def find(session: Session, run: Run, since_step: tuple[int, int]) -> Recovery:
    """The clean checkpoint and the cost, for an onset within `since_step`."""
    newest, pace = position(session, run)
    return recovery(since_step, checkpoints(session, run), newest, pace)


def checkpoints(session: Session, run: Run) -> list[Checkpoint]:
    """Checkpoints that hold live weights, with their tokens, by step; a fork's include those it has of its parent."""
    series = SeriesRepository(session)
    limits = live_limits(lineage(session, run.id).segments)
    events = RecoveryRepository(session).checkpoint_events(limits.keys())
    axis = series.axis(run.id)
    found: list[Checkpoint] = []
    for event in events:
        if event.step <= limits[event.segment_id]:
            tokens = float(axis.of(np.array([event.step]), event.segment_id)[0])
            where = _where(event.value.get("value"))
            found.append(Checkpoint(event.step, tokens if np.isfinite(tokens) else None, where, event.at))
    return found


def position(session: Session, run: Run) -> tuple[Checkpoint, Pace | None]:
    """Where the run is, and its pace: by its throughput where it sends one, else by the times of its newest steps."""
    repository = RecoveryRepository(session)
    step = repository.last_step(run.id)
    first = max(step - NEWEST, 0)
    read = SeriesRepository(session).read(run.id, [TRAIN, TIME, RATE], from_step=first)
    train = read.get(TRAIN)
    tokens = None
    per_step = 0.0
    if train is not None and len(train):
        step, tokens = max(step, int(train.steps[-1])), float(train.tokens[-1])
        moved = np.diff(train.tokens) / np.maximum(np.diff(train.steps), 1)
        per_step = float(np.median(moved)) if len(moved) else 0.0
    newest = Checkpoint(step, tokens if tokens is not None and np.isfinite(tokens) else None)
    rate = read.get(RATE)
    devices = repository.devices(run.id)
    if rate is not None and devices and per_step > 0.0:
        speed = float(np.median(rate.values[np.isfinite(rate.values)])) if np.isfinite(rate.values).any() else 0.0
        if speed > 0.0:
            source = f"{speed:,.0f} tokens/s/device on {devices:,} devices, {per_step:,.0f} tokens a step"
            return newest, Pace(per_step / (speed * devices), source)
    times = read.get(TIME)
    if times is not None and len(times) > 1:
        pace = np.diff(times.values) / np.diff(times.steps)
        pace = pace[np.isfinite(pace) & (pace > 0.0)]
        if len(pace):
            seconds = float(np.median(pace))
            return newest, Pace(seconds, f"{seconds:,.3g} s a step, median of the newest {len(pace):,}")
    return newest, None


def _forks(session: Session, run: Run) -> list[ForkAnswer]:
    runs = RunRepository(session)
    answers: list[ForkAnswer] = []
    for fork in runs.forks(run.uuid):
        row = runs.row(fork.uuid)
        assert row is not None
        verdict = row.verdict.state if row.verdict is not None else None
        clean = "cannot tell"
        if verdict is not None and verdict != "not enough data":
            clean = "yes" if verdict in GOOD and row.open_alerts == 0 else "no"
        answers.append(
            ForkAnswer(
                run=fork.uuid,
                name=fork.name,
                from_step=fork.forked_at_step or 0,
                last_step=row.state.last_step if row.state is not None else None,
                verdict=verdict,
                open_alerts=row.open_alerts,
                stays_clean=clean,
                started_clean=None,
            )
        )
    return answers


def _started(fork: ForkAnswer, found: Recovery) -> ForkAnswer:
    low, high = found.since_step
    started = "yes" if fork.from_step < low else "no" if fork.from_step >= high else "cannot tell"
    return fork.model_copy(update={"started_clean": started})


def _where(value: Any) -> str:
    """The place of a checkpoint, from what the trainer said: a text, or an object with a path."""
    if isinstance(value, str):
        return value[:1024]
    if isinstance(value, dict):
        said = cast("dict[str, Any]", value)
        return next((said[key][:1024] for key in ("path", "uri", "url") if isinstance(said.get(key), str)), "")
    return ""
