"""Judges every run that has news, and writes answers, verdict, alerts and messages in one transaction."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass

from sqlalchemy import BindParameter, Engine, and_, bindparam, select
from sqlalchemy.orm import Session

from service.alerts.episodes import CLEAR_LEVEL
from service.alerts.message import RunLabel
from service.alerts.record import Recorded, RunKey, record
from service.alerts.repository import AlertRepository
from service.broker import Broker
from service.database.engine import reading, writing
from service.database.models import Project, Run, RunState, RunWork
from service.detect.judgement import Judgement
from service.detect.rules import data_stopped
from service.judgements.bodies import plain
from service.judgements.kept import MOST_BYTES, KeptRuns
from service.judgements.repository import TASK, JudgementRepository
from service.judgements.view import Clock, ReferenceView, UnknownReferenceError, build_view, reference_view
from service.rules.effective import silenced
from service.rules.repository import SettingRepository
from service.worker.opinion import Opinion, RuleSet, ShippedRules, Stored, Subject, cannot_tell, changed_answers
from service.worker.seen import look
from service.worker.urgency import Urgency

log = logging.getLogger(__name__)

FIRST_INTERVAL = 0.2  # seconds between two judgements of a run, for its first ones
INTERVAL = 0.5
FIRST_COUNT = 20
TOGETHER = 0.1  # seconds of judging that are written in one transaction: then comes a look at what is new
HURRIED = 0.2  # seconds that what is urgent may take from those that have waited longer, before these have a turn
TURNS = 3  # turns of these, after which runs that must be read from their start, or have nothing new, have one
AT_ONCE = 64  # runs for which what is new is read by one set of queries
REMEMBERED = 2_000  # runs of which it is known what was written last
REST = 3.0  # a run rests this many times as long as judging it took
LONGEST_BACK_OFF = 300.0
WATCH_EVERY = 30.0  # seconds between looks for runs that have gone silent under another process


_SOME: BindParameter[Sequence[int]] = bindparam("runs", expanding=True)
_SUBJECTS = (
    select(Run, Project.slug, RunState, RunWork)
    .join(Project, Project.id == Run.project_id)
    .join(RunState, RunState.run_id == Run.id)
    .outerjoin(RunWork, and_(RunWork.run_id == Run.id, RunWork.task == TASK))
    .where(Run.id.in_(_SOME))
)


@dataclass(slots=True)
class _Pace:
    """When a run may be judged next (monotonic seconds), and when if something urgent has come; how often it was, how
    often in a row it failed."""

    next_at: float = 0.0
    urgent_at: float = 0.0
    count: int = 0
    failures: int = 0


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
        self._hurried = 0.0  # seconds that urgent runs were judged in a row
        self._turns = 0  # of runs that are kept, since one of the others
        self._others = 0  # turns of those
        self._stored: OrderedDict[int, Stored] = OrderedDict()  # by run, what was written last by this process

    def judge_due(self) -> float:
        """Judge every run whose turn it is; the seconds until the next turn of one that waits, `inf` if none does."""
        while (left := self.judge_some()) == 0.0:
            pass
        return left

    def judge_some(self) -> float:
        """Look at what has come, and judge for a moment: what is most urgent of it waits for nothing else. The seconds
        until the next turn of a run, 0 where one waits for it now."""
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
        fresh = set(due)
        self._urgency.keep(fresh)
        now, ready, waiting = time.monotonic(), list[int](), [float("inf")]
        for run_id in dict.fromkeys([*due, *self._outdated, *idle]):
            pace = self._paces.setdefault(run_id, _Pace())
            left = (pace.urgent_at if run_id in urgent else pace.next_at) - now
            if left <= 0.0:
                ready.append(run_id)
            else:
                waiting.append(left)
        line, hurried = self._line(ready, fresh, urgent)
        tried = self._judge_ready(line)
        self._hurried = self._hurried + time.monotonic() - now if hurried else 0.0
        if tried < len(ready):
            return 0.0
        waiting += [pace.next_at - time.monotonic() for pace in map(self._paces.__getitem__, ready) if pace.failures]
        waiting += [at - clock for clock in [self._clock()] for at in self._looks.values() if at > clock]
        return max(min(waiting), 1e-3)

    def _line(
        self, ready: Sequence[int], fresh: Collection[int], urgent: Mapping[int, float]
    ) -> tuple[Sequence[int], bool]:
        """Who is judged in this turn, and whether that is for urgency. The most urgent are first, and those on which an
        alert rests by itself alone, so that nothing else is read before them; after a while come those that have waited
        longest (`ready` is in this order), and after some turns of theirs, by turns, those that must be read from their
        start and those that are not `fresh`: of these nothing new has come, but their silence, or what people have
        said of them, is to be judged however much comes of others."""
        known = [run_id for run_id in ready if run_id in fresh and self._kept.knows(run_id)]
        hurried = sorted((run_id for run_id in known if run_id in urgent), key=lambda run_id: -urgent[run_id])
        if hurried and self._hurried < HURRIED:
            return [run_id for run_id in hurried if urgent[run_id] == math.inf] or hurried, True
        unread = [run_id for run_id in ready if run_id in fresh and not self._kept.knows(run_id)]
        others = [line for line in (unread, [run_id for run_id in ready if run_id not in fresh]) if line]
        if others and (not known or self._turns >= TURNS):
            self._turns, self._others = 0, self._others + 1
            return others[self._others % len(others)], False
        self._turns += 1
        return known, False

    def _judge_ready(self, line: Iterable[int]) -> int:
        """Judge the first of a line, passing over those that another process is at. How many it has come to."""
        turns, tried = deque(line), 0
        while turns:
            before = len(turns)
            written = self._take_turn(turns)
            tried += before - len(turns)
            if written:
                break
        return tried

    def _idle(self, repository: JudgementRepository) -> list[int]:
        """Runs of which nothing new has come, and whose silence is to be judged now."""
        now = self._clock()
        if now >= self._watch_at:
            self._watch_at = now + WATCH_EVERY
            for run_id in repository.watched():  # of other processes and of the one before, too
                self._looks.setdefault(run_id, now)
        return [run_id for run_id, at in self._looks.items() if at <= now]

    def judge_run(self, run_id: int) -> bool:
        """Judge one run now; False if another process is at it, or was first."""
        written, _ = self._judge_together([run_id], None)
        return bool(written)

    def _take_turn(self, turns: deque[int]) -> bool:
        """Judge the next runs and write what they come to in one transaction. Whether anything was judged."""
        asked = [turns.popleft() for _ in range(min(AT_ONCE, len(turns)))]
        tried: list[int] = []
        written = True
        try:
            written = bool(self._judge_together(asked, self._paces, tried)[0])
        except Exception:
            if len(tried) <= 1:
                self._failed(tried[0] if tried else asked[0])
                tried = tried or asked[:1]
            else:  # one of them is at fault: the others must not suffer
                for run_id in tried:
                    self._judge_paced(run_id)
        done = set(tried)
        turns.extendleft(run_id for run_id in reversed(asked) if run_id not in done)
        return written

    def _judge_together(
        self, run_ids: Sequence[int], paces: Mapping[int, _Pace] | None, tried: list[int] | None = None
    ) -> tuple[list[Stored], list[int]]:
        """Judge runs one after another until TOGETHER seconds have passed or one has something new to tell, and write
        that in one transaction. With `paces` one that cannot be judged is passed over. Returns what was written and,
        also in `tried`, which runs were looked at."""
        tried = [] if tried is None else tried
        if self._engine.dialect.name == "postgresql":
            # The locks are held while judging, so that two processes do not do the same work.
            with writing(self._engine) as session:
                works = self._locked(session, run_ids)
                tried += [run_id for run_id in run_ids if run_id not in works]
                written = self._store(session, works, self._opinions(list(works), paces, tried))
        else:
            # There is one lock for all writers: judge first, then write where nobody else has meanwhile.
            judged, written = self._opinions(run_ids, paces, tried), list[Stored]()
            if judged:
                with writing(self._engine) as session:
                    works = self._locked(session, [opinion.run.run_id for opinion in judged])
                    written = self._store(session, works, judged)
        for stored in written:
            run_id = stored.opinion.run.run_id
            self._stored.pop(run_id, None)
            self._stored[run_id] = stored
            self._outdated.discard(run_id)
            self._urgency.judged([run_id])
            self._look_again(run_id, stored.opinion)
            self._publish(stored)
        while len(self._stored) > REMEMBERED:
            self._stored.popitem(last=False)
        return written, tried

    def _locked(self, session: Session, run_ids: Sequence[int]) -> dict[int, RunWork]:
        """The records of judging in order of `run_ids`, without those that another process holds."""
        repository = JudgementRepository(session)
        locked = repository.lock_works(run_ids)
        missing = repository.unknown(run_ids) if len(locked) < len(run_ids) else []
        if missing:
            with writing(self._engine) if self._engine.dialect.name == "postgresql" else nullcontext(session) as own:
                for run_id in missing:
                    JudgementRepository(own).add_work(run_id)
            locked |= repository.lock_works(missing)
        return {run_id: locked[run_id] for run_id in run_ids if run_id in locked}

    def _opinions(self, run_ids: Sequence[int], paces: Mapping[int, _Pace] | None, tried: list[int]) -> list[Opinion]:
        """What is said of runs now, as far as time allows. One that fails ends it, where it has a pace."""
        begun, made = time.monotonic(), list[Opinion]()
        if not run_ids:
            return made
        with reading(self._engine) as session:
            self._kept.look_ahead(session, run_ids)
            subjects = {row[0].id: Subject(*row) for row in session.execute(_SUBJECTS, {"runs": run_ids})}
            references: dict[tuple[str | None, str], ReferenceView] = {}
            ready = time.monotonic()
            deadline = ready + max(TOGETHER, ready - begun)  # what was read for many is not read for few
            for run_id in run_ids:
                tried.append(run_id)
                self._looks.pop(run_id, None)
                began = time.monotonic()
                try:
                    made.append(self._judge(session, subjects[run_id], references))
                except Exception:
                    if paces is None:
                        raise
                    self._failed(run_id)
                    break  # the transaction may be broken
                if paces is not None:
                    _rest(paces[run_id], began)
                if time.monotonic() > deadline or self._is_news(made[-1]):
                    break
        return made

    def _failed(self, run_id: int) -> None:
        """Called where an error is handled: note it, and let the run rest the longer the more often it failed."""
        pace = self._paces[run_id]
        pace.failures += 1
        rest = min(2.0**pace.failures, LONGEST_BACK_OFF)
        log.exception("judging run %d failed %d times in a row; next try in %.0f s", run_id, pace.failures, rest)
        pace.next_at = pace.urgent_at = time.monotonic() + rest

    def _is_news(self, opinion: Opinion) -> bool:
        """Whether a rule says yes that did not when this process last said something of the run."""
        before = self._stored.get(opinion.run.run_id)
        return not opinion.told <= (frozenset() if before is None else before.opinion.told)

    def _look_again(self, run_id: int, opinion: Opinion) -> None:
        self._looks.pop(run_id, None)
        for judgement in opinion.judgements:
            left = data_stopped.look_again(judgement) if judgement.rule == data_stopped.RULE else None
            if left is not None:
                self._looks[run_id] = self._clock() + left

    def _judge_paced(self, run_id: int) -> None:
        try:
            self._judge_together([run_id], self._paces)
        except Exception:
            self._failed(run_id)

    def _judge(
        self, session: Session, subject: Subject, references: dict[tuple[str | None, str], ReferenceView]
    ) -> Opinion:
        run, now = subject.run, self._clock()
        said = self._kept.said(session, run)
        seen = look(session, run, said.change, subject.work, self._kept.newest_segment(session, run.id))
        slug, version = run.reference or "", ""
        try:
            reference = references.get((run.reference, run.stage)) or reference_view(session, run)
            references[run.reference, run.stage] = reference
            view = build_view(session, run, self._kept, Clock(now, self._began), reference)
            version = reference.version
            judgements = self._rules.evaluate(view, self._kept.levels(run.id, reference.levels))
        except UnknownReferenceError as error:
            judgements = cannot_tell(self._rules.families, subject.state.last_step or 0, str(error))
        verdict = self._rules.verdict(judgements, slug, version)
        label = RunLabel(run.uuid, run.name, run.stage, subject.project, slug, version)
        key, silent = RunKey(run.id, run.project_id, label), silenced(said.settings, now)
        return Opinion(subject.state.data_version, key, judgements, verdict, seen, silent, seen.done_version)

    def _store(self, session: Session, works: Mapping[int, RunWork], opinions: Sequence[Opinion]) -> list[Stored]:
        """Write what is new: answers and verdicts that are other ones, and what that does to alerts."""
        now, families = self._clock(), self._rules.families
        mine = [o for o in opinions if o.run.run_id in works and works[o.run.run_id].done_version == o.done_version]
        repository = JudgementRepository(session)
        alerted = AlertRepository(session).with_current([opinion.run.run_id for opinion in mine])
        answers, still, written = list[tuple[int, Judgement]](), list[int](), list[Stored]()
        for opinion in mine:
            run_id, work = opinion.run.run_id, works[opinion.run.run_id]
            before = self._stored.get(run_id)
            before = before.opinion if before is not None and before.stands(work) else None
            changed = None if before is None else changed_answers(before, opinion)
            if changed is None:
                repository.store(run_id, opinion.judgements, families, now)
            else:
                answers += [(run_id, judgement) for judgement in changed]
            other = False
            if before is not None and before.verdict == opinion.verdict:
                still.append(run_id)
            else:
                body = plain(asdict(opinion.verdict))
                other = repository.store_verdict(run_id, opinion.verdict.state, body, now)
            recorded: Sequence[Recorded] = ()
            if before is None or opinion.told or run_id in alerted:
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
            written.append(Stored(opinion, now, recorded, other))
        repository.store_changed(answers, families, now)
        repository.still(still, now)
        return written

    def _publish(self, stored: Stored) -> None:
        label, state = stored.opinion.run.label, stored.opinion.verdict.state
        subject = {"run": str(label.uuid), "project": label.project}
        self._broker.publish("verdict", {**subject, "state": state, "changed": stored.changed, "at": stored.at})
        for change in stored.recorded:
            body = {"alert": str(change.alert), "family": change.family, "change": change.kind, "state": change.state}
            self._broker.publish("alert", {**subject, **body, "number": change.number})


def _rest(pace: _Pace, began: float) -> None:
    """A run was judged, and may be again after a while."""
    ended = time.monotonic()
    pace.failures, pace.count = 0, pace.count + 1
    rest = FIRST_INTERVAL if pace.count <= FIRST_COUNT else INTERVAL
    pace.urgent_at = ended + REST * (ended - began)
    pace.next_at = max(began + rest, pace.urgent_at)
