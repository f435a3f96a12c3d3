"""Counts what this process does, for Prometheus."""

from __future__ import annotations

import contextlib
import time
from importlib.metadata import version

import msgspec
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/api/v1"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Telemetry:
    """The metrics of one application. Labels name routes, never runs: their number stays small."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        PlatformCollector(self.registry)
        ProcessCollector(registry=self.registry)
        labels = ("method", "route", "status")
        self.requests = Counter("pacenote_http_requests", "Answered requests.", labels, registry=self.registry)
        self.seconds = Histogram(
            "pacenote_http_request_seconds",
            "Time until an answer was complete.",
            ("method", "route"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.points = Counter(
            "pacenote_ingested_points", "Points that this process accepted, repeats left out.", registry=self.registry
        )
        self.journal_points = Gauge(
            "pacenote_journal_points", "Accepted points that are not sealed into chunks yet.", registry=self.registry
        )
        self.lag = Gauge(
            "pacenote_judgement_lag_seconds", "How long the oldest data waits to be judged.", registry=self.registry
        )
        self.runs = Gauge("pacenote_runs", "Runs, by role.", ("role",), registry=self.registry)
        build = Gauge("pacenote_build_info", "Version of this program.", ("version",), registry=self.registry)
        build.labels(version("pacenote")).set(1)

    def text(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)


class RequestTelemetry:
    """ASGI middleware that counts and times requests by route template. Streams are counted when they end."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self.app = app
        self.telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin = time.perf_counter()
        status = 500

        async def counting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif status == 202 and scope["path"].endswith("/batches"):
                self._count_points(message["body"])
            await send(message)

        try:
            await self.app(scope, receive, counting)
        finally:
            route = _template(scope)
            self.telemetry.requests.labels(scope["method"], route, str(status)).inc()
            self.telemetry.seconds.labels(scope["method"], route).observe(time.perf_counter() - begin)

    def _count_points(self, body: bytes) -> None:
        """What a batch's answer says was accepted."""
        with contextlib.suppress(msgspec.MsgspecError):  # counting must never spoil an answer
            accepted = msgspec.json.decode(body, type=_Accepted)
            self.telemetry.points.inc(0 if accepted.duplicate else accepted.accepted)


class _Accepted(msgspec.Struct):
    accepted: int
    duplicate: bool


def _template(scope: Scope) -> str:
    """The route's path with its parameters unfilled; FastAPI leaves the prefix of an included router out of it."""
    path: str | None = getattr(scope.get("route"), "path", None)
    if path is None:
        return "unmatched"
    return API + path if scope["path"].startswith(API + "/") and not path.startswith(API) else path


def install(app: FastAPI) -> None:
    """Count the requests of this application; `app.state.telemetry` holds the counts."""
    app.state.telemetry = Telemetry()
    app.add_middleware(RequestTelemetry, telemetry=app.state.telemetry)
