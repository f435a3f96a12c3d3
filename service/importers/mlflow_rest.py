"""MLflow's tracking server, read by its REST API: runs of an experiment, and every value of each of their metrics."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit, urlunsplit

import httpx

from service.importers.documents import mapping, objects
from service.importers.long_table import LongTable
from service.importers.rows import LogError, plain, whole
from service.importers.run_names import distinct

NAME = "mlflow_rest"
TITLE = "MLflow's tracking server"
VALUES_PER_PAGE = 25_000
RUNS_PER_PAGE = 1000
PATIENCE_SECONDS = 120.0
PLACE = re.compile(r"/?experiments/(?P<experiment>\w+)(?:/runs/(?P<run>\w+))?")
API = re.compile(r"/(?:ajax-)?api/2\.\d/mlflow(?:/.*)?$")
ODD_VALUE = "MLflow gave no number, or no whole step"


@dataclass(frozen=True, slots=True)
class MlflowAddress:
    """Where to read: the server's base address, and the run or the experiment (both empty: everything)."""

    base: str
    run: str = ""
    experiment: str = ""


def parse(address: str, chosen: bool = False) -> MlflowAddress | None:
    """What an address of MLflow's pages or of its API means, None if it is neither.

    `chosen`: the user says that it is a tracking server's.
    """
    parts = urlsplit(address)
    place = PLACE.match(parts.fragment)
    api = API.search(parts.path)
    if place is None and api is None and not chosen:
        return None
    path = parts.path[: api.start()] if api else parts.path
    base = urlunsplit((parts.scheme, parts.netloc, path.rstrip("/"), "", ""))
    if place is not None:
        return MlflowAddress(base, place["run"] or "", place["experiment"])
    asked = parse_qs(parts.query)
    run = next((asked[key][0] for key in ("run_id", "run_uuid") if key in asked), "")
    return MlflowAddress(base, run, asked.get("experiment_id", [""])[0])


class MlflowServer:
    """A tracking server. A context manager. `MLFLOW_TRACKING_TOKEN`, or `…_USERNAME` and `…_PASSWORD`, are its keys.

    Failures that pass (429, 5xx, no answer) are tried again for `patience` seconds.
    """

    def __init__(self, base: str, patience: float = PATIENCE_SECONDS) -> None:
        self._base, self._patience = base, patience
        user, word = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_PASSWORD")
        token = os.environ.get("MLFLOW_TRACKING_TOKEN")
        auth = httpx.BasicAuth(user, word or "") if user else None
        headers = {"User-Agent": "pacenote"} | ({"Authorization": f"Bearer {token}"} if token and not user else {})
        self._http = httpx.Client(timeout=60.0, auth=auth, headers=headers)

    def __enter__(self) -> MlflowServer:
        return self

    def __exit__(self, *_error: object) -> None:
        self._http.close()

    def runs(self, address: MlflowAddress) -> Iterator[dict[str, Any]]:
        """The runs at an address that are not deleted, in order of their start.

        Raises:
            LogError: there is no such run or experiment, or no answer.
        """
        if address.run:
            yield mapping(self._ask("GET", "runs/get", {"run_id": address.run}).get("run"))
            return
        experiments = [address.experiment] if address.experiment else self._experiments()
        search = {"experiment_ids": experiments, "run_view_type": "ACTIVE_ONLY", "order_by": ["attributes.start_time"]}
        for page in self._pages("POST", "runs/search", search | {"max_results": RUNS_PER_PAGE}):
            yield from objects(page.get("runs"))

    def history(self, run: str, metric: str) -> Iterator[dict[str, Any]]:
        """Every value of one metric, as MLflow gives it: {key, value, timestamp (ms), step}."""
        asked = {"run_id": run, "metric_key": metric, "max_results": VALUES_PER_PAGE}
        for page in self._pages("GET", "metrics/get-history", asked):
            yield from objects(page.get("metrics"))

    def _experiments(self) -> list[str]:
        asked = {"max_results": RUNS_PER_PAGE, "view_type": "ACTIVE_ONLY"}
        pages = self._pages("POST", "experiments/search", asked)
        return [str(one["experiment_id"]) for page in pages for one in objects(page.get("experiments"))]

    def _pages(self, method: str, path: str, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
        token = ""
        while True:
            page = self._ask(method, path, asked | ({"page_token": token} if token else {}))
            yield page
            before, token = token, str(page.get("next_page_token") or "")
            if not token:
                return
            if token == before:
                raise LogError(f"{self._base}: MLflow gives the same page of {path} again")

    def _ask(self, method: str, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        address = f"{self._base}/api/2.0/mlflow/{path}"
        until, wait = time.monotonic() + self._patience, 0.5
        while True:
            try:
                if method == "GET":
                    response = self._http.get(address, params=asked)
                else:
                    response = self._http.post(address, json=asked)
                why = f"status {response.status_code}"
            except httpx.TransportError as error:
                response, why = None, f"{type(error).__name__}: {error}"
            except (httpx.InvalidURL, httpx.HTTPError) as error:
                raise LogError(f"{self._base} is no address of a tracking server ({error})") from error
            if response is not None and response.status_code != 429 and response.status_code < 500:
                return self._answer(response, path)
            if time.monotonic() + wait > until:
                raise LogError(f"{self._base} gives no answer ({why}); is MLflow's server running there?")
            time.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(wait * 2, 10.0)

    def _answer(self, response: httpx.Response, path: str) -> dict[str, Any]:
        try:
            body: Any = response.json()
        except ValueError:
            body = None
        if response.status_code in (401, 403):
            raise LogError(
                f"{self._base}: status {response.status_code}; set MLFLOW_TRACKING_TOKEN, "
                "or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            )
        if response.status_code >= 400:
            said = str(mapping(body).get("message") or response.reason_phrase)
            raise LogError(f"{self._base}: {path}: status {response.status_code} {said[:200]}")
        if response.is_redirect or not isinstance(body, dict):
            raise LogError(f"{self._base} does not answer as MLflow's tracking server does ({path})")
        return cast("dict[str, Any]", body)


def pull(server: MlflowServer, address: MlflowAddress, table: LongTable, told: Callable[[int], None]) -> list[str]:
    """Write every value of the runs at an address into a table; the runs' names.

    Raises:
        LogError: there are no runs, or MLflow gives no answer.
    """
    runs = list(server.runs(address))
    infos = [mapping(run.get("info")) for run in runs]
    keys = [str(info.get("run_id") or info.get("run_uuid") or "") for info in infos]
    names = distinct([str(info.get("run_name") or "") for info in infos], keys)
    for run, key, name in zip(runs, keys, names, strict=True):
        for metric in sorted({str(one.get("key")) for one in objects(mapping(run.get("data")).get("metrics"))}):
            for one in server.history(key, metric):
                step, value, at = whole(str(one.get("step", 0))), plain(one.get("value")), plain(one.get("timestamp"))
                if step is None or value is None:
                    table.refused[ODD_VALUE] += 1
                else:
                    table.add(name, "", step, metric, value, None if at is None else at / 1000)
            told(table.values)
    if not names:
        what = f"experiment {address.experiment}" if address.experiment else "the server"
        raise LogError(f"{address.base}: {what} has no runs")
    return names
