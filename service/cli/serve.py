"""`pacenote serve`: the service with its pages."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.opening import install_shipped_references, open_database, read_settings
from service.cli.output import fail

EXAMPLE = "Example: pacenote serve --port 8350 --database-url sqlite:///pacenote.db"


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; 127.0.0.1 by default.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 8350 by default, 0 takes a free one.")] = None,
    database_url: Annotated[
        str | None,
        typer.Option(help="sqlite:///file.db or postgresql://user@host/name; the user's data folder by default."),
    ] = None,
    public_url: Annotated[str | None, typer.Option(help="Address that links in messages begin with.")] = None,
    worker: Annotated[
        bool | None, typer.Option("--worker/--no-worker", help="Seal, judge and deliver in this process too.")
    ] = None,
    allow_private_channels: Annotated[
        bool | None,
        typer.Option("--allow-private-channels", help="Let channels send to loopback and private addresses."),
    ] = None,
) -> None:
    """Run the service: API, pages, and the background worker. Ctrl-C ends it.

    An empty database gets its schema. Options go before the environment (PACENOTE_HOST, PACENOTE_PORT,
    PACENOTE_DATABASE_URL, PACENOTE_TOKEN …). Without a token it listens on this machine only.
    """
    settings = read_settings(
        host=host,
        port=port,
        database_url=database_url,
        public_url=public_url,
        worker=worker,
        allow_private_channels=allow_private_channels,
    )
    from service.auth.token import refuses_to_start

    refusal = refuses_to_start(settings)
    if refusal:
        fail(refusal)
    engine = open_database(settings.database_url)

    from service.cli.server import bind
    from service.cli.server import serve as run

    try:
        listener = bind(settings.host, settings.port)
    except (OSError, OverflowError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        fail(f"Cannot listen on {settings.host} port {settings.port}: {reason}. Choose another one with --port.")
    settings = settings.model_copy(update={"port": listener.getsockname()[1]})
    install_shipped_references(engine, settings.database_url)
    engine.dispose()

    from service.app import create_app
    from service.arenas import share_arenas

    def started() -> None:
        typer.echo(f"Pacenote is at {settings.base_url}")
        if settings.token is None:
            typer.echo("It runs open: no token is set, and only this machine can reach it.")

    share_arenas()
    if not run(create_app(settings), listener, started):
        fail("The service did not come up; the lines above say why.")
