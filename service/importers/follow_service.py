"""The service as `pacenote follow` sees it: takes requests, and says what it thinks of the run."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from service.importers.follow import Request
from service.importers.rows import LogError
from trainer_hooks.connection import Answer, Connection, parse_address, parse_headers, proxy_for
from trainer_hooks.sender import FIRST_WAIT, REFUSED

LONGEST_WAIT = 5.0
FAILURES_TO_TELL = 3


class FollowService:
    """One service and one run. `say` hears of trouble; requests that are refused for good go to the file `refused`."""

    def __init__(self, url: str, token: str, headers: str, run: str, refused: Path, say: Callable[[str], None]) -> None:
        self.url = url.rstrip("/")
        self._run = run
        self._refused = refused
        self._say = say
        self._connection = Connection(self.url, token, headers)
        bearer = parse_headers(headers) | ({"Authorization": f"Bearer {token}"} if token else {})
        parts = parse_address(self.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        proxy = proxy_for(parts.scheme, parts.hostname or "", port)
        self._http = httpx.Client(
            base_url=f"{self.url}/api/v1", headers=bearer, timeout=30.0, proxy=proxy, trust_env=False
        )
        self._told: dict[str, str] = {}

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()
        self._http.close()

    def stage(self, reference: str, stage: str | None) -> tuple[str, int]:
        """Name and tokens per step of a stage of the reference, by default its first.

        Raises:
            LogError: there is no such reference or stage, or the service does not answer.
        """
        try:
            answer = self._http.get(f"/references/{reference}")
        except httpx.HTTPError as error:
            raise LogError(f"{self.url} does not answer ({error}); start it with `pacenote serve`") from error
        if answer.is_error:
            raise LogError(f"{self.url}: {_detail(answer)}")
        stages: list[dict[str, Any]] = answer.json()["stages"]
        found = next((one for one in stages if one["name"] == (stage or stages[0]["name"])), None)
        if found is None:
            known = ", ".join(one["name"] for one in stages)
            raise LogError(f"{reference} has no stage {stage}; it has {known}")
        return str(found["name"]), int(found["tokens_per_step"])

    def send(self, request: Request, segment: dict[str, Any]) -> None:
        """Deliver one request, however long that takes. `segment` is the body of its segment.

        What the service refuses for good is kept aside and said; the rest goes on.
        """
        failures = 0
        while True:
            answer = self._deliver(request, segment)
            if answer.accepted:
                if answer.left_out and self._changed("left out", answer.left_out):
                    self._say(f"the service stores a part of what is sent: {answer.left_out}")
                if failures >= FAILURES_TO_TELL:
                    self._say(f"{self.url} takes data again")
                return
            if answer.status in REFUSED:
                self._keep(request, answer)
                return
            failures += 1
            if failures == FAILURES_TO_TELL:
                why = f"{answer.status or 'no answer'} {answer.detail}".strip()
                self._say(f"{self.url} does not take data ({why}); trying on, nothing is lost")
            longest = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures - 1, 10))
            time.sleep(max(answer.retry_after, random.uniform(0.5, 1.0) * longest))

    def _deliver(self, request: Request, segment: dict[str, Any]) -> Answer:
        answer = self._put_or_post(request)
        if answer.status == 404 and request.kind != "segment":
            self._say(
                "the service does not know this segment: what it had before is gone; --from-start sends the log again"
            )
            made = self._put_or_post(Request(request.segment, "segment", segment))
            return self._put_or_post(request) if made.accepted else Answer(0, detail=made.detail)
        return answer

    def _put_or_post(self, request: Request) -> Answer:
        path = f"/api/v1/segments/{request.segment}"
        body = json.dumps(request.body, separators=(",", ":"), allow_nan=False).encode()
        if request.kind == "segment":
            return self._connection.request("PUT", path, body)
        return self._connection.request("POST", f"{path}/{request.kind}", body)

    def _keep(self, request: Request, answer: Answer) -> None:
        self._say(f"the service refused data: {answer.status} {answer.detail}; it is kept in {self._refused}")
        line = {"at": time.time(), "status": answer.status, "detail": answer.detail, "kind": request.kind}
        with self._refused.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line | {"segment": request.segment, "body": request.body}) + "\n")

    # --- what it thinks ---

    def news(self) -> Iterator[str]:
        """What has changed since the last call: the verdict, and alerts. Nothing where the service does not answer."""
        try:
            run = self._http.get(f"/runs/{self._run}")
            alerts = self._http.get("/alerts", params={"run": self._run, "limit": 50})
        except httpx.HTTPError:
            return
        if run.is_error or alerts.is_error:
            return
        detail: dict[str, Any] = run.json()
        verdict = detail["verdict"]
        if verdict is not None and self._changed("verdict", verdict):
            told: dict[str, Any] = detail["verdict_detail"] or {"body": {}}
            because = told["body"].get("because")
            yield f"step {detail['last_step'] or 0:,}: {verdict}{f' ({because})' if because else ''}"
        for alert in reversed(alerts.json()["items"]):
            if self._changed(alert["id"], f"{alert['state']} {alert['title']}"):
                yield f"alert {alert['state']}: {alert['title']} ({alert['url']})"

    def judged(self) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
        """The verdict and the judgements, None while the last data is not judged, or the service does not answer."""
        try:
            run = self._http.get(f"/runs/{self._run}")
            judgements = self._http.get(f"/runs/{self._run}/judgements")
        except httpx.HTTPError:
            return None
        if run.is_error or judgements.is_error:
            return None
        detail = run.json()
        if detail["verdict"] is None or detail["judged_version"] < detail["data_version"]:
            return None
        return detail["verdict_detail"], [item["judgement"] for item in judgements.json()["items"]]

    def _changed(self, what: str, now: str) -> bool:
        before = self._told.get(what)
        self._told[what] = now
        return before != now


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"
