"""Reads a Pacenote service: runs, series, gaps, alerts and judgements as pandas frames, and a live tail.

client = Client("http://127.0.0.1:8350")
loss = client.series(client.run_id("olmo3-7b", "olmo3-7b-v7x"), ["train/ce_loss"])

pandas is imported by the first call that makes a frame; with pyarrow installed, series travel as Arrow.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import random
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from trainer_hooks.connection import parse_address, parse_headers, proxy_for, retry_after
from trainer_hooks.frames import numbers, pandas, points, table

if TYPE_CHECKING:
    from pandas import DataFrame

NAMESPACE = uuid.UUID("6b1f9a52-6c1e-5d0e-9b59-3f7c0d1a7e11")  # of run ids (docs/wire.md)
METRICS_AT_ONCE = 50
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
FIRST_WAIT, LONGEST_WAIT = 0.25, 8.0
LONGEST_ASKED = 60.0  # of a Retry-After
SILENCE_SECONDS = 45.0  # the service says something every 15 s, if only that it is there
Params = Sequence[tuple[str, str | int]]


class ClientError(RuntimeError):
    """The service refused, or did not answer. `status` is 0 where there was no answer; `wait` is how many seconds the
    service asks to wait."""

    def __init__(self, status: int, detail: str, wait: float = 0.0) -> None:
        super().__init__(detail)
        self.status = status
        self.wait = wait


@dataclass(frozen=True, slots=True)
class Update:
    """Something that changed: `kind` is points, verdict, alert, run, delivery or hello, `body` what the service says of
    it. `points`, for points and hello, are the new ones: columns metric, step, tokens, value."""

    kind: str
    body: Mapping[str, Any]
    points: DataFrame | None


class Client:
    """One service. Address and token default to PACENOTE_URL and PACENOTE_TOKEN.

    Requests that fail for a reason that passes are repeated at most `retries` times. Methods may raise ClientError.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        retries: int = 4,
    ) -> None:
        """Raises ValueError if there is no address, or it is none."""
        url = url or os.environ.get("PACENOTE_URL", "")
        if not url:
            raise ValueError("no address: give one, such as http://127.0.0.1:8350, or set PACENOTE_URL")
        parts = parse_address(url)
        self.url = url.strip().rstrip("/")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        proxy = proxy_for(parts.scheme, parts.hostname or "", port)
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({parts.scheme: proxy} if proxy else {}))
        token = os.environ.get("PACENOTE_TOKEN", "") if token is None else token
        given = parse_headers(os.environ.get("PACENOTE_HEADERS", "")) if headers is None else dict(headers)
        self._headers = {"User-Agent": "pacenote-client", **given}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._timeout = timeout
        self._retries = retries

    @staticmethod
    def run_id(project: str, name: str, stage: str = "stage1") -> str:
        """The id of a run, which follows from its names."""
        text = json.dumps([project, name, stage], ensure_ascii=False, separators=(",", ":"))
        return str(uuid.uuid5(NAMESPACE, text))

    # --- frames ---

    def runs(self, project: str | None = None, role: str | None = None) -> DataFrame:
        """Every run (of a project, of a role: reference, reproduction), the newest first; `id` is the index."""
        items = self._pages("/runs", [*_given("project", project), *_given("role", role), ("limit", 500)])
        return table(items, "id", times=("last_data_at", "created_at"))

    def run(self, run: str) -> dict[str, Any]:
        """Everything about one run: state, segments, metrics, reference, verdict."""
        return self._json(f"/runs/{_quoted(run)}")

    def segments(self, run: str) -> DataFrame:
        """Every start of a run, in order of launch; `id` is the index. What it ran on, what changed since the start
        before, tokens per second of a device, and `mfu_exact`, `mfu_maxtext`, `mfu_palm` (None where it is not known:
        `utilization` says why)."""
        items = self._json(f"/runs/{_quoted(run)}/segments")["items"]
        items = [item | {f"mfu_{one['formula']}": one["mfu"] for one in item["utilization"]} for item in items]
        return table(items, "id", times=("started_at", "finished_at"))

    def metrics(self, run: str) -> list[str]:
        """Names of the metrics that have points."""
        return list(self.run(run)["metrics"])

    def series(
        self,
        run: str,
        metrics: str | Sequence[str] | None = None,
        *,
        from_step: int | None = None,
        to_step: int | None = None,
        superseded: bool = False,
        wide: bool = False,
    ) -> DataFrame:
        """Exact points between two steps (inclusive) of some metrics, by default of all.

        Columns metric (categorical), step, tokens (on the project's axis, NaN where unknown), value; with `superseded`
        also segment and live, and every point ever accepted. `wide`: one row per step, one column per metric.
        """
        if wide and superseded:
            raise ValueError("wide: a step has one value per metric only among live points")
        names = [metrics] if isinstance(metrics, str) else list(self.metrics(run) if metrics is None else metrics)
        rest = [*_given("from", from_step), *_given("to", to_step), *([("superseded", "true")] if superseded else [])]
        parts: list[Any] = [
            self._read(run, names[start : start + METRICS_AT_ONCE], rest)
            for start in range(0, len(names), METRICS_AT_ONCE)
        ]
        if not parts:
            parts = [points({}, superseded)]
        pd = pandas()
        frame: Any = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
        frame["metric"] = frame["metric"].astype(pd.CategoricalDtype(names))
        if wide:
            return frame.pivot(index="step", columns="metric", values="value").reindex(columns=names)
        return frame

    def gap(self, run: str, metric: str = "train/ce_loss", points: int = 1000) -> DataFrame:
        """Run minus reference at equal tokens, one row per block or evaluation: first_step, last_step, first_tokens,
        last_tokens, gap, low, high (95 %), n. `attrs` holds reference, version, window_steps and tolerance."""
        answer: dict[str, Any] = self._json(f"/runs/{_quoted(run)}/gap", [("metric", metric), ("points", points)])
        columns = {name: numbers(cast("list[Any]", value)) for name, value in answer.items() if type(value) is list}
        frame: Any = pandas().DataFrame(columns)
        frame.attrs.update({name: value for name, value in answer.items() if name not in columns})
        return frame

    def alerts(self, run: str | None = None, project: str | None = None, state: str | None = None) -> DataFrame:
        """Alerts, the newest first; `id` is the index."""
        given = [*_given("run", run), *_given("project", project), *_given("state", state)]
        return table(self._pages("/alerts", given), "id", times=("opened_at", "updated_at", "resolved_at"))

    def judgements(self, run: str) -> DataFrame:
        """The latest answer of every rule, with its summary; `rule` is the index, `judgement` the whole of it."""
        items = self._json(f"/runs/{_quoted(run)}/judgements")["items"]
        items = [item | {"summary": item["judgement"].get("summary")} for item in items]
        return table(items, "rule", times=("decided_at",))

    def events(self, run: str) -> DataFrame:
        """What the trainer said beside numbers, by step."""
        return table(self._pages(f"/runs/{_quoted(run)}/events", [("limit", 1000)]), None, times=("at",))

    def audit(self, run: str, against: str | None = None) -> dict[str, Any] | None:
        """What sampled fingerprints show of the rows that a run has read: share of repeats with its interval, since
        when, rows read, distinct rows, coverage of the declared data. None where no fingerprints were sent.

        Beside it: `windows`, the same of windows of text; `heldout`, text of held-out sets in training rows, by set;
        `same_rows`, through which step the rows are those of the run `against` (by default of the reference, None where
        that has none); and `unseen`, what all this cannot show."""
        found = self._json(f"/runs/{_quoted(run)}/audit", _given("against", against))
        more = {key: found[key] for key in ("windows", "heldout", "same_rows", "unseen")}
        return None if found["rows"] is None else {**found["rows"], **more}

    def audits(self, project: str | None = None) -> DataFrame:
        """The row audits of every reproduction that sent fingerprints, one row per run; `id` is the index."""
        runs = self._pages("/runs", [*_given("project", project), ("role", "reproduction"), ("limit", 500)])
        found = [(run, self._json(f"/runs/{_quoted(run['id'])}/audit")["rows"]) for run in runs]
        return table([{"id": run["id"], "name": run["name"], **audit} for run, audit in found if audit], "id")

    def references(self) -> DataFrame:
        """Every reference in its newest version; `slug` is the index."""
        return table(self._json("/references")["items"], "slug", times=("installed_at",))

    def reference(self, slug: str, version: str | None = None) -> dict[str, Any]:
        """One reference: stages, tasks, held-out sets, tolerances, source, conflicts, and the runs of its curves."""
        return self._json(f"/references/{_quoted(slug)}", _given("version", version))

    # --- live ---

    def tail(
        self, run: str, metrics: str | Sequence[str] | None = None, *, from_step: int | None = None
    ) -> Iterator[Update]:
        """What changes about a run, as it changes, for ever; new points come with their values.

        The first Update is hello, with the points from `from_step` on (None: only what is new from now on). After a
        connection was lost, what came meanwhile follows: the points, and a verdict that is another one. When the
        training goes back, its new points follow. Raises ClientError if the service stays away.
        """
        names = [metrics] if isinstance(metrics, str) else metrics
        reader = _Tail(self, run, names, from_step)
        failures = 0
        kind, verdict = "hello", None
        while True:
            try:
                with self._open("/events", [("run", run)], "text/event-stream", SILENCE_SECONDS) as stream:
                    yield Update(kind, {"run": run}, reader.news())  # after listening has begun: nothing is missed
                    if kind == "points" and reader.verdict != verdict:
                        yield Update("verdict", {"run": run, "state": reader.verdict, "changed": True}, None)
                    kind, verdict = "points", reader.verdict
                    for event, body in _server_events(stream):
                        failures = 0
                        if event == "verdict":
                            verdict = body.get("state")
                        yield Update(event, body, reader.news() if event == "points" else None)
            except (OSError, http.client.HTTPException, ClientError) as error:
                failures += 1
                if failures > self._retries or (isinstance(error, ClientError) and error.status not in (0, *PASSING)):
                    raise error if isinstance(error, ClientError) else ClientError(0, str(error)) from error
            time.sleep(_back_off(failures, 0.0))

    # --- requests ---

    def _read(self, run: str, names: Sequence[str], rest: Params) -> DataFrame:
        parameters = [*(("metric", name) for name in names), *rest]
        path, superseded = f"/runs/{_quoted(run)}/series", ("superseded", "true") in rest
        if find_spec("pyarrow") is not None:
            pa: Any = import_module("pyarrow")
            content = self._get(path, parameters, "application/vnd.apache.arrow.stream")
            with pa.ipc.open_stream(io.BytesIO(content)) as reader:
                return reader.read_all().to_pandas()
        return points(json.loads(self._get(path, parameters))["series"], superseded)

    def _pages(self, path: str, parameters: Params) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = self._json(path, [*parameters, *_given("cursor", cursor)])
            items += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return items

    def _json(self, path: str, parameters: Params = ()) -> Any:
        return json.loads(self._get(path, parameters))

    def _get(self, path: str, parameters: Params = (), accept: str = "application/json") -> bytes:
        failures = 0
        while True:
            wait = 0.0
            try:
                with self._open(path, parameters, accept, self._timeout) as answer:
                    return answer.read()
            except ClientError as error:
                if failures >= self._retries or error.status not in PASSING:
                    raise
                wait = error.wait
            except (OSError, http.client.HTTPException) as error:
                if failures >= self._retries:
                    raise ClientError(0, f"{self.url} does not answer: {error}") from error
            failures += 1
            time.sleep(_back_off(failures, wait))

    def _open(
        self, path: str, parameters: Params, accept: str, timeout: float
    ) -> AbstractContextManager[http.client.HTTPResponse]:
        query = f"?{urllib.parse.urlencode(list(parameters))}" if parameters else ""
        request = urllib.request.Request(f"{self.url}/api/v1{path}{query}", headers={**self._headers, "Accept": accept})
        try:
            return self._opener.open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            with error:
                wait = min(retry_after(error.headers.get("Retry-After")), LONGEST_ASKED)
                refused = ClientError(error.code, _detail(error), wait)
            raise refused from None


class _Tail:
    """Reads what is new of a run's series."""

    def __init__(self, client: Client, run: str, metrics: Sequence[str] | None, from_step: int | None) -> None:
        self._client, self._run, self._metrics = client, run, metrics
        self._last: dict[str, int] = {}
        self._segments: set[str] = set()
        self._begin = from_step
        self._first = True
        self.verdict: str | None = None

    def news(self) -> DataFrame:
        """Points that were not given yet; those of a restart from its beginning on."""
        found = self._client.run(self._run)
        self.verdict = found["verdict"]
        self._see_restarts(found["segments"])
        names = [name for name in found["metrics"] if self._metrics is None or name in self._metrics]
        if self._first and self._begin is None:
            self._begin = (found["last_step"] or -1) + 1
        self._first = False
        begin = self._begin or 0
        first = min((self._last.get(name, begin - 1) + 1 for name in names), default=begin)
        frame: Any = self._client.series(self._run, names, from_step=first)
        if len(frame):
            given = {name: self._last.get(name, begin - 1) for name in names}
            known = frame["metric"].astype(str).map(given).astype("int64")
            frame = frame[frame["step"] > known].reset_index(drop=True)
            for name, last in frame.groupby("metric", observed=True)["step"].max().items():
                self._last[str(name)] = int(last)
        return frame

    def _see_restarts(self, segments: Sequence[Mapping[str, Any]]) -> None:
        for segment in segments:
            if self._first or segment["id"] in self._segments or segment["kind"] != "trainer":
                continue
            start = int(segment["start_step"])
            self._last = {name: min(last, start) for name, last in self._last.items()}
            self._begin = min(self._begin or 0, start + 1)
        self._segments = {str(segment["id"]) for segment in segments}


def _server_events(stream: http.client.HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    """(event, data) of a stream of server-sent events (HTML standard, 9.2), until it ends."""
    kind, data = "", list[str]()
    while line := stream.readline():
        text = line.decode("utf-8").rstrip("\r\n")
        if text:
            name, _, value = text.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                kind = value
            elif name == "data":
                data.append(value)
            continue
        if data:
            yield kind or "message", json.loads("\n".join(data))
        kind, data = "", []


def _given(name: str, value: str | int | None) -> list[tuple[str, str | int]]:
    return [] if value is None else [(name, value)]


def _quoted(run: str) -> str:
    return urllib.parse.quote(run, safe="")


def _back_off(failures: int, wait: float) -> float:
    return max(wait, random.uniform(0.5, 1.0) * min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures, 10)))


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        content = json.loads(error.read())
        return str(content.get("detail") or content.get("title") or error.reason)
    except (ValueError, AttributeError, OSError):
        return f"status {error.code} {error.reason}"
