"""A reference, runs with points, and rules that say what a test wants, in a real database."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from service.broker import Broker
from service.database.engine import writing
from service.database.models import (
    Alert,
    AlertChange,
    Channel,
    Delivery,
    JudgementRow,
    Project,
    Reference,
    ReferenceRun,
    Run,
    Segment,
    VerdictRow,
)
from service.detect.engine import Verdict
from service.detect.inputs import RunView
from service.detect.judgement import Judgement
from service.references.bundle import load_bundle
from service.references.repository import ReferenceRepository
from service.references.shipped import BUNDLES
from service.series.writer import write_points
from service.worker.judge import Judge

TRAIN = "train/ce_loss"
NONE = np.empty(0, np.int64)


class Scripted:
    """Rules a, b (one family) and c (another); `say` is called with each view."""

    families: Mapping[str, str] = {"a": "curve_and_data", "b": "curve_and_data", "c": "stability"}

    def __init__(self, say: Callable[[RunView], Mapping[str, Any]]) -> None:
        self.say = say
        self.views: list[RunView] = []

    def evaluate(self, view: RunView, cache: Any) -> Sequence[Judgement]:
        self.views.append(view)
        step = max(int(series.steps[-1]) for series in view.metrics.values())
        said = self.say(view)
        return [Judgement(rule, said.get(rule, "no"), step, f"{rule} at {step}") for rule in self.families]

    def verdict(self, judgements: Sequence[Judgement], reference: str, version: str) -> Verdict:
        drifting = any(judgement.state == "yes" for judgement in judgements)
        return Verdict("drifting" if drifting else "consistent", "scripted", reference, version)


class Heard(Broker):
    """A broker that keeps what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.notices: list[tuple[str, dict[str, Any]]] = []

    def publish(self, kind: str, body: dict[str, Any], *, heard: bool = True) -> None:
        self.notices.append((kind, body))
        super().publish(kind, body, heard=heard)

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.notices]


class JudgedWorld:
    """The lab's reference is installed; runs are made and fed by hand."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.broker = Heard()
        with writing(engine) as session:
            ReferenceRepository(session).install(load_bundle(BUNDLES / "lab"))

    def run(self, name: str = "r", *, role: str = "reproduction", reference: str | None = "lab", **more: Any) -> int:
        """A run with one trainer segment."""
        with writing(self.engine) as session:
            project = session.scalars(select(Project).where(Project.slug == "lab")).one()
            run = Run(uuid=uuid4(), project_id=project.id, name=name, stage="stage1", role=role, reference=reference,
                      token_offset=0.0, created_at=time.time(), **more)  # fmt: skip
            session.add(run)
            session.flush()
            self.segment(session, run.id)
            return run.id

    @staticmethod
    def segment(session: Session, run_id: int, start_step: int = 0, **more: Any) -> None:
        session.add(
            Segment(
                uuid=uuid4(),
                run_id=run_id,
                kind="trainer",
                start_step=start_step,
                tokens_per_step=1024,
                digest=b"",
                **({"topology": {}, "config": {}, "versions": {}, "started_at": 1e9 + start_step} | more),
            )
        )
        session.flush()

    def points(self, run_id: int, steps: Sequence[int], values: Sequence[float] = (), metric: str = TRAIN) -> None:
        """Points of the run's newest segment."""
        at = np.asarray(steps, np.int64)
        loss = np.asarray(values or [3.0] * len(at), np.float64)
        with writing(self.engine) as session:
            newest = select(Segment.id).where(Segment.run_id == run_id).order_by(Segment.id.desc()).limit(1)
            write_points(session, run_id, session.scalars(newest).one(), NONE, None, None, {metric: (at, loss)})

    def channel(self, url: str = "https://example.com/") -> int:
        with writing(self.engine) as session:
            channel = Channel(uuid=uuid4(), name=url, kind="slack", url=url, enabled=True, created_at=0.0)
            session.add(channel)
            session.flush()
            return channel.id

    def reference_version(self, version: str) -> None:
        """Another version of the lab's reference with the same curves."""
        with writing(self.engine) as session:
            old = session.scalars(select(Reference).where(Reference.slug == "lab")).first()
            assert old is not None
            new = Reference(slug="lab", version=version, title=old.title, digest=version, installed_at=0.0,
                            description=old.description)  # fmt: skip
            session.add(new)
            session.flush()
            for link in session.scalars(select(ReferenceRun).where(ReferenceRun.reference_id == old.id)).all():
                session.add(
                    ReferenceRun(reference_id=new.id, stage=link.stage, sibling=link.sibling, run_id=link.run_id)
                )

    def judge(self, rules: Any, **more: Any) -> Judge:
        return Judge(self.engine, self.broker, "http://pacenote", clear_seconds=60.0, rule_set=rules, **more)

    def _all(self, query: Any) -> list[Any]:
        with Session(self.engine, expire_on_commit=False) as session:
            return list(session.scalars(query))

    def judgements(self, run_id: int) -> dict[str, JudgementRow]:
        found = self._all(select(JudgementRow).where(JudgementRow.run_id == run_id))
        return {row.rule: row for row in found}

    def verdict(self, run_id: int) -> VerdictRow | None:
        return next(iter(self._all(select(VerdictRow).where(VerdictRow.run_id == run_id))), None)

    def alerts(self) -> list[Alert]:
        return self._all(select(Alert).order_by(Alert.id))

    def changes(self) -> list[str]:
        return [
            change.kind for change in self._all(select(AlertChange).order_by(AlertChange.alert_id, AlertChange.number))
        ]

    def deliveries(self) -> list[Delivery]:
        return self._all(select(Delivery).order_by(Delivery.id))
