"""A service of loopback HTTP that takes what docs/wire.md says and can misbehave on request."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAIT = 20.0
OK = "ok"  # take it
CLOSE = "close"  # close the connection in the middle of the answer, nothing stored
LOST = "lost"  # store it, but the answer never arrives
HANG = "hang"  # no answer until the service is released
FORGET = "forget"  # answer 404 and forget the segment

Reply = str | int | tuple[int, str]


class HookService:
    """Keeps the first body of every key, in order of arrival. `script` holds what to do with the next requests."""

    def __init__(self, script: list[Reply] | None = None, port: int = 0) -> None:
        self.script = deque(script or [])
        self.taken: list[tuple[str, dict[str, Any]]] = []
        self.requests: list[tuple[str, str, dict[str, str], float]] = []
        self.segments: dict[str, dict[str, Any]] = {}
        self.duplicates = 0
        self.released = threading.Event()
        self._keys: dict[Any, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def setup(self) -> None:
                super().setup()
                service._open.add(self.connection)

            def do_POST(self) -> None:
                service.answer(self)

            do_PUT = do_POST  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        data = handler.rfile.read(int(handler.headers["Content-Length"]))
        if handler.headers.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        with self._changed:
            reply = self.script.popleft() if self.script else OK
            self.requests.append((handler.command, handler.path, dict(handler.headers.items()), time.monotonic()))
            self._changed.notify_all()
        if reply == HANG:
            self.released.wait(WAIT)
        if reply == CLOSE:
            handler.wfile.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n{")
            handler.close_connection = True
            return
        if reply == FORGET:
            self.segments.clear()
        if reply in (OK, LOST, HANG, FORGET):
            status, body = self._take(handler.command, handler.path, json.loads(data))
            if reply == LOST:
                handler.close_connection = True
                return
            headers = {}
        else:
            status, after = reply if isinstance(reply, tuple) else (int(reply), "")
            body = {"title": "As told", "detail": f"told to answer {status}"}
            headers = {"Retry-After": after} if after else {}
        content = json.dumps(body).encode()
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)

    def _take(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        pieces = path.split("/api/v1/segments/")[1].split("/")
        segment, kind = pieces[0], pieces[1] if method == "POST" else "segment"
        assert isinstance(body.pop("sent_at"), float)
        with self._changed:
            if kind == "segment":
                before = self.segments.setdefault(segment, body)
                key = (segment, 0, "segment", 0)
            elif segment not in self.segments:
                return 404, {"title": "Unknown segment", "detail": segment}
            else:
                key = (segment, body["process"], kind, body["seq"])
                before = self._keys.get(key, body)
            if before != body:
                return 409, {"title": "Conflict", "detail": "another body under the same key"}
            duplicate = key in self._keys
            self.duplicates += duplicate
            if not duplicate:
                self._keys[key] = body
                self.taken.append((kind, body))
            self._changed.notify_all()
            return 202, {"accepted": 1, "duplicate": duplicate}

    def wait_for(self, condition: Any) -> None:
        """Until `condition(service)` holds; fails after 20 s."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), WAIT), self.taken

    def bodies(self, kind: str) -> list[dict[str, Any]]:
        return [body for k, body in self.taken if k == kind]

    def segment_of(self, kind: str) -> str:
        """The segment of the last request of a kind."""
        return next(path.split("/")[4] for _, path, *_ in reversed(self.requests) if path.endswith(kind))

    def points(self) -> list[tuple[int, str, Any]]:
        """(step, metric, value) of every batch, in order."""
        return [point for body in self.bodies("batches") for point in points_of(body)]

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()


def points_of(body: dict[str, Any]) -> list[tuple[int, str, Any]]:
    """(step, metric, value) of one batch, row by row."""
    lengths = {len(body["times"]), *(len(column) for column in body["metrics"].values())}
    assert lengths == {len(body["steps"])}
    return [
        (step, name, column[i])
        for i, step in enumerate(body["steps"])
        for name, column in body["metrics"].items()
        if column[i] is not None
    ]


def python(code: str, **environment: str) -> subprocess.Popen[str]:
    """Runs code in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, **environment}, text=True, stderr=subprocess.PIPE
    )
