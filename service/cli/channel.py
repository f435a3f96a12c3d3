"""`pacenote channel`: where alerts are sent. Works on the database; a running service sees the change at once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from service.channels.names import GroupName, KindName, SeverityName
from service.cli.opening import read_settings, service_context
from service.cli.output import fail, make_table, plain_console

if TYPE_CHECKING:
    from service.context import Context

EXAMPLE_ADD = "Example: pacenote channel add team slack https://hooks.slack.com/services/T0/B0/key --project olmo3-7b"
EXAMPLE_LIST = "Example: pacenote channel list"
EXAMPLE_TEST = "Example: pacenote channel test team"
EXAMPLE_SWITCH = "Example: pacenote channel switch team --off"
EXAMPLE_ROTATE = "Example: pacenote channel rotate on-call --overlap-hours 48"
EXAMPLE_REMOVE = "Example: pacenote channel remove team"

Url = Annotated[str | None, typer.Option("--database-url", help="By default PACENOTE_DATABASE_URL.")]
AllowPrivate = Annotated[
    bool | None, typer.Option("--allow-private-channels", help="Let channels send to loopback and private addresses.")
]
Name = Annotated[str, typer.Argument(help="Name of the channel.")]


def add(
    name: Name,
    kind: Annotated[KindName, typer.Argument(help="How messages are written.")],
    url: Annotated[str, typer.Argument(help="Where they are sent.")],
    project: Annotated[str | None, typer.Option(help="Only alerts of this project.")] = None,
    run: Annotated[UUID | None, typer.Option(help="Only alerts of this run (its id).")] = None,
    rule: Annotated[list[str] | None, typer.Option(help="Only alerts that this rule joined; may be repeated.")] = None,
    min_severity: Annotated[SeverityName, typer.Option(help="Only alerts at least this severe.")] = SeverityName.info,
    group_by: Annotated[GroupName, typer.Option(help="One message for what belongs together.")] = GroupName.none,
    group_wait: Annotated[float, typer.Option(help="Seconds that the first one of a group waits.")] = 30.0,
    repeat_hours: Annotated[
        float | None, typer.Option(help="Say again after so long what still fires and nobody has acknowledged.")
    ] = None,
    secret: Annotated[str | None, typer.Option(help="Of a webhook: whsec_ and base64. Made if left out.")] = None,
    database_url: Url = None,
    allow_private_channels: AllowPrivate = None,
) -> None:
    """Add a channel. A webhook's secret is printed once."""
    from service.channels.endpoints import create_channel
    from service.channels.schemas import NewChannel

    with _context(database_url, allow_private_channels) as context:
        new = NewChannel(
            name=name,
            kind=kind,
            url=url,
            project=project,
            run=run,
            rules=rule or None,
            min_severity=min_severity.value,
            group_by=group_by,
            group_wait_seconds=group_wait,
            repeat_hours=repeat_hours,
            secret=secret,
        )
        made = create_channel(context, new)
    typer.echo(f"Channel {made.name} ({made.kind}) sends to {made.url}")
    if made.secret:
        typer.echo(f"Secret, not shown again: {made.secret}")


def show_list(database_url: Url = None) -> None:
    """List the channels."""
    from service.channels.endpoints import list_channels

    with _context(database_url) as context:
        channels = list_channels(context).items
    table = make_table("name", "kind", "address", "gets", "state")
    for channel in channels:
        gets = [f"project {channel.project}"] if channel.project else []
        gets += [f"run {channel.run}"] if channel.run else []
        gets += [", ".join(channel.rules)] if channel.rules else []
        gets += [f"{channel.min_severity} and worse"] if channel.min_severity != "info" else []
        gets += [f"one message per {channel.group_by}"] if channel.group_by != "none" else []
        gets += [f"again every {channel.repeat_hours:g} h"] if channel.repeat_hours else []
        state = "enabled" if channel.enabled else "disabled"
        if channel.enabled and channel.paused_until:
            state = f"rests after {channel.failures} failures"
        table.add_row(channel.name, channel.kind, channel.url, "; ".join(gets) or "all alerts", state)
    plain_console().print(table)


def switch(
    name: Name,
    on: Annotated[bool, typer.Option("--on/--off", help="Whether it gets messages.")],
    database_url: Url = None,
) -> None:
    """Switch a channel on or off. What waits for it stays, and is sent when it is on again."""
    from service.channels.endpoints import change_channel
    from service.channels.schemas import ChannelChange

    with _context(database_url) as context:
        change_channel(context, _id(context, name), ChannelChange(enabled=on))
    typer.echo(f"Channel {name} is {'on' if on else 'off'}.")


def rotate(
    name: Name,
    secret: Annotated[str | None, typer.Option(help="whsec_ and base64. Made if left out.")] = None,
    overlap_hours: Annotated[float, typer.Option(help="For so long the old secret signs too.")] = 24.0,
    database_url: Url = None,
) -> None:
    """Give a webhook a new secret, printed once."""
    from service.channels.endpoints import rotate_channel_secret
    from service.channels.schemas import SecretChange

    with _context(database_url) as context:
        change = SecretChange(secret=secret, overlap_hours=overlap_hours)
        made = rotate_channel_secret(context, _id(context, name), change)
    typer.echo(f"New secret, not shown again: {made.secret}")


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


def _context(database_url: str | None, allow_private: bool | None = None) -> AbstractContextManager[Context]:
    return service_context(read_settings(database_url=database_url, allow_private_channels=allow_private))


def _id(context: Context, name: str) -> UUID:
    from service.channels.endpoints import list_channels

    channels = list_channels(context).items
    for channel in channels:
        if channel.name == name:
            return channel.id
    known = ", ".join(channel.name for channel in channels) or "none yet"
    return fail(f"There is no channel {name}; there are: {known}.")
