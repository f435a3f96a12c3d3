"""Weights & Biases' GraphQL API, read only and without a key where the project is public.

`history(minStep, maxStep, samples)` gives every row of a range of steps as long as `samples` is no smaller than the
range; without a range, and in `sampledHistory`, it gives a sample. Only the first form is used here.
"""

from __future__ import annotations

import json
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import httpx

from service.importers.rows import LogError
from trainer_hooks.connection import retry_after

DEFAULT_URL = "https://api.wandb.ai"
PAGE_STEPS = 1000  # the size of page that W&B's own client asks for
RUNS_PER_PAGE = 50
PATIENCE_SECONDS = 900.0
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
MAX_STEP = 2**53

RUN_FIELDS = "name displayName state group createdAt historyLineCount historyKeys"
RUNS = (
    "query Runs($entity: String!, $project: String!, $filters: JSONString, $after: String, $first: Int) {"
    " project(entityName: $entity, name: $project) {"
    ' runs(filters: $filters, after: $after, first: $first, order: "+created_at") {'
    f" edges {{ node {{ {RUN_FIELDS} }} cursor }} pageInfo {{ endCursor hasNextPage }} }} }} }}"
)
RUN = (
    "query Run($entity: String!, $project: String!, $run: String!) {"
    f" project(entityName: $entity, name: $project) {{ run(name: $run) {{ {RUN_FIELDS} }} }} }}"
)
HISTORY = (
    "query History($entity: String!, $project: String!, $run: String!,"
    " $minStep: Int64!, $maxStep: Int64!, $samples: Int!) {"
    " project(entityName: $entity, name: $project) {"
    " run(name: $run) { history(minStep: $minStep, maxStep: $maxStep, samples: $samples) } } }"
)


class WandbError(LogError):
    """W&B does not give what was asked for; the message is one line."""


@dataclass(frozen=True, slots=True)
class WandbRun:
    """One run of a project. `last_step` is None where it logged nothing, `lines` how many rows W&B counts."""

    id: str
    name: str
    state: str
    group: str
    created_at: float | None
    last_step: int | None
    lines: int


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One row of a run's history: `time` in unix seconds or None, `values` what is a number in it."""

    step: int
    time: float | None
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """The rows of a range of steps, in order; `refused` rows have no whole step, `other` cells are no numbers."""

    rows: list[HistoryRow]
    refused: int
    other: int


class WandbApi:
    """One project of one W&B host. A context manager.

    Failures that pass (429, 5xx, no answer, a broken answer) are tried again for `patience` seconds in a row;
    Retry-After and an exhausted RateLimit-Remaining are honoured, by all threads that ask, whichever was told. `say`
    hears of waits longer than a few seconds. `history` may be called by several threads.
    """

    def __init__(
        self,
        entity: str,
        project: str,
        *,
        url: str = DEFAULT_URL,
        key: str | None = None,
        patience: float = PATIENCE_SECONDS,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.entity, self.project, self.url = entity, project, url.rstrip("/")
        key = os.environ.get("WANDB_API_KEY", "") if key is None else key
        auth = httpx.BasicAuth("api", key) if key else None
        self._http = httpx.Client(timeout=60.0, auth=auth, headers={"User-Agent": "pacenote"})
        self._patience = patience
        self._say = say
        self._quiet_until = 0.0  # monotonic: nobody asks before
        self._stopped = threading.Event()

    def __enter__(self) -> WandbApi:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
        self._http.close()

    def stop(self) -> None:
        """Let no thread wait or ask any more: what waits gets a WandbError."""
        self._stopped.set()

    def runs(self, group: str | None = None) -> list[WandbRun]:
        """Every run of the project, or of one group of it, in order of creation.

        Raises:
            WandbError: there is no such public project, or W&B does not answer.
        """
        found: list[WandbRun] = []
        filters = json.dumps({"group": group} if group else {})
        after: str | None = None
        while True:
            data = self._project(RUNS, filters=filters, after=after, first=RUNS_PER_PAGE)["runs"]
            found += [_run(edge["node"]) for edge in data["edges"]]
            after = data["pageInfo"]["endCursor"]
            if not data["pageInfo"]["hasNextPage"] or not data["edges"]:
                return found

    def run(self, run: str) -> WandbRun:
        """One run by its id.

        Raises:
            WandbError: there is none, or W&B does not answer.
        """
        node = self._project(RUN, run=run)["run"]
        if node is None:
            raise WandbError(f"{self.url}: {self.entity}/{self.project} has no run {run}")
        return _run(node)

    def history(self, run: str, first: int, end: int) -> HistoryPage:
        """Every row with first <= step < end.

        Raises:
            WandbError: there is no such run, or W&B does not answer.
        """
        node = self._project(HISTORY, run=run, minStep=first, maxStep=end, samples=end - first)["run"]
        if node is None:
            raise WandbError(f"{self.url}: {self.entity}/{self.project} has no run {run}")
        return _page(node["history"] or [], first, end)

    def _project(self, query: str, **variables: Any) -> dict[str, Any]:
        everything = {"entity": self.entity, "project": self.project, **variables}
        project = self._ask(query, everything)["project"]
        if project is None:
            raise WandbError(
                f"{self.url}: there is no public project {self.entity}/{self.project}; "
                "a private one needs WANDB_API_KEY"
            )
        return project

    def _ask(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        until = time.monotonic() + self._patience
        attempt = 0
        while True:
            self._pause(self._quiet_until - time.monotonic())
            answer, trouble = self._try(query, variables)
            if answer is not None:
                return answer
            until += trouble.wait  # to be told to wait is an answer
            self._quiet_until = max(self._quiet_until, time.monotonic() + trouble.wait)
            wait = max(trouble.wait, random.uniform(0.5, 1.0) * min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(attempt, 10)))
            if time.monotonic() + wait > until:
                patience = f"{self._patience:.0f} s"
                raise WandbError(f"{self.url} gave no answer for {patience} ({trouble.why}); try again later")
            if wait > 5.0:
                self._say(f"{self.url}: {trouble.why}; trying again in {wait:.0f} s")
            self._pause(wait)
            attempt += 1

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(seconds) if seconds > 0 else self._stopped.is_set():
            raise WandbError(f"{self.url}: stopped")

    def _try(self, query: str, variables: dict[str, Any]) -> tuple[dict[str, Any] | None, _Trouble]:
        """The answer's data, or what passing trouble there was."""
        try:
            response = self._http.post(f"{self.url}/graphql", json={"query": query, "variables": variables})
        except httpx.UnsupportedProtocol as error:
            raise WandbError(f"{self.url} is no address of a W&B host; it should look like {DEFAULT_URL}") from error
        except httpx.TransportError as error:
            return None, _Trouble(f"{type(error).__name__}: {error}")
        asked = retry_after(response.headers.get("Retry-After"))
        if response.status_code in (408, 425, 429) or response.status_code >= 500:
            return None, _Trouble(f"status {response.status_code}", asked)
        if response.status_code in (401, 403):
            raise WandbError(
                f"{self.url}: {self.entity}/{self.project} is not public (status {response.status_code}); "
                "set WANDB_API_KEY to a key that may read it"
            )
        try:
            body = json.loads(response.content)
        except ValueError:
            body = None
        if response.status_code >= 400:
            why = _message(body) or response.reason_phrase
            raise WandbError(f"{self.url}: status {response.status_code} {why}")
        if not isinstance(body, dict):
            return None, _Trouble("an answer that is no JSON object")
        content = cast("dict[str, Any]", body)
        if content.get("errors"):
            said = _message(content)
            if "rate limit" in said.lower():
                return None, _Trouble(said, asked)
            raise WandbError(f"{self.url}: {said}")
        if not isinstance(content.get("data"), dict):
            return None, _Trouble("an answer without data")
        self._rest(response)
        return content["data"], _Trouble("")

    def _rest(self, response: httpx.Response) -> None:
        """Nobody asks for a while where the answer says that nothing is left of the quota."""
        left = response.headers.get("RateLimit-Remaining")
        if left is not None and _seconds(left) < 1.0:
            rest = min(_seconds(response.headers.get("RateLimit-Reset")), LONGEST_WAIT)
            self._quiet_until = max(self._quiet_until, time.monotonic() + rest)


@dataclass(frozen=True, slots=True)
class _Trouble:
    why: str
    wait: float = 0.0


def numbers(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float | None]]:
    """Names and numbers of a history row, nested ones joined by "."; None for what is no number.

    "NaN", "Infinity" and "-Infinity" are numbers; histograms, tables and media (objects with `_type`) are none.
    """
    for name, value in content.items():
        if isinstance(value, dict) and "_type" not in value:
            yield from numbers(cast("dict[str, Any]", value), f"{prefix}{name}.")
        elif isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity"):
            try:
                yield prefix + name, float(value)
            except OverflowError:
                yield prefix + name, None
        elif value is not None:
            yield prefix + name, None


def _run(node: dict[str, Any]) -> WandbRun:
    keys: Any = node.get("historyKeys")
    if isinstance(keys, str):
        keys = json.loads(keys)
    last = cast("dict[str, Any]", keys).get("lastStep") if isinstance(keys, dict) else None
    lines = int(node.get("historyLineCount") or 0)
    whole = _whole(last)
    return WandbRun(
        id=str(node["name"]),
        name=str(node.get("displayName") or node["name"]),
        state=str(node.get("state") or ""),
        group=str(node.get("group") or ""),
        created_at=_unix(node.get("createdAt")),
        last_step=whole if whole is not None and whole >= 0 and (lines or keys) else None,
        lines=lines,
    )


def _page(lines: list[Any], first: int, end: int) -> HistoryPage:
    rows: list[HistoryRow] = []
    refused = other = 0
    for line in lines:
        content = _row(line)
        step = _whole(content.get("_step"))
        if step is None:
            refused += 1
        elif first <= step < end:  # a host that counts maxStep in gives the row again with the next page
            cells = [(name, value) for name, value in numbers(content) if not name.startswith("_")]
            values = {name: value for name, value in cells if value is not None}
            other += len(cells) - len(values)
            stamp = content.get("_timestamp")
            rows.append(HistoryRow(step, float(stamp) if isinstance(stamp, int | float) else None, values))
    rows.sort(key=lambda row: row.step)
    return HistoryPage(rows, refused, other)


def _row(line: Any) -> dict[str, Any]:
    """A history row, which W&B gives as JSON in a string; empty if it is none."""
    try:
        content: Any = json.loads(line) if isinstance(line, str) else line
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def _whole(value: Any) -> int | None:
    """A step as W&B gives it: 1413814, 1413814.0 or "1413814.0"."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() and abs(number) <= MAX_STEP else None


def _unix(text: Any) -> float | None:
    """Unix seconds of a time; where it names no zone it is UTC, as W&B's are."""
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return datetime.fromisoformat(f"{text}+00:00").timestamp() if time.tzinfo is None else time.timestamp()


def _seconds(value: str | None) -> float:
    try:
        seconds = float(value or 0.0)
    except ValueError:
        return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def _message(body: Any) -> str:
    """What a GraphQL answer says is wrong."""
    errors: Any = cast("dict[str, Any]", body).get("errors") if isinstance(body, dict) else None
    if not isinstance(errors, list) or not errors:
        return ""
    first: Any = cast("list[Any]", errors)[0]
    return str(cast("dict[str, Any]", first).get("message", first) if isinstance(first, dict) else first)
