"""Judges every run that has news, and writes answers, verdict, alerts and messages in one transaction."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Protocol

from sqlalchemy import Engine, bindparam, select
from sqlalchemy.orm import Session

from service.alerts.episodes import CLEAR_LEVEL
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
from service.judgements.kept import MOST_BYTES, KeptRuns
from service.judgements.repository import JudgementRepository
from service.judgements.view import Clock, UnknownReferenceError, build_view, reference_view
from service.rules.effective import silenced
from service.rules.repository import SettingRepository
from service.worker.seen import Seen, look
from service.worker.urgency import Urgency

log = logging.getLogger(__name__)

FIRST_INTERVAL = 0.2  # seconds between two judgements of a run, for its first ones
INTERVAL = 0.5
FIRST_COUNT = 20
ROUND = 0.4  # seconds of judging between two looks at what has come
TOGETHER = 0.1  # seconds of judging that are written in one transaction
REST = 3.0  # a run rests this many times as long as judging it took
LONGEST_BACK_OFF = 300.0
WATCH_EVERY = 30.0  # seconds between looks for runs that have gone silent under another process


_SUBJECT = (
    select(Run, Project.slug, RunState)
    .join(Project, Project.id == Run.project_id)
    .join(RunState, RunState.run_id == Run.id)
    .where(Run.id == bindparam("run"))
)


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
    done_version: int  # what was judged before


class Judge:
    """Finds and judges runs; one thread of a process uses it, other processes may do the same on the same database."""

    def __init__(
        self,
        engine: Engine,
        broker: Broker,
        base_url: str,
        *,
        clear_seconds: float,
        clear_level: float = CLEAR_LEVEL,
        most_bytes: int = MOST_BYTES,
        rule_set: RuleSet | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._broker = broker
        self._base_url = base_url
        self._clear_seconds = clear_seconds
        self._clear_level = clear_level
        self._rules = rule_set or ShippedRules()
        self._clock = clock
        self._paces: dict[int, _Pace] = {}
        self._newest_reference = -1
        self._changes = (-1, -1)
        self._outdated: set[int] = set()
        self._kept = KeptRuns(most_bytes)
        self._began = clock()
        self._looks: dict[int, float] = {}  # when a run's silence is to be judged, by the clock
        self._watch_at = 0.0
        self._urgency = Urgency(self._kept.read_before)
        self._told: dict[int, frozenset[str]] = {}  # by run: the rules that said yes

    def judge_due(self) -> float:
        """Judge every run whose turn it is; the seconds until the next turn of one that waits, `inf` if none does."""
        while (left := self.judge_some()) == 0.0:
            pass
        return left

    def judge_some(self) -> float:
        """Judge every run whose turn it is, and for a moment those that must be read from their start: new data of the
        others are looked for in between. The seconds until the next turn of a run, 0 where one waits for it now."""
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
            urgent = self._urgency.look(session)
        # By how long they have waited; what is urgent first, and nothing waits for it longer than for half a round.
        first = [run_id for run_id in due if run_id in urgent]
        left = self._judge_ready(first, dict.fromkeys([*due, *self._outdated, *idle]))
        looks = (max(at - self._clock(), 1e-3) for at in self._looks.values())
        return min([left, *looks])

    def _judge_ready(self, urgent: Iterable[int], run_ids: Iterable[int]) -> float:
        """`judge_some` of these runs."""
        waiting, now = float("inf"), time.monotonic()
        ready: list[int] = []
        for run_id in run_ids:
            left = self._paces.setdefault(run_id, _Pace()).next_at - now
            if left <= 0.0:
                ready.append(run_id)
            else:
                waiting = min(waiting, left)
        asked = set(ready)
        first = [run_id for run_id in urgent if run_id in asked and self._kept.knows(run_id)]
        known = [run_id for run_id in ready if self._kept.knows(run_id) and run_id not in first]
        others = [run_id for run_id in ready if not self._kept.knows(run_id)]
        begun = time.monotonic()
        more = self._round(first, begun + ROUND / 2.0)
        more |= self._round(known, begun + ROUND)
        more |= self._round(others, begun)
        failed = (self._paces[run_id] for run_id in ready)
        left = [max(pace.next_at - time.monotonic(), 0.0) for pace in failed if pace.failures]
        return 0.0 if more else max(min([waiting, *left]), 1e-3)

    def _round(self, run_ids: Sequence[int], deadline: float) -> bool:
        """Judge runs until the deadline, some at least. Whether any are left."""
        turns = iter(run_ids)
        while self._take_turns(turns):
            if time.monotonic() > deadline:
                return next(turns, None) is not None
        return False

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
        return bool(self._judge_together(iter([run_id]), None))

    def _take_turns(self, turns: Iterator[int]) -> bool:
        """Judge the next runs and write what they come to in one transaction; False where there are none left."""
        tried: list[int] = []

        def noted() -> Iterator[int]:
            for run_id in turns:
                tried.append(run_id)
                yield run_id

        try:
            self._judge_together(noted(), self._paces)
        except Exception:
            if len(tried) == 1:
                self._failed(tried[0])
            else:  # one of them is at fault: the others must not suffer
                for run_id in tried:
                    self._judge_paced(run_id)
        return bool(tried)

    def _judge_together(self, run_ids: Iterator[int], paces: Mapping[int, _Pace] | None) -> list[_Opinion]:
        """Judge runs one after another until TOGETHER seconds have passed or one has something new to tell, and write
        that in one transaction. With `paces` one that cannot be judged is passed over. Returns what was written."""
        first = next(run_ids, None)
        if first is None:
            return []
        run_ids, deadline = chain([first], run_ids), time.monotonic() + TOGETHER
        judged: list[_Opinion] = []
        written: list[tuple[_Opinion, list[Recorded], bool]] = []
        if self._engine.dialect.name == "postgresql":
            # The locks are held while judging, so that two processes do not do the same work.
            with writing(self._engine) as session:
                for run_id in run_ids:
                    work = self._locked(session, run_id)
                    opinion = None if work is None else self._opinion(run_id, paces)
                    if work is None or opinion is None:
                        continue
                    written.append((opinion, *self._store(session, work, opinion)))
                    if time.monotonic() > deadline or self._is_news(opinion):
                        break
        else:
            # There is one lock for all writers: judge first, then write where nobody else has meanwhile.
            for run_id in run_ids:
                opinion = self._opinion(run_id, paces)
                if opinion is None:
                    continue
                judged.append(opinion)
                if time.monotonic() > deadline or self._is_news(opinion):
                    break
            if judged:
                with writing(self._engine) as session:
                    for opinion in judged:
                        work = self._locked(session, opinion.run.run_id)
                        if work is not None and work.done_version == opinion.done_version:
                            written.append((opinion, *self._store(session, work, opinion)))
        for opinion, recorded, changed in written:
            run_id = opinion.run.run_id
            self._outdated.discard(run_id)
            self._urgency.judged([run_id])
            self._told[run_id] = _told(opinion)
            self._look_again(run_id, opinion)
            self._publish(opinion, recorded, changed)
        return [opinion for opinion, _, _ in written]

    def _locked(self, session: Session, run_id: int) -> RunWork | None:
        repository = JudgementRepository(session)
        locked = repository.lock_work(run_id)
        if locked is None and repository.work(run_id) is None:
            with writing(self._engine) if self._engine.dialect.name == "postgresql" else nullcontext(session) as own:
                JudgementRepository(own).add_work(run_id)
            locked = repository.lock_work(run_id)
        return locked

    def _opinion(self, run_id: int, paces: Mapping[int, _Pace] | None) -> _Opinion | None:
        """What is said of a run now; None where that fails and the run has a pace."""
        if paces is None:
            return self._judge(run_id)
        began = time.monotonic()
        try:
            opinion = self._judge(run_id)
        except Exception:
            self._failed(run_id)
            return None
        pace = paces[run_id]
        pace.failures, pace.count = 0, pace.count + 1
        ended = time.monotonic()
        rest = FIRST_INTERVAL if pace.count <= FIRST_COUNT else INTERVAL
        pace.next_at = max(began + rest, ended + REST * (ended - began))
        return opinion

    def _failed(self, run_id: int) -> None:
        """Called where an error is handled: note it, and let the run rest the longer the more often it failed."""
        pace = self._paces[run_id]
        pace.failures += 1
        rest = min(2.0**pace.failures, LONGEST_BACK_OFF)
        log.exception("judging run %d failed %d times in a row; next try in %.0f s", run_id, pace.failures, rest)
        pace.next_at = time.monotonic() + rest

    def _is_news(self, opinion: _Opinion) -> bool:
        """Whether a rule says yes that did not when this process last said something of the run."""
        return not _told(opinion) <= self._told.get(opinion.run.run_id, frozenset())

    def _look_again(self, run_id: int, opinion: _Opinion) -> None:
        self._looks.pop(run_id, None)
        for judgement in opinion.judgements:
            left = data_stopped.look_again(judgement) if judgement.rule == data_stopped.RULE else None
            if left is not None:
                self._looks[run_id] = self._clock() + left

    def _judge_paced(self, run_id: int) -> None:
        try:
            self._judge_together(iter([run_id]), self._paces)
        except Exception:
            self._failed(run_id)

    def _judge(self, run_id: int) -> _Opinion:
        with reading(self._engine) as session:
            run, project, state = session.execute(_SUBJECT, {"run": run_id}).one()
            said = self._kept.said(session, run)
            seen = look(session, run, said.change)
            silent = silenced(said.settings, self._clock())
            slug, version = run.reference or "", ""
            try:
                reference = reference_view(session, run)
                view = build_view(session, run, self._kept, Clock(self._clock(), self._began))
                version = reference.version
                judgements = self._rules.evaluate(view, self._kept.levels(run_id, reference.levels))
            except UnknownReferenceError as error:
                judgements = _cannot_tell(self._rules.families, state.last_step or 0, str(error))
        verdict = self._rules.verdict(judgements, slug, version)
        label = RunLabel(run.uuid, run.name, run.stage, project, slug, version)
        key = RunKey(run.id, run.project_id, label)
        return _Opinion(state.data_version, key, judgements, verdict, seen, silent, seen.done_version)

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
            clear_level=self._clear_level,
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


def _told(opinion: _Opinion) -> frozenset[str]:
    return frozenset(judgement.rule for judgement in opinion.judgements if judgement.state == "yes")


def _cannot_tell(families: Mapping[str, str], step: int, why: str) -> list[Judgement]:
    return [Judgement(rule, "cannot tell", step, f"Cannot tell: {why}.") for rule in families]
