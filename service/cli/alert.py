"""`pacenote alert`: what is wrong now, and what people do about it. Works on the database itself."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from service.channels.names import AlertStateName, SeverityName
from service.cli.opening import read_settings, service_context
from service.cli.output import fail, make_table, plain_console

if TYPE_CHECKING:
    from service.alerts.schemas import AlertDetail
    from service.context import Context

EXAMPLE_LIST = "Example: pacenote alert list --state open --project olmo3-7b"
EXAMPLE_SHOW = "Example: pacenote alert show 5f1c2d3e"
EXAMPLE_ACK = "Example: pacenote alert ack 5f1c2d3e --note 'looking at the loader'"
EXAMPLE_MUTE = "Example: pacenote alert mute 5f1c2d3e --hours 4"
EXAMPLE_UNMUTE = "Example: pacenote alert unmute 5f1c2d3e"
EXAMPLE_RESOLVE = "Example: pacenote alert resolve 5f1c2d3e --note 'known: another tokenizer'"
EXAMPLE_ASSIGN = "Example: pacenote alert assign 5f1c2d3e kim"
EXAMPLE_COMMENT = "Example: pacenote alert comment 5f1c2d3e 'the loader was restarted'"

Id = Annotated[str, typer.Argument(help="Id of the alert, or its first characters.")]
By = Annotated[str | None, typer.Option(help="Who does it; by default the user of this machine.")]
Note = Annotated[str, typer.Option(help="What to say about it.")]
Url = Annotated[str | None, typer.Option("--database-url", help="By default PACENOTE_DATABASE_URL.")]


def show_list(
    state: Annotated[AlertStateName | None, typer.Option(help="Only alerts in this state.")] = None,
    project: Annotated[str | None, typer.Option(help="Only alerts of this project.")] = None,
    run: Annotated[UUID | None, typer.Option(help="Only alerts of this run (its id).")] = None,
    rule: Annotated[str | None, typer.Option(help="Only alerts that this rule joined.")] = None,
    severity: Annotated[SeverityName | None, typer.Option(help="Only alerts at least this severe.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Only alerts that changed since (local time).")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many, the newest.")] = 50,
    database_url: Url = None,
) -> None:
    """List alerts, the newest first."""
    from service.alerts.endpoints import list_alerts

    with _context(database_url) as context:
        found = list_alerts(
            context,
            run=run,
            project=project,
            state=None if state is None else state.value,
            rule=rule,
            severity=None if severity is None else severity.value,
            since=None if since is None else since.astimezone(),
            limit=limit,
        )
    table = make_table("id", "state", "severity", "project", "alert", "whose")
    for alert in found.items:
        shown = f"{alert.state}, muted" if alert.muted_until else alert.state
        whose = alert.assignee or ""
        table.add_row(str(alert.id), shown, alert.severity, alert.project, alert.title, whose)
    plain_console().print(table)


def show(alert: Id, database_url: Url = None) -> None:
    """Show an alert: what its rules found, what happened to it, what was sent."""
    from service.alerts.endpoints import read_alert
    from service.runs.fields import rfc3339

    with _context(database_url) as context:
        found = read_alert(context, _id(context, alert))
    lines = [found.title, f"{found.state}, {found.severity}, {found.url}"]
    lines += [f"assigned to {found.assignee}"] if found.assignee else []
    lines += [f"muted until {rfc3339(found.muted_until)}"] if found.muted_until else []
    lines += [f"{rule}: {body['state']}. {body['summary']}" for rule, body in found.judgements.items()]
    lines += [f"What now: {found.recovery.summary}"] if found.recovery and found.recovery.needed else []
    lines += [f"{rfc3339(change.at)} {change.kind} {_told(change.body)}".rstrip() for change in found.changes]
    lines += [f"sent to {d.channel_name}: {d.type} {d.state}, {len(d.attempts)} attempts" for d in found.deliveries]
    console = plain_console()
    for line in lines:
        console.print(line, soft_wrap=True)


def ack(alert: Id, by: By = None, note: Note = "", database_url: Url = None) -> None:
    """Say that somebody is at it."""
    from service.alerts import acting
    from service.alerts.schemas import Acknowledgement

    _act(database_url, alert, acting.acknowledge_alert, lambda: Acknowledgement(by=_who(by), note=note))


def mute(
    alert: Id,
    hours: Annotated[float, typer.Option(help="For so long no messages are sent.")],
    by: By = None,
    note: Note = "",
    database_url: Url = None,
) -> None:
    """Hold its messages back for a time. If it still fires then, one message says so."""
    from service.alerts import acting
    from service.alerts.schemas import Mute

    _act(database_url, alert, acting.mute_alert, lambda: Mute(by=_who(by), note=note, minutes=60.0 * hours))


def unmute(alert: Id, by: By = None, note: Note = "", database_url: Url = None) -> None:
    """End a mute before its time."""
    from service.alerts import acting
    from service.alerts.schemas import Acknowledgement

    _act(database_url, alert, acting.unmute_alert, lambda: Acknowledgement(by=_who(by), note=note))


def resolve(alert: Id, by: By = None, note: Note = "", database_url: Url = None) -> None:
    """End it by hand. What still says yes stays closed until it has cleared and comes back."""
    from service.alerts import acting
    from service.alerts.schemas import Acknowledgement

    _act(database_url, alert, acting.resolve_alert, lambda: Acknowledgement(by=_who(by), note=note))


def assign(
    alert: Id,
    assignee: Annotated[str | None, typer.Argument(help="Whose it is from now on; nobody's if left out.")] = None,
    by: By = None,
    note: Note = "",
    database_url: Url = None,
) -> None:
    """Say whose it is."""
    from service.alerts import acting
    from service.alerts.schemas import Assignment

    said = lambda: Assignment(by=_who(by), note=note, assignee=assignee)  # noqa: E731
    _act(database_url, alert, acting.assign_alert, said)


def comment(
    alert: Id, text: Annotated[str, typer.Argument(help="What to write.")], by: By = None, database_url: Url = None
) -> None:
    """Write something beside it."""
    from service.alerts import acting
    from service.alerts.schemas import Comment

    _act(database_url, alert, acting.comment_alert, lambda: Comment(by=_who(by), note=text))


def _act(database_url: str | None, alert: str, action: Callable[..., AlertDetail], said: Callable[[], Any]) -> None:
    from service.alerts.acting import Source

    with _context(database_url) as context:
        found = action(context, Source("pacenote alert", socket.gethostname()), _id(context, alert), said())
    muted = ", muted" if found.muted_until else ""
    whose = f", assigned to {found.assignee}" if found.assignee else ""
    typer.echo(f"Alert {found.id} is {found.state}{muted}{whose}: {found.title}")


def _context(database_url: str | None) -> AbstractContextManager[Context]:
    return service_context(read_settings(database_url=database_url))


def _who(by: str | None) -> str:
    return by or getpass.getuser()


def _told(body: dict[str, Any]) -> str:
    """What a change says in one line."""
    who = f"by {body['by']}" if "by" in body else ", ".join(body.get("rules", ()))
    more = body.get("note") or ("" if "by" in body else body.get("reason")) or body.get("assignee")
    return f"{who}: {more}" if more else who


def _id(context: Context, beginning: str) -> UUID:
    """The one alert whose id begins so."""
    from service.alerts.repository import AlertRepository
    from service.database.engine import reading

    with reading(context.engine) as session:
        found = AlertRepository(session).beginning_with(beginning.lower())
    if len(found) == 1:
        return found[0]
    if found:
        return fail(f"{len(found)} alerts begin with {beginning}: give more of the id.")
    return fail(f"There is no alert {beginning}; `pacenote alert list` shows the alerts.")
