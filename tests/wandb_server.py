"""A local server with the shape of W&B's GraphQL API, as bad as W&B can be: 429, drops, pages, odd numbers."""

from __future__ import annotations

import json
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FakeRun:
    """One run: `rows` are history rows as W&B gives them, by step (`_step` is in them)."""

    id: str
    name: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    group: str = ""
    state: str = "finished"
    created_at: str = "2025-10-20T10:00:00Z"

    def node(self) -> dict[str, Any]:
        last = int(float(self.rows[-1]["_step"])) if self.rows else None
        keys = {name: {"typeCounts": [{"type": "number"}]} for row in self.rows[:1] for name in row}
        return {
            "name": self.id,
            "displayName": self.name,
            "state": self.state,
            "group": self.group,
            "createdAt": self.created_at,
            "historyLineCount": len(self.rows),
            "historyKeys": {"lastStep": last, "keys": keys} if self.rows else None,
        }


class WandbServer:
    """Serves one public project, `lab/small`. `troubles` are used up one a history request: 429, 500, drop, half."""

    def __init__(self, *runs: FakeRun, runs_per_page: int = 2) -> None:
        self.runs = list(runs)
        self.runs_per_page = runs_per_page
        self.troubles: deque[str] = deque()
        self.history_requests: list[tuple[str, int]] = []
        self.authorizations: list[str | None] = []
        self.hold_after: int | None = None  # history requests after which every other one waits
        self.at_once = self.most_at_once = 0  # history requests that are being answered
        self.slow: float = 0.0  # seconds that each of them takes
        self.holding = threading.Event()
        self.released = threading.Event()
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def run(self, name: str) -> FakeRun | None:
        return next((run for run in self.runs if run.id == name), None)

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def data(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        """The answer's `data`, as W&B's schema shapes it."""
        if (given["entity"], given["project"]) != ("lab", "small"):
            return {"project": None}
        if "runs(" in query:
            wanted = json.loads(given["filters"] or "{}").get("group")
            found = [run for run in self.runs if wanted in (None, run.group)]
            start = int(given["after"] or 0)
            some = found[start : start + min(self.runs_per_page, given["first"])]
            end = start + len(some)
            edges = [{"node": run.node(), "cursor": str(start + place + 1)} for place, run in enumerate(some)]
            return {
                "project": {
                    "runs": {"edges": edges, "pageInfo": {"endCursor": str(end), "hasNextPage": end < len(found)}}
                }
            }
        run = self.run(given["run"])
        if run is None:
            return {"project": {"run": None}}
        if "history(" not in query:
            return {"project": {"run": run.node()}}
        rows = [row for row in run.rows if given["minStep"] <= float(row["_step"]) < given["maxStep"]]
        if len(rows) > given["samples"]:
            rows = rows[:: len(rows) // given["samples"] + 1]  # W&B thins what is more than it was asked for
        return {"project": {"run": {"history": [json.dumps(row) for row in rows]}}}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_args: Any) -> None:
        """Clients that are killed are part of the game."""


class _Handler(BaseHTTPRequestHandler):
    server_of: WandbServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server = self.server_of
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        trouble = ""
        with server.lock:
            server.authorizations.append(self.headers.get("authorization"))
            if "history(" in body["query"]:
                server.history_requests.append((body["variables"]["run"], body["variables"]["minStep"]))
                trouble = server.troubles.popleft() if server.troubles else ""
                held = server.hold_after is not None and len(server.history_requests) > server.hold_after
                if held:
                    server.holding.set()
            else:
                held = False
        if held:
            server.released.wait()
        if "history(" in body["query"] and server.slow:
            with server.lock:
                server.at_once += 1
                server.most_at_once = max(server.most_at_once, server.at_once)
            server.released.wait(server.slow)
            with server.lock:
                server.at_once -= 1
        if trouble == "drop":
            self.close_connection = True
            return
        if trouble == "429":
            self._answer(429, b'{"errors":[{"message":"rate limit exceeded"}]}', {"Retry-After": "0.2"})
        elif trouble == "408":
            self._answer(408, b"")
        elif trouble == "nan":
            self._answer(429, b"", {"Retry-After": "nan", "RateLimit-Reset": "nan", "RateLimit-Remaining": "nan"})
        elif trouble == "long":  # longer than the client is patient
            self._answer(429, b"", {"Retry-After": "5"})
        elif trouble == "500":
            self._answer(500, b"<html>oops</html>")
        elif trouble == "limited":  # W&B also says it with status 200
            self._answer(200, b'{"errors":[{"message":"Filestream rate limit exceeded"}],"data":null}')
        elif trouble == "half":
            self.send_response(200)
            self.send_header("content-length", "100000")
            self.end_headers()
            self.wfile.write(b'{"data": {"project": {"run": {"history": [')
            self.close_connection = True
        else:
            self._answer(200, json.dumps({"data": server.data(body["query"], body["variables"])}).encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        """Says nothing."""
