"""A uvicorn server that binds before it starts, says where it listens, and ends its event streams when it stops."""

from __future__ import annotations

import gc
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from service.events.endpoints import SHUTDOWN

if TYPE_CHECKING:
    from fastapi import FastAPI

GRACE_SECONDS = 5  # for requests in progress


class Server(uvicorn.Server):
    """Calls `started_listening` once requests are answered."""

    def __init__(self, app: FastAPI, started_listening: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="auto",
                http="auto",
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
                server_header=False,
            )
        )
        self._app = app
        self._started_listening = started_listening

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to `serve`: uvicorn raises again what it has dealt with, and so would break off the end."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.freeze()  # what is loaded stays: to look through it for garbage stops all threads for a third of a second
        if self.started and not self.should_exit:
            self._started_listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.context.broker.publish(SHUTDOWN, {})
        await super().shutdown(sockets)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        OSError: the port is in use, may not be used, or the host is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


def serve(app: FastAPI, listener: socket.socket, started_listening: Callable[[], None]) -> bool:
    """Serve until SIGINT or SIGTERM, which end it in order however often they come.

    The last thing a process does: the signals stay with us. Returns whether the application came up.
    """
    server = Server(app, started_listening)

    def end(_signal: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    server.run(sockets=[listener])
    return server.started
