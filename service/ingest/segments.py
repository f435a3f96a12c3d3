"""Making projects, runs and segments from a segment's PUT."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import Connection, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from service.database.models import Base, Project, Reference, Run, RunState, RunWork, Segment
from service.errors import ConflictError, FieldError
from service.ingest.requests import Accepted, Put
from service.ingest.wire import SegmentBody
from service.series.live import AWAITED, NO_LIMIT
from service.series.state import lock_states, save_states

RUN_NAMESPACE = UUID("6b1f9a52-6c1e-5d0e-9b59-3f7c0d1a7e11")
TASKS = ("seal", "judge")
_KNOWN = select(Segment.kind, Segment.digest)


def run_uuid(project: str, name: str, stage: str) -> UUID:
    """A run's public id: whoever knows its three names knows it, online or not."""
    return uuid5(RUN_NAMESPACE, json.dumps([project, name, stage], ensure_ascii=False, separators=(",", ":")))


def ensure_project(session: Session, slug: str, now: float) -> int:
    """The project's key; it is created if it is missing, also when another process does so at the same moment."""
    return _ensure(session, Project, {"slug": slug}, {"created_at": now})


def ensure_run(session: Session, project_id: int, uuid: UUID, values: Mapping[str, object], now: float) -> int:
    """The run's key; the run, its state and its work rows are created if they are missing, `values` only then."""
    run_id = _ensure(session, Run, {"uuid": uuid}, {"project_id": project_id, "created_at": now, **values})
    _insert_missing(session, RunState, {"run_id": run_id, "data_version": 0})
    for task in TASKS:
        _insert_missing(session, RunWork, {"run_id": run_id, "task": task, "done_version": 0})
    return run_id


def put_segment(session: Session, put: Put) -> Accepted:
    """Create the segment, and the project and run it belongs to, where they are missing.

    Raises:
        ConflictError: the id was used with another body, or the run is another one than the body says.
    """
    known = session.execute(_KNOWN.where(Segment.uuid == put.segment)).one_or_none()
    if known is not None and known.kind != AWAITED:
        return _repeated(known.digest, put)
    body = put.body
    project_id = ensure_project(session, body.project, put.received_at)
    run_id = _ensure_run_of(session, project_id, put)
    state = lock_states(session.connection(), [run_id])[run_id]
    segment = {
        "run_id": run_id,
        "kind": body.kind,
        "start_step": body.start_step,
        "start_tokens": body.start_tokens,
        "tokens_per_step": body.tokens_per_step,
        "ramp": [list(entry) for entry in body.ramp] if body.ramp else None,
        "topology": body.topology,
        "config": body.config,
        "versions": body.versions,
        "sample_rows": body.sample_rows,
        "started_at": put.started_at,
        "digest": put.digest,
    }
    if not _insert_missing(session, Segment, {"uuid": put.segment, **segment}):
        kept = update(Segment).where(Segment.uuid == put.segment, Segment.kind == AWAITED).values(segment)
        if session.connection().execute(kept.returning(Segment.id)).first() is None:
            raced = session.execute(_KNOWN.where(Segment.uuid == put.segment)).one()
            return _repeated(raced.digest, put)
    if body.kind == "trainer" and state.last_step is not None and state.last_step > body.start_step:
        newest = session.scalar(
            select(Segment.uuid)
            .where(Segment.run_id == run_id, Segment.kind == "trainer")
            .order_by(Segment.started_at.desc(), Segment.uuid.desc())
            .limit(1)
        )
        if newest == put.segment:
            state.last_step, state.last_tokens = body.start_step, body.start_tokens
    state.data_version += 1
    save_states(session.connection(), [state])
    return Accepted(1, duplicate=False)


def keep_place(connection: Connection, uuid: UUID, run_id: int) -> int:
    """The key of a segment. If it was not announced yet a row without content keeps its place, so that what is said
    about its weights now is right as soon as it is: until then it supersedes nothing and nothing supersedes it."""
    known = connection.execute(select(Segment.id).where(Segment.uuid == uuid)).scalar_one_or_none()
    if known is not None:
        return known
    row = {"run_id": run_id, "kind": AWAITED, "start_step": 0, "started_at": 0.0, "digest": b""}
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    empty: dict[str, Any] = {"topology": {}, "config": {}, "versions": {}}
    connection.execute(dialect.insert(Segment).values(uuid=uuid, **row, **empty).on_conflict_do_nothing())
    return connection.execute(select(Segment.id).where(Segment.uuid == uuid)).scalar_one()


def _repeated(digest: bytes, put: Put) -> Accepted:
    if bytes(digest) != put.digest:
        raise ConflictError(
            f"Segment {put.segment} was announced before with another body. A new start needs a new id."
        )
    return Accepted(1, duplicate=True)


def _ensure_run_of(session: Session, project_id: int, put: Put) -> int:
    body = put.body
    uuid = run_uuid(body.project, body.run, body.stage)
    fork = _fork(body)
    values = {
        "name": body.run,
        "stage": body.stage,
        "role": body.role,
        "reference": body.reference,
        "token_offset": _token_offset(session, body.reference, body.stage),
        "forked_from": fork[0] if fork else None,
        "forked_at_step": fork[1] if fork else None,
        "data": {"rows": body.data.rows, "epochs": body.data.epochs} if body.data else None,
    }
    run_id = ensure_run(session, project_id, uuid, values, put.received_at)
    run = session.get(Run, run_id)
    assert run is not None
    if run.role != body.role:
        raise _differs("role", f"the run is a {run.role}", body.role)
    if run.reference and body.reference and run.reference != body.reference:
        raise _differs("reference", f"the run is compared with {run.reference}", body.reference)
    if fork and run.forked_from and (run.forked_from, run.forked_at_step) != fork:
        raise _differs(
            "forked_from", f"the run was forked from {run.forked_from} at {run.forked_at_step}", str(fork[0])
        )
    if body.reference and not run.reference:
        run.reference = body.reference
    if run.reference:  # the reference may have been installed since the run began
        run.token_offset = _token_offset(session, run.reference, run.stage) or run.token_offset
    if body.data:
        run.data = {"rows": body.data.rows, "epochs": body.data.epochs}
    session.flush()
    return run_id


def _differs(field: str, known: str, given: str) -> ConflictError:
    return ConflictError(f"{field}: {known}, not {given}", errors=[FieldError(field, f"{known}, not {given}")])


def _fork(body: SegmentBody) -> tuple[UUID, int] | None:
    if body.forked_from is None:
        return None
    try:
        parent = UUID(body.forked_from.run)
    except ValueError:
        parent = run_uuid(body.project, body.forked_from.run, body.stage)
    return parent, min(body.forked_from.step, NO_LIMIT)


def _token_offset(session: Session, reference: str | None, stage: str) -> float:
    """Where the stage begins on the project's token axis, as the newest version of the reference says."""
    if reference is None:
        return 0.0
    newest = select(Reference.description).where(Reference.slug == reference)
    described = session.scalar(newest.order_by(Reference.installed_at.desc(), Reference.id.desc()).limit(1))
    stages: list[dict[str, Any]] = (described or {}).get("stages", [])  # also those without published curves
    return next((float(entry["token_offset"]) for entry in stages if entry["name"] == stage), 0.0)


def _ensure(session: Session, model: type[Base], key: dict[str, object], values: dict[str, object]) -> int:
    _insert_missing(session, model, {**key, **values})
    return session.execute(select(model.__table__.c.id).filter_by(**key)).scalar_one()


def _insert_missing(session: Session, model: type[Base], values: dict[str, object]) -> bool:
    """Insert a row unless one with the same key is there. Returns whether it was inserted."""
    dialect = postgresql if session.connection().dialect.name == "postgresql" else sqlite
    statement = dialect.insert(model).values(**values).on_conflict_do_nothing()
    key = next(iter(model.__table__.primary_key))
    return session.connection().execute(statement.returning(key)).first() is not None
