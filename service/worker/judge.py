"""Judges every run that has news, and writes answers, verdict, alerts and messages in one transaction."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from service.alerts.message import RunLabel
from service.alerts.record import Recorded, RunKey, record
from service.broker import Broker
from service.database.engine import reading, writing
from service.database.models import Project, Run, RunState, RunWork
from service.detect import engine as rules
from service.detect.engine import Verdict
from service.detect.inputs import RunView
from service.detect.judgement import Judgement
from service.detect.rules import data_stopped
from service.judgements.bodies import plain
from service.judgements.kept import KeptRuns
from service.judgements.repository import JudgementRepository
from service.judgements.view import Clock, UnknownReferenceError, build_view, reference_view
from service.rules.effective import silenced
from service.rules.reading import settings_in_force
from service.rules.repository import SettingRepository
from service.worker.seen import Seen, look

log = logging.getLogger(__name__)

FIRST_INTERVAL = 0.2  # seconds between two judgements of a run, for its first ones
INTERVAL = 0.5
FIRST_COUNT = 20
REST = 3.0  # a run rests this many times as long as judging it took
LONGEST_BACK_OFF = 300.0
WATCH_EVERY = 30.0  # seconds between looks for runs that have gone silent under another process


class RuleSet(Protocol):
    """How runs are judged; `service.detect.engine` unless a test brings its own."""

    @property
    def families(self) -> Mapping[str, str]:
        """Rule name to family, of every rule."""
        ...

    def evaluate(self, view: RunView, cache: Any) -> Sequence[Judgement]:
        """Every rule's answer."""
        ...

    def verdict(self, judgements: Sequence[Judgement], reference: str, version: str) -> Verdict:
        """What the answers come to."""
        ...


class ShippedRules:
    """The rules of `service.detect.engine`."""

    families: Mapping[str, str] = rules.FAMILY_OF_RULE

    def evaluate(self, view: RunView, cache: Any) -> Sequence[Judgement]:
        return rules.evaluate(view, cache)

    def verdict(self, judgements: Sequence[Judgement], reference: str, version: str) -> Verdict:
        return rules.verdict(judgements, reference, version)


@dataclass(slots=True)
class _Pace:
    """When a run may be judged next (monotonic seconds), how often it was, how often in a row it failed."""

    next_at: float = 0.0
    count: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class _Opinion:
    data_version: int
    run: RunKey
    judgements: Sequence[Judgement]
    verdict: Verdict
    seen: Seen
    silenced: Mapping[str, str]


class Judge:
    """Finds and judges runs; one thread of a process uses it, other processes may do the same on the same database."""

    def __init__(
        self,
        engine: Engine,
        broker: Broker,
        base_url: str,
        *,
        clear_seconds: float,
        rule_set: RuleSet | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._broker = broker
        self._base_url = base_url
        self._clear_seconds = clear_seconds
        self._rules = rule_set or ShippedRules()
        self._clock = clock
        self._paces: dict[int, _Pace] = {}
        self._newest_reference = -1
        self._changes = (-1, -1)
        self._outdated: set[int] = set()
        self._kept = KeptRuns()
        self._began = clock()
        self._looks: dict[int, float] = {}  # when a run's silence is to be judged, by the clock
        self._watch_at = 0.0

    def judge_due(self) -> float:
        """Judge every run whose turn it is; the seconds until the next turn of one that waits, `inf` if none does."""
        with reading(self._engine) as session:
            repository = JudgementRepository(session)
            due = [found.run_id for found in repository.due()]
            newest = repository.newest_reference()
            if newest != self._newest_reference:
                self._newest_reference = newest
                self._outdated |= set(repository.outdated())
            settings = SettingRepository(session)
            changes = settings.state()
            if changes != self._changes:
                self._changes = changes
                self._outdated |= set(settings.unsettled())
            self._outdated |= set(settings.unmuted(self._clock()))
            idle = self._idle(repository)
        waiting = float("inf")
        for run_id in dict.fromkeys([*due, *self._outdated, *idle]):
            pace = self._paces.setdefault(run_id, _Pace())
            left = pace.next_at - time.monotonic()
            if left <= 0.0:
                self._judge_paced(run_id, pace)
                left = max(pace.next_at - time.monotonic(), 0.0) if pace.failures else float("inf")
            waiting = min(waiting, left)
        return min([waiting, *(max(at - self._clock(), 0.0) for at in self._looks.values())])

    def _idle(self, repository: JudgementRepository) -> list[int]:
        """Runs of which nothing new has come, and whose silence is to be judged now."""
        now = self._clock()
        if now >= self._watch_at:
            self._watch_at = now + WATCH_EVERY
            for run_id in repository.watched():  # of other processes and of the one before, too
                self._looks.setdefault(run_id, now)
        idle = [run_id for run_id, at in self._looks.items() if at <= now]
        for run_id in idle:
            del self._looks[run_id]
        return idle

    def judge_run(self, run_id: int) -> bool:
        """Judge one run now; False if another process is at it, or was first."""
        with reading(self._engine) as session:
            work = JudgementRepository(session).work(run_id)
        if work is None:
            with writing(self._engine) as session:
                JudgementRepository(session).add_work(run_id)
        if self._engine.dialect.name == "postgresql":
            # The lock is held while judging, so that two processes do not do the same work.
            with writing(self._engine) as session:
                locked = JudgementRepository(session).lock_work(run_id)
                if locked is None:
                    return False
                opinion = self._judge(run_id)
                recorded, changed = self._store(session, locked, opinion)
        else:
            # There is one lock for all writers: judge first, then write if nobody else has meanwhile.
            done_version = work.done_version if work else 0
            opinion = self._judge(run_id)
            with writing(self._engine) as session:
                locked = JudgementRepository(session).lock_work(run_id)
                if locked is None or locked.done_version != done_version:
                    return False
                recorded, changed = self._store(session, locked, opinion)
        self._outdated.discard(run_id)
        self._look_again(run_id, opinion)
        self._publish(opinion, recorded, changed)
        return True

    def _look_again(self, run_id: int, opinion: _Opinion) -> None:
        self._looks.pop(run_id, None)
        for judgement in opinion.judgements:
            left = data_stopped.look_again(judgement) if judgement.rule == data_stopped.RULE else None
            if left is not None:
                self._looks[run_id] = self._clock() + left

    def _judge_paced(self, run_id: int, pace: _Pace) -> None:
        began = time.monotonic()
        try:
            self.judge_run(run_id)
        except Exception:
            pace.failures += 1
            rest = min(2.0**pace.failures, LONGEST_BACK_OFF)
            log.exception("judging run %d failed %d times in a row; next try in %.0f s", run_id, pace.failures, rest)
        else:
            pace.failures = 0
            pace.count += 1
            rest = FIRST_INTERVAL if pace.count <= FIRST_COUNT else INTERVAL
        ended = time.monotonic()
        pace.next_at = max(began + rest, ended + REST * (ended - began))

    def _judge(self, run_id: int) -> _Opinion:
        with reading(self._engine) as session:
            run = session.get_one(Run, run_id)
            project = session.get_one(Project, run.project_id)
            state = session.get_one(RunState, run_id)
            seen = look(session, run)
            silent = silenced(settings_in_force(session, run), self._clock())
            slug, version = run.reference or "", ""
            try:
                reference = reference_view(session, run)
                view = build_view(session, run, self._kept, Clock(self._clock(), self._began))
                version = reference.version
                judgements = self._rules.evaluate(view, self._kept.levels(run_id, reference.levels))
            except UnknownReferenceError as error:
                judgements = _cannot_tell(self._rules.families, state.last_step or 0, str(error))
        verdict = self._rules.verdict(judgements, slug, version)
        label = RunLabel(run.uuid, run.name, run.stage, project.slug, slug, version)
        key = RunKey(run.id, run.project_id, label)
        return _Opinion(state.data_version, key, judgements, verdict, seen, silent)

    def _store(self, session: Session, work: RunWork, opinion: _Opinion) -> tuple[list[Recorded], bool]:
        now = self._clock()
        repository = JudgementRepository(session)
        families = self._rules.families
        repository.store(opinion.run.run_id, opinion.judgements, families, now)
        body = plain(asdict(opinion.verdict))
        changed = repository.store_verdict(opinion.run.run_id, opinion.verdict.state, body, now)
        recorded = record(
            session,
            opinion.run,
            opinion.judgements,
            families,
            now=now,
            clear_seconds=self._clear_seconds,
            base_url=self._base_url,
            silenced=opinion.silenced,
            rewound=opinion.seen.rewound,
        )
        work.done_version, work.done_at = opinion.data_version, now
        work.done_segment, work.done_change = opinion.seen.segment, opinion.seen.change
        return recorded, changed

    def _publish(self, opinion: _Opinion, recorded: Sequence[Recorded], changed: bool) -> None:
        label = opinion.run.label
        subject = {"run": str(label.uuid), "project": label.project}
        self._broker.publish("verdict", {**subject, "state": opinion.verdict.state, "changed": changed})
        for change in recorded:
            body = {"alert": str(change.alert), "family": change.family, "change": change.kind, "state": change.state}
            self._broker.publish("alert", {**subject, **body})


def _cannot_tell(families: Mapping[str, str], step: int, why: str) -> list[Judgement]:
    return [Judgement(rule, "cannot tell", step, f"Cannot tell: {why}.") for rule in families]
