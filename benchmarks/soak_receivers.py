"""Receivers on loopback that behave badly, and a record of what each of them accepted."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook

# Share of the requests that each manner spoils; the others are answered 200.
MANNERS: Mapping[str, float] = {
    "good": 0.0, "slow": 0.2, "500": 0.2, "429": 0.1, "301": 0.2, "410": 0.002, "close": 0.1, "never": 0.02,
}  # fmt: skip
SLOW = 0.2  # seconds


@dataclass(frozen=True, slots=True)
class Accepted:
    """One message that a receiver took: its id, which alert and change it is about, and its type."""

    path: str
    id: str
    alert: str
    change: int
    type: str


@dataclass(frozen=True, slots=True)
class CutOff:
    """A request that ended before its body did: its sender was killed, or its time was over. It was not taken."""

    id: str
    read: int  # bytes of the body
    declared: int


@dataclass(slots=True)
class Log:
    """What came to all receivers. `spoiled` counts bad answers by manner, `unsigned` whole requests that do not
    verify."""

    accepted: list[Accepted] = field(default_factory=list[Accepted])
    spoiled: dict[str, int] = field(default_factory=dict[str, int])
    unsigned: int = 0
    cut_off: list[CutOff] = field(default_factory=list[CutOff])
    broken_off: set[str] = field(default_factory=set[str])  # ids that were taken but not answered whole
    lock: threading.Lock = field(default_factory=threading.Lock)


class Receivers:
    """One server; a path `/number/manner` is one receiver."""

    def __init__(self, secret: str, seed: int) -> None:
        self.log = Log()
        self.secret = secret
        self._random = random.Random(seed)
        handler = type("Handler", (_Handler,), {"receivers": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def spoils(self, manner: str) -> bool:
        """Whether this request is to be answered badly."""
        with self.log.lock:
            spoiled = self._random.random() < MANNERS[manner]
            if spoiled:
                self.log.spoiled[manner] = self.log.spoiled.get(manner, 0) + 1
            return spoiled

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_args: Any) -> None:
        """Clients are killed here; that is the point."""


class _Handler(BaseHTTPRequestHandler):
    receivers: Receivers

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        body = self.rfile.read(length)
        if len(body) < length:
            with self.receivers.log.lock:
                self.receivers.log.cut_off.append(CutOff(self.headers["webhook-id"], len(body), length))
            return
        manner = self.path.rpartition("/")[2]
        spoiled = self.receivers.spoils(manner)
        if spoiled and manner == "never":
            time.sleep(5.0)
            return
        if spoiled and manner in ("500", "301", "410", "429"):
            self._answer(int(manner), {"location": "/0/good", "retry-after": "1"})
            return
        if spoiled and manner == "slow":
            time.sleep(SLOW)
        self._take(body, whole=not (spoiled and manner == "close"))
        if spoiled and manner == "close":
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-le")
            return
        self._answer(200, {})

    def _take(self, body: bytes, *, whole: bool) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        log = self.receivers.log
        try:
            message = Webhook(self.receivers.secret).verify(body, headers)
        except Exception:
            with log.lock:
                log.unsigned += 1
            return
        data = message["data"] if isinstance(message, dict) else json.loads(body)["data"]
        accepted = Accepted(
            self.path, headers["webhook-id"], data["alert"]["id"], data["change"]["number"], message["type"]
        )
        with log.lock:
            log.accepted.append(accepted)
            if not whole:
                log.broken_off.add(accepted.id)

    def _answer(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_args: Any) -> None:
        """Says nothing."""
