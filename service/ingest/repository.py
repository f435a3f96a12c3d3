"""Writing what hooks send: one transaction for a group of requests from any number of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import Connection, Table, bindparam, insert, select, tuple_, update

from service.database.models import Event, Fingerprint, ItemResult, Journal, Metric, Receipt, Segment
from service.errors import ConflictError, FieldError, NotFoundError, ProblemError
from service.fingerprints.hashes import pack
from service.ingest.facts import Facts, RunFacts
from service.ingest.receipts import ANY, joined_receipts
from service.ingest.requests import Accepted, Batch, Fingerprints, Finish, Items, Post
from service.ingest.weights import weights_at
from service.series.journal import TOKENS, Payload, encode
from service.series.packing import compress
from service.series.state import State, lock_states, number_metrics, save_states

Outcome = Accepted | ProblemError
Row = dict[str, Any]

_RECEIPT: Table = Receipt.__table__  # pyright: ignore[reportAssignmentType]
_JOURNAL: Table = Journal.__table__  # pyright: ignore[reportAssignmentType]
_FINGERPRINT: Table = Fingerprint.__table__  # pyright: ignore[reportAssignmentType]
_ITEMS: Table = ItemResult.__table__  # pyright: ignore[reportAssignmentType]
_EVENT: Table = Event.__table__  # pyright: ignore[reportAssignmentType]
_METRIC: Table = Metric.__table__  # pyright: ignore[reportAssignmentType]
_SEGMENT: Table = Segment.__table__  # pyright: ignore[reportAssignmentType]

_INSERTS = {table.name: insert(table) for table in (_RECEIPT, _JOURNAL, _FINGERPRINT, _ITEMS, _EVENT)}
_KEY = (_RECEIPT.c.segment_id, _RECEIPT.c.process, _RECEIPT.c.kind, _RECEIPT.c.seq)
_RECEIPTS = select(*_KEY, _RECEIPT.c.digest).where(tuple_(*_KEY).in_(bindparam("keys", expanding=True)))
_SET_EVAL = (
    update(_METRIC)
    .where(_METRIC.c.run_id == bindparam("run"), _METRIC.c.id == bindparam("metric"))
    .values(eval_set=bindparam("set"))
)
_FINISH = update(_SEGMENT).where(_SEGMENT.c.id == bindparam("segment")).values(finished_at=bindparam("at"))


@dataclass(frozen=True, slots=True)
class Changed:
    """A run that a transaction added to, for those who listen."""

    project: str
    run: UUID
    last_step: int | None
    version: int = 0  # of the run's data


class IngestRepository:
    """Applies a group of POSTs inside one transaction. A request that is refused leaves the others alone."""

    def __init__(self, connection: Connection, facts: Facts) -> None:
        self._connection = connection
        self._facts = facts
        self._rows: dict[str, list[Row]] = {name: [] for name in _INSERTS}
        self._eval_sets: list[Row] = []
        self._finishes: list[Row] = []
        self._reached: dict[int, tuple[int, int, float | None]] = {}  # run -> step, segment, tokens given there

    def apply(self, posts: Sequence[Post]) -> tuple[list[Outcome], list[Changed]]:
        """What each request is answered, once the transaction is committed, and the runs that changed."""
        places = self._facts.segments(self._connection, [post.segment for post in posts])
        known = [post for post in posts if post.segment in places]
        states = lock_states(self._connection, {places[post.segment][1] for post in known})
        receipts = self._receipts(known, places)
        outcomes: list[Outcome] = []
        changed: dict[int, State] = {}
        for post in posts:
            if post.segment not in places:
                outcomes.append(NotFoundError(f"There is no segment {post.segment}: PUT it first."))
                continue
            segment_id, run_id = places[post.segment]
            digest = receipts.get(post.key)
            post, refused = self._within_limits(post, states[run_id])
            if digest is not None:
                outcomes.append(_repeated(post, digest, refused))
                continue
            try:
                self._add(post, segment_id, states[run_id])
            except ProblemError as error:
                outcomes.append(error)
                continue
            receipts[post.key] = post.digest
            changed[run_id] = states[run_id]
            outcomes.append(Accepted(post.accepted, duplicate=False, refused=refused))
        return outcomes, self._write(changed)

    def _within_limits(self, post: Post, state: State) -> tuple[Post, tuple[FieldError, ...]]:
        """A batch without the metrics that the run has no room for, and those by name; anything else as it is."""
        batch = post.content
        if not isinstance(batch, Batch):
            return post, ()
        known = self._facts.run(self._connection, state.run_id, state.data_version).metrics
        new = [name for name in batch.names if name not in known]
        surplus = new[max(batch.most_metrics - len(known), 0) :]
        if not surplus:
            return post, ()
        batch = batch.only(set(batch.names).difference(surplus))
        why = f"the run has {batch.most_metrics:,} metrics, the most that one may have; it was left out"
        refused = tuple(FieldError(f"metrics.{name}", why) for name in surplus)
        return replace(post, content=batch, accepted=batch.points), refused

    def _receipts(
        self, posts: Sequence[Post], places: dict[UUID, tuple[int, int]]
    ) -> dict[tuple[UUID, int, str, int], bytes]:
        """Digests of those requests that were accepted before."""
        keys = {(places[post.segment][0], post.process, post.kind, post.seq): post.key for post in posts}
        if not keys:
            return {}
        rows = self._connection.execute(_RECEIPTS, {"keys": list(keys)})
        found = {keys[segment, process, kind, seq]: bytes(digest) for segment, process, kind, seq, digest in rows}
        # Afterwards: what is joined between the two queries is found by one of them.
        joined = joined_receipts(self._connection, [key for key, post_key in keys.items() if post_key not in found])
        return found | {keys[key]: ANY for key in joined}

    def _add(self, post: Post, segment_id: int, state: State) -> None:
        facts = self._facts.run(self._connection, state.run_id, state.data_version)
        own = {"run_id": state.run_id, "segment_id": segment_id}
        content = post.content
        if isinstance(content, Batch):
            self._add_batch(post, content, segment_id, state, facts)
        elif isinstance(content, Fingerprints):
            self._rows["fingerprint"].append(own | _fingerprint_row(content))
        elif isinstance(content, Items):
            row = {"task": content.task, "step": content.step, "items": content.n, "correct": content.correct}
            self._rows["item_result"].append(own | row)
        elif isinstance(content, Finish):
            self._finishes.append({"segment": segment_id, "at": content.at})
        else:
            row = {"step": content.step, "kind": content.kind, "value": {"value": content.value}, "at": content.at}
            self._rows["event"].append(own | row)
        self._rows["receipt"].append(
            {
                "segment_id": segment_id,
                "process": post.process,
                "kind": post.kind,
                "seq": post.seq,
                "digest": post.digest,
            }
        )
        state.data_version += 1
        facts.version = state.data_version
        state.last_data_at = post.received_at

    def _add_batch(self, post: Post, batch: Batch, segment_id: int, state: State, facts: RunFacts) -> None:
        new = [name for name in batch.names if name not in facts.metrics]
        segment = facts.segments[segment_id]
        weights = self._weights(batch, segment_id, facts, state.run_id)
        if new:
            facts.metrics |= number_metrics(self._connection, state.run_id, facts.metrics, new)
        payload = Payload(
            [*batch.axes, *(facts.metrics[name] for name in batch.names)],
            batch.steps.tobytes(),
            batch.values,
            batch.present,
            None if weights is None else weights.tobytes(),
        )
        self._rows["journal"].append(
            {
                "run_id": state.run_id,
                "segment_id": segment_id,
                "received_at": post.received_at,
                "steps": len(batch.steps),
                "points": batch.points,
                "payload": encode(payload),
            }
        )
        state.points += batch.points
        state.steps += len(batch.steps)
        state.rows += 1
        self._note_eval_sets(post, batch, segment_id, state, facts)
        if len(batch.steps) and (segment.kind != "evaluator" or not facts.trainers):
            self._note_reached(batch, segment_id, state, facts)

    def _weights(self, batch: Batch, segment_id: int, facts: RunFacts, run_id: int) -> np.ndarray[Any, Any] | None:
        if batch.weights is not None:
            weights = self._facts.weights(self._connection, batch.weights, run_id)
            return np.full(len(batch.steps), weights, np.int64)
        if facts.segments[segment_id].kind != "evaluator":
            return None
        checkpoints = self._connection.execute(
            select(Event.step, Event.segment_id, Event.at)
            .where(Event.run_id == run_id, Event.kind == "checkpoint", Event.step.in_(batch.steps.tolist()))
            .order_by(Event.at, Event.id)
        )
        return weights_at(batch, [(step, segment, at) for step, segment, at in checkpoints], facts.trainers)

    def _note_eval_sets(self, post: Post, batch: Batch, segment_id: int, state: State, facts: RunFacts) -> None:
        """Remember which evaluation set a metric is of; a change is kept as an event."""
        for name, eval_set in batch.eval_sets.items():
            if name not in facts.metrics or facts.eval_sets.get(name) == eval_set:
                continue
            facts.eval_sets[name] = eval_set
            self._eval_sets.append({"run": state.run_id, "metric": facts.metrics[name], "set": eval_set})
            self._rows["event"].append(
                {
                    "run_id": state.run_id,
                    "segment_id": segment_id,
                    "step": int(batch.steps.min()),
                    "kind": "evaluation_set",
                    "value": {"value": {"metric": name, "set": eval_set}},
                    "at": post.received_at,
                }
            )

    def _note_reached(self, batch: Batch, segment_id: int, state: State, facts: RunFacts) -> None:
        live = batch.steps <= facts.limits[segment_id]
        if not live.any():
            return
        index = int(np.argmax(np.where(live, batch.steps, -1)))
        step = int(batch.steps[index])
        before = self._reached.get(state.run_id)
        if step > (state.last_step if state.last_step is not None else -1) and (before is None or step >= before[0]):
            tokens = batch.axis(TOKENS)
            given = None if tokens is None or np.isnan(tokens[index]) else float(tokens[index])
            self._reached[state.run_id] = (step, segment_id, given)

    def _write(self, changed: dict[int, State]) -> list[Changed]:
        connection = self._connection
        for name, rows in self._rows.items():
            if rows:
                connection.execute(_INSERTS[name], rows)
        if self._eval_sets:
            connection.execute(_SET_EVAL, self._eval_sets)
        if self._finishes:
            connection.execute(_FINISH, self._finishes)
        told: list[Changed] = []
        for run_id, state in changed.items():
            facts = self._facts.run(self._connection, run_id, state.data_version)
            if run_id in self._reached:
                step, segment_id, tokens = self._reached[run_id]
                if tokens is None:
                    computed = float(facts.axis.of(np.array([step], np.int64), segment_id)[0])
                    tokens = None if np.isnan(computed) else computed
                state.last_step, state.last_tokens = step, tokens
            told.append(Changed(facts.project, facts.uuid, state.last_step, state.data_version))
        save_states(self._connection, changed.values())
        return told


def _repeated(post: Post, digest: bytes, refused: tuple[FieldError, ...]) -> Outcome:
    if digest in (post.digest, ANY):
        return Accepted(post.accepted, duplicate=True, refused=refused)
    return ConflictError(
        f"seq: {post.kind} {post.seq} of process {post.process} was accepted before with other content.",
        errors=[FieldError("seq", f"{post.seq} was used before with other content")],
    )


def _fingerprint_row(content: Fingerprints) -> Row:
    return {
        "kind": content.kind,
        "host": content.host,
        "set_name": content.set_name,
        "windows": content.windows,
        "sample": content.sample,
        "points": len(content.hashes),
        "steps": compress(content.steps),
        "hashes": pack(content.kind, content.hashes),
        "counts": None if content.counts is None else compress(content.counts),
        "seen": content.seen.tobytes(),
    }
