"""Local servers: one that serves files as badly as the web can, and one that answers as MLflow's does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, dict[str, str], bytes]


class LocalServer:
    """Answers each request by a function of (method, path, query, body, headers). A context manager."""

    def __init__(self, answer: Callable[[str, str, dict[str, str], dict[str, Any], Any], Answer]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply("GET", {})

            def do_POST(self) -> None:
                self.reply("POST", json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}"))

            def reply(self, method: str, body: dict[str, Any]) -> None:
                parts = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                status, headers, content = answer(method, parts.path, query, body, self.headers)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_arguments: Any) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Mlflow:
    """Answers as MLflow 3's tracking server; `page` is how many values a page of a history holds."""

    def __init__(self, runs: dict[str, dict[str, list[tuple[int, Any]]]], page: int = 2) -> None:
        self.runs, self.page = runs, page
        self.asked: list[str] = []
        self.troubles: list[int] = []

    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any], headers: Any) -> Answer:
        self.asked.append(f"{method} {path}")
        if self.troubles:
            return self.troubles.pop(0), {}, b"busy"
        what = path.removeprefix("/api/2.0/mlflow/")
        if what == "experiments/search":
            return _json({"experiments": [{"experiment_id": "7", "name": "sweep"}]})
        if what == "runs/search":
            names = list(self.runs) if body["experiment_ids"] == ["7"] else []
            start = int(body.get("page_token", 0))
            more = {"next_page_token": str(start + 1)} if start + 1 < len(names) else {}
            return _json({"runs": [self._run(name) for name in names[start : start + 1]]} | more)
        if query.get("run_id") not in self.runs:
            missing = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"Run with id={query['run_id']} not found"}
            return _json(missing, 404)
        if what == "runs/get":
            return _json({"run": self._run(query["run_id"])})
        values = self.runs[query["run_id"]][query["metric_key"]]
        start = int(query.get("page_token", 0))
        found = [
            {"key": query["metric_key"], "value": value, "timestamp": 1700000000000 + step, "step": step}
            for step, value in values[start : start + self.page]
        ]
        more = {"next_page_token": str(start + self.page)} if start + self.page < len(values) else {}
        return _json({"metrics": found} | more)

    def _run(self, name: str) -> dict[str, Any]:
        last = [{"key": key, "value": 0.0, "timestamp": 0, "step": "0"} for key in self.runs[name]]
        info = {"run_id": name, "run_uuid": name, "run_name": f"nice-{name}", "status": "FINISHED"}
        return {"info": info, "data": {"metrics": last}}


def _json(content: dict[str, Any], status: int = 200) -> Answer:
    return status, {"Content-Type": "application/json"}, json.dumps(content).encode()
