"""A real HTTP receiver on loopback that behaves as badly as it is told to."""

from __future__ import annotations

import json
import queue
import threading
from collections import defaultdict, deque
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAIT = 20.0  # seconds until a test gives up on something that should come at once


@dataclass(frozen=True)
class Received:
    """One request, header names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


@dataclass(frozen=True)
class Answer:
    """How a request is answered: status and headers, or `manner` close (breaks off mid-answer), never, drip or huge."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    manner: str = "normal"


class Receiver:
    """Keeps what it receives; `answers[path]` are used up in turn, the last one for ever; without any it says 200."""

    def __init__(self) -> None:
        self.requests: queue.Queue[Received] = queue.Queue()
        self.answers: dict[str, deque[Answer]] = defaultdict(deque)
        self.released = threading.Event()  # ends all "never" answers
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"receiver": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def will(self, path: str, *answers: Answer) -> None:
        self.answers[path] = deque(answers)

    def take(self, count: int = 1) -> list[Received]:
        """The next `count` requests, awaited."""
        return [self.requests.get(timeout=WAIT) for _ in range(count)]

    def nothing_left(self) -> bool:
        return self.requests.empty()

    def answer_for(self, path: str) -> Answer:
        with self._lock:
            waiting = self.answers[path]
            if not waiting:
                return Answer()
            return waiting.popleft() if len(waiting) > 1 else waiting[0]

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_args: Any) -> None:
        """Clients that hang up are part of the game."""


class _Handler(BaseHTTPRequestHandler):
    receiver: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.receiver.answer_for(self.path)
        self.receiver.requests.put(Received(self.path, headers, body))
        if answer.manner == "never":
            self.receiver.released.wait()
            self.close_connection = True
            return
        if answer.manner == "close":
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhalf")
            self.close_connection = True
            return
        if answer.manner == "drip":  # a byte now and then: every single wait is short, the whole has no end
            self.wfile.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
            while not self.receiver.released.wait(0.05):
                self.wfile.write(b"x")
                self.wfile.flush()
            return
        if answer.manner == "huge":
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
            self.wfile.write(b"x" * 200_000)
            self.receiver.released.wait()
            return
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_args: Any) -> None:
        """Says nothing."""
