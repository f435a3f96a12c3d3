"""Which runs a list shows, and in which order: the conditions and the place of the next page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVarTuple

from sqlalchemy import ColumnElement, Select, and_, func, or_

from service.database.models import Project, Run, RunState, VerdictRow
from service.errors import field_error
from service.runs.cursor import decode

Sort = Literal["newest", "activity", "tokens", "alerts", "name"]
NOT_JUDGED = "not judged"

Columns = TypeVarTuple("Columns")


@dataclass(frozen=True, slots=True)
class Listing:
    """What is asked for. None: whatever it is. `search` is looked for in the names of runs and projects."""

    project: str | None = None
    role: str | None = None
    verdict: str | None = None
    search: str | None = None
    archived: bool | None = None
    alerts: bool | None = None
    sort: Sort = "newest"
    cursor: str | None = None


def chosen(query: Select[*Columns], listing: Listing, open_alerts: ColumnElement[int]) -> Select[*Columns]:
    """The query with the listing's conditions, in its order, from its cursor on.

    Raises:
        InvalidError: the cursor was not made for this order.
    """
    if listing.project is not None:
        query = query.where(Project.slug == listing.project)
    if listing.role is not None:
        query = query.where(Run.role == listing.role)
    if listing.verdict is not None:
        wanted = None if listing.verdict == NOT_JUDGED else listing.verdict
        query = query.where(VerdictRow.state.is_(None) if wanted is None else VerdictRow.state == wanted)
    if listing.search:
        names = (Run.name, Project.slug, Run.stage)
        query = query.where(or_(*(name.icontains(listing.search, autoescape=True) for name in names)))
    if listing.archived is not None:
        query = query.where(Run.archived_at.is_not(None) if listing.archived else Run.archived_at.is_(None))
    if listing.alerts is not None:
        query = query.where(open_alerts > 0 if listing.alerts else open_alerts == 0)
    key = sort_key(listing.sort, open_alerts)
    rising = listing.sort == "name"
    if listing.cursor is not None:
        value, last = decode(listing.cursor)
        if isinstance(value, str) != rising:
            raise field_error("query.cursor", f"was not made for sort={listing.sort}; leave it out to begin anew")
        beyond = key > value if rising else key < value
        query = query.where(or_(beyond, and_(key == value, Run.id < last)))
    return query.order_by(key if rising else key.desc(), Run.id.desc())


def sort_key(sort: Sort, open_alerts: ColumnElement[int]) -> ColumnElement[Any]:
    """What a list is ordered by; what is not known comes last. By name it rises, else it falls."""
    match sort:
        case "newest":
            return Run.created_at.expression
        case "activity":
            return func.coalesce(RunState.last_data_at, 0.0)
        case "tokens":
            return func.coalesce(RunState.last_tokens, -1.0)
        case "alerts":
            return open_alerts
        case "name":
            return Run.name.expression
