"""`pacenote channel`: where alerts are sent. Works on the database; a running service sees the change at once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

import typer

from service.cli.opening import database_trouble, open_context, read_settings
from service.cli.output import fail, make_table, plain_console

if TYPE_CHECKING:
    from service.context import Context

EXAMPLE_ADD = "Example: pacenote channel add team slack https://hooks.slack.com/services/T0/B0/key --project olmo3-7b"
EXAMPLE_LIST = "Example: pacenote channel list"
EXAMPLE_TEST = "Example: pacenote channel test team"
EXAMPLE_REMOVE = "Example: pacenote channel remove team"

Url = Annotated[str | None, typer.Option("--database-url", help="By default PACENOTE_DATABASE_URL.")]
AllowPrivate = Annotated[
    bool | None, typer.Option("--allow-private-channels", help="Let channels send to loopback and private addresses.")
]
Name = Annotated[str, typer.Argument(help="Name of the channel.")]


def add(
    name: Name,
    kind: Annotated[Literal["webhook", "slack"], typer.Argument(help="How messages are written.")],
    url: Annotated[str, typer.Argument(help="Where they are sent.")],
    project: Annotated[str | None, typer.Option(help="Only alerts of this project.")] = None,
    secret: Annotated[str | None, typer.Option(help="Of a webhook: whsec_ and base64. Made if left out.")] = None,
    database_url: Url = None,
    allow_private_channels: AllowPrivate = None,
) -> None:
    """Add a channel. A webhook's secret is printed once."""
    from service.channels.endpoints import create_channel
    from service.channels.schemas import NewChannel

    with _context(database_url, allow_private_channels) as context:
        made = create_channel(context, NewChannel(name=name, kind=kind, url=url, project=project, secret=secret))
    typer.echo(f"Channel {made.name} ({made.kind}) sends to {made.url}")
    if made.secret:
        typer.echo(f"Secret, not shown again: {made.secret}")


def show_list(database_url: Url = None) -> None:
    """List the channels."""
    from service.channels.endpoints import list_channels

    with _context(database_url) as context:
        channels = list_channels(context).items
    table = make_table("name", "kind", "address", "project", "state")
    for channel in channels:
        state = "enabled" if channel.enabled else "disabled by its receiver"
        table.add_row(channel.name, channel.kind, channel.url, channel.project or "all", state)
    plain_console().print(table)


def send_test(name: Name, database_url: Url = None, allow_private_channels: AllowPrivate = None) -> None:
    """Send a test message now. Exit 1 if it did not arrive."""
    from service.channels.endpoints import test_channel

    with _context(database_url, allow_private_channels) as context:
        answer = test_channel(context, _id(context, name))
    if not answer.delivered:
        fail(f"The message did not arrive: {answer.error}", 1)
    typer.echo(f"The message arrived in {answer.seconds:.2f} s (status {answer.status}).")


def remove(name: Name, database_url: Url = None) -> None:
    """Remove a channel, with the messages that wait for it and the record of what it was sent."""
    from service.channels.endpoints import delete_channel

    with _context(database_url) as context:
        delete_channel(context, _id(context, name))
    typer.echo(f"Channel {name} is removed.")


@contextmanager
def _context(database_url: str | None, allow_private: bool | None = None) -> Generator[Context]:
    from pydantic import ValidationError

    from service.errors import ProblemError

    settings = read_settings(database_url=database_url, allow_private_channels=allow_private)
    context = open_context(settings)
    try:
        with database_trouble(settings.database_url):
            yield context
    except ProblemError as error:
        fail(error.detail.removeprefix("body."))
    except ValidationError as error:
        first = error.errors()[0]
        fail(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")
    finally:
        context.engine.dispose()


def _id(context: Context, name: str) -> UUID:
    from service.channels.endpoints import list_channels

    channels = list_channels(context).items
    for channel in channels:
        if channel.name == name:
            return channel.id
    known = ", ".join(channel.name for channel in channels) or "none yet"
    return fail(f"There is no channel {name}; there are: {known}.")
