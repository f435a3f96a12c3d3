"""`pacenote channel`: where alerts are sent. Works on the database; a running service sees the change at once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from service.channels.names import DeliveryStateName, GroupName, KindName, SeverityName
from service.cli.opening import read_settings, service_context
from service.cli.output import fail, make_table, plain_console

if TYPE_CHECKING:
    from service.context import Context

EXAMPLE_ADD = "Example: pacenote channel add team slack https://hooks.slack.com/services/T0/B0/key --project olmo3-7b"
EXAMPLE_LIST = "Example: pacenote channel list"
EXAMPLE_TEST = "Example: pacenote channel test team"
EXAMPLE_SWITCH = "Example: pacenote channel switch team --off"
EXAMPLE_DELIVERIES = "Example: pacenote channel deliveries team --state failed"
EXAMPLE_REPLAY = "Example: pacenote channel replay team"
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
        state += f", {channel.waiting:,} waiting" if channel.waiting else ""
        state += f", {channel.failed:,} given up" if channel.failed else ""
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


def deliveries(
    name: Name,
    state: Annotated[DeliveryStateName | None, typer.Option(help="Only those.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = 50,
    database_url: Url = None,
) -> None:
    """What was sent to a channel or waits for it, the newest first."""
    from service.channels.endpoints import list_channel_deliveries

    with _context(database_url) as context:
        wanted = None if state is None else state.value
        items = list_channel_deliveries(context, _id(context, name), None, limit, wanted).items
    table = make_table("id", "written", "message", "state", "tries", "last answer")
    for item in items:
        last = item.attempts[-1] if item.attempts else None
        answer = "" if last is None else last.error or f"{last.status} after {last.seconds:.2f} s"
        at = datetime.fromtimestamp(item.created_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(str(item.id), at, item.type, item.state, str(len(item.attempts)), answer)
    plain_console().print(table)


def replay(
    name: Name,
    delivery: Annotated[
        UUID | None, typer.Argument(help="Id of one message. All that were given up if left out.")
    ] = None,
    since: Annotated[datetime | None, typer.Option(help="Only of those written since then (UTC).")] = None,
    database_url: Url = None,
) -> None:
    """Send again what was given up, with the same ids. A running service sends it within a second."""
    from service.channels.endpoints import replay_channel, replay_delivery
    from service.channels.schemas import Replay

    with _context(database_url) as context:
        channel = _id(context, name)
        if delivery is not None:
            _of_channel(context, channel, name, delivery)
            replay_delivery(context, delivery)
            count = 1
        else:
            body = Replay(since=None if since is None else since.replace(tzinfo=since.tzinfo or UTC))
            count = replay_channel(context, channel, body).replayed
    typer.echo(f"{count:,} message{'' if count == 1 else 's'} to {name} will be sent again.")


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


def _of_channel(context: Context, channel: UUID, name: str, delivery: UUID) -> None:
    """End the command where a message was to another channel."""
    from service.channels.repository import ChannelRepository
    from service.database.engine import reading

    with reading(context.engine) as session:
        row = ChannelRepository(session).delivery(delivery)
        if row is not None and row.channel.uuid != channel:
            fail(f"The message {delivery} is to {row.channel.name}, not to {name}.")


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
