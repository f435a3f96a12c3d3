"""What `pacenote replay` does: reads a recording, sends it with the hook, waits until it is judged."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

import trainer_hooks
from service.importers.attempts import Attempt, attempts
from service.importers.canonical import Naming, naming
from service.importers.detect import open_log
from service.importers.rows import Account, LogError
from service.ingest.segments import run_uuid

CALLS_PER_SECOND = 20_000.0  # of `log`: what the hook writes away in time, so that its queue never overflows
SEND_SECONDS = 600.0
POLL_SECONDS = 0.2


class ReplayError(RuntimeError):
    """The replay cannot go on; the message is one line."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A log that was read: its starts, what its names mean, and an account of what was not read."""

    file: Path
    format: str
    because: str
    naming: Naming
    attempts: list[Attempt]
    account: Account

    @property
    def counts(self) -> Counter[str]:
        """Points by metric."""
        return Counter(name for attempt in self.attempts for values in attempt.points.values() for name in values)


def read_recording(file: Path, chosen: Mapping[str, str]) -> Recording:
    """Read a log of any known format; `chosen` maps its names to metrics.

    Raises:
        LogError: it cannot be read, or nothing in it has a known meaning.
    """
    with open_log(file) as log:
        rows = list(log.rows)
        names = naming(log.format, dict.fromkeys(row.metric for row in rows), chosen)
        if not rows:
            raise LogError(f"{file}: no value could be read")
        if not names.known:
            example = next(iter(names.unknown))
            raise LogError(f"{file}: none of its names is known; say what one means: --map '{example}=train/ce_loss'")
        made = attempts(rows, names.known, in_time_order=not log.account.sorted_by_metric)
        return Recording(file, log.format, log.because, names, made, log.account)


class Replayer:
    """Speaks to one service about one run. A context manager."""

    def __init__(self, url: str, reference: str, stage: str | None) -> None:
        token = os.environ.get("PACENOTE_TOKEN")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._url = url.rstrip("/")
        self._reference = reference
        self._stage = stage or ""
        self._run = ""
        if token and not all("!" <= character <= "~" for character in token):
            raise ReplayError("PACENOTE_TOKEN holds a space, a line end or a letter beyond ASCII")
        try:
            _keep_proxies_away(self._url)
            self._http = httpx.Client(base_url=f"{self._url}/api/v1", headers=headers, timeout=30.0)
        except (httpx.InvalidURL, ValueError) as error:
            raise ReplayError(f"{self._url} is no address of a service: {error}") from error
        self._stack = ExitStack()
        self.tokens_per_step = 0

    def __enter__(self) -> Replayer:
        self._stack.enter_context(self._http)
        try:
            stages: list[dict[str, Any]] = self._get(f"/references/{quote(self._reference, safe='')}")["stages"]
            found = next((s for s in stages if s["name"] == (self._stage or stages[0]["name"])), None)
            if found is None:
                known = ", ".join(stage["name"] for stage in stages)
                raise ReplayError(f"{self._reference} has no stage {self._stage}; it has {known}")
        except BaseException:
            self._stack.close()
            raise
        self._stage, self.tokens_per_step = str(found["name"]), int(found["tokens_per_step"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def send(
        self, recording: Recording, project: str, run: str, tokens_per_step: int, speed: float | None, *, show: bool
    ) -> str:
        """Send everything as a live run would, at most `speed` steps a second; returns the address of its page.

        Raises:
            ReplayError: a name cannot be used, or the service did not take everything.
        """
        try:
            return self._send(recording, project, run, tokens_per_step, speed, show=show)
        except (ValueError, OSError) as error:  # what the hook does not take; no place for its spool
            raise ReplayError(str(error)) from error

    def _send(
        self, recording: Recording, project: str, run: str, tokens_per_step: int, speed: float | None, *, show: bool
    ) -> str:
        from rich.progress import Progress

        self._run = str(run_uuid(project, run, self._stage))
        total = sum(len(attempt.points) for attempt in recording.attempts)
        with tempfile.TemporaryDirectory(prefix="pacenote-replay-") as spool, Progress(disable=not show) as progress:
            os.environ |= {"PACENOTE_URL": self._url, "PACENOTE_SPOOL_DIR": spool, "PACENOTE_MODE": "online"}
            task = progress.add_task("sending", total=total)
            pace = _Pace(min(speed or CALLS_PER_SECOND, CALLS_PER_SECOND))
            for attempt in recording.attempts:
                with trainer_hooks.start(
                    run,
                    project=project,
                    reference=self._reference,
                    stage=self._stage,
                    tokens_per_step=tokens_per_step,
                    start_step=attempt.start_step,
                    config={"replayed": recording.file.name, "format": recording.format},
                    strict=True,
                ) as hook:
                    for step in sorted(attempt.points):
                        pace.wait()
                        hook.log(step, attempt.points[step])
                        progress.advance(task)
                    report = hook.finish(timeout=SEND_SECONDS)
                lost = report.dropped + report.rejected + report.left_in_spool
                if lost:
                    counts = ", ".join(f"{reason}: {count}" for reason, count in report.counts.items())
                    raise ReplayError(f"the service did not take {lost} requests ({counts or 'see its log'})")
        return f"{self._url}/runs/{self._run}"

    def judged(self, seconds: float) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The verdict and the judgements, once the last data is judged.

        Raises:
            ReplayError: that took longer than `seconds`.
        """
        until = time.monotonic() + seconds
        while True:
            run = self._get(f"/runs/{self._run}")
            if run["judged_version"] >= run["data_version"] and run["verdict"] is not None:
                judgements = self._get(f"/runs/{self._run}/judgements")["items"]
                return run["verdict_detail"], [item["judgement"] for item in judgements]
            if time.monotonic() > until:
                raise ReplayError(f"no judgement within {seconds:g} s; does a worker run (`pacenote worker`)?")
            time.sleep(POLL_SECONDS)

    def what_now(self) -> str | None:
        """What to do now, where a rule says that something is wrong."""
        found = self._get(f"/runs/{self._run}/recovery")
        return str(found["summary"]) if found["needed"] else None

    def _get(self, path: str) -> Any:
        try:
            answer = self._http.get(path)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ReplayError(f"{self._url} does not answer ({error}); start it with `pacenote serve`") from error
        if answer.is_error:
            try:
                detail = str(answer.json()["detail"])
            except (ValueError, KeyError):
                detail = f"status {answer.status_code}"
            raise ReplayError(f"{self._url}: {detail}")
        try:
            return answer.json()
        except ValueError as error:
            raise ReplayError(
                f"{self._url} does not answer {path} as Pacenote does; is it the right address?"
            ) from error


def _keep_proxies_away(url: str) -> None:
    """Let no proxy of the environment stand between this machine and itself; the hook reads NO_PROXY too."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host == "::1" or host.startswith("127."):
        for name in ("NO_PROXY", "no_proxy"):  # where both are set, readers differ in which one they heed
            os.environ[name] = ",".join(filter(None, (os.environ.get(name), host)))


class _Pace:
    """Holds calls to a number a second, in steps of at least 10 ms."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._begin = time.monotonic()
        self._calls = 0

    def wait(self) -> None:
        """Sleep if the calls are ahead of time."""
        self._calls += 1
        ahead = self._calls / self._per_second - (time.monotonic() - self._begin)
        if ahead > 0.01:
            time.sleep(ahead)
