"""Finding what a setting is about: a project by its slug, a run by its id."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.orm import Session

from service.context import Context
from service.database.models import Project, Run
from service.detect.engine import FAMILY_OF_RULE
from service.detect.settings import LIMITS
from service.errors import NotFoundError
from service.rules.repository import Scope, SettingRepository
from service.runs.endpoints import unknown_run
from service.runs.repository import RunRepository


@dataclass(frozen=True, slots=True)
class Place:
    """A scope with the names it has outside: the project's slug, the run's id."""

    scope: Scope
    project: str
    run: Run | None = None

    @property
    def run_id(self) -> UUID | None:
        """The run's public id."""
        return None if self.run is None else self.run.uuid


def place_of_run(session: Session, uuid: UUID) -> Place:
    """A run's scope.

    Raises:
        NotFoundError: there is no such run.
    """
    run = RunRepository(session).by_uuid(uuid)
    if run is None:
        raise unknown_run(uuid)
    return Place(Scope(run.project_id, run.id), session.get_one(Project, run.project_id).slug, run)


def place_of_project(session: Session, slug: str) -> Place:
    """A project's scope.

    Raises:
        NotFoundError: there is no such project.
    """
    project = SettingRepository(session).project(slug)
    if project is None:
        raise NotFoundError(f"There is no project {slug}. GET /api/v1/projects lists the projects.")
    return Place(Scope(project.id), project.slug)


def known_rule(rule: str) -> str:
    """The name of the rule, or of a limit that is set beside one.

    Raises:
        NotFoundError: there is no such rule.
    """
    if rule not in FAMILY_OF_RULE and rule not in LIMITS:
        raise NotFoundError(f"There is no rule {rule}; there are {', '.join([*FAMILY_OF_RULE, *LIMITS])}.")
    return rule


def publish(context: Context, place: Place) -> None:
    """Tell listeners, and the judge, that a scope is judged in another way now."""
    body = {"project": place.project} | ({} if place.run is None else {"run": str(place.run.uuid)})
    context.broker.publish("settings", body)
