"""Runs for `report` and `check`: of the database, or of a running service by HTTP."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Protocol
from uuid import UUID

import typer

from service.cli.opening import read_settings, service_context
from service.cli.output import fail

if TYPE_CHECKING:
    import httpx

    from service.context import Context

RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, NAME, or PROJECT/NAME.")]
Stage = Annotated[str | None, typer.Option(help="Where a name stands for several stages.")]
DatabaseUrl = Annotated[str | None, typer.Option("--database-url", help="By default PACENOTE_DATABASE_URL.")]
Url = Annotated[str | None, typer.Option(help="Ask this service, with PACENOTE_TOKEN, instead of a database.")]
PAGE = 500


class Source(Protocol):
    """Where a run's report comes from."""

    def report(self, at: str | None) -> str:
        """The report as JSON."""
        ...

    def check(self, limits: dict[str, Any]) -> dict[str, Any]:
        """The outcome of a check, as the API gives it; `limits` by the names of its parameters."""
        ...


@contextmanager
def source_of(run: str, stage: str | None, database_url: str | None, url: str | None) -> Generator[Source]:
    """A run, looked for where the options say."""
    if url is not None and database_url is not None:
        fail("Give --url or --database-url, not both.")
    if url is None:
        with service_context(read_settings(database_url=database_url)) as context:
            yield _Stored(context, _find(context, run, stage))
        return
    import httpx

    token = os.environ.get("PACENOTE_TOKEN", "")
    if not all("!" <= character <= "~" for character in token):
        fail("PACENOTE_TOKEN holds a space, a line end or a letter beyond ASCII.")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    base = f"{url.rstrip('/')}/api/v1"
    try:
        with httpx.Client(base_url=base, headers=headers, timeout=120.0, follow_redirects=False) as client:
            yield _Served(client, url, _look_up(client, url, run, stage))
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        fail(f"{url} is no address of a service: {error}")
    except httpx.HTTPError as error:
        fail(f"{url} does not answer: {error}")


class _Stored:
    def __init__(self, context: Context, run: UUID) -> None:
        self._context, self._run = context, run

    def report(self, at: str | None) -> str:
        from service.reports.document import to_json
        from service.reports.endpoints import report_of

        return to_json(report_of(self._context, self._run, at))

    def check(self, limits: dict[str, Any]) -> dict[str, Any]:
        from service.reports.endpoints import check_run

        return check_run(self._context, self._run, **limits).model_dump(mode="json")


class _Served:
    def __init__(self, client: httpx.Client, url: str, run: str) -> None:
        self._client, self._url, self._run = client, url, run

    def report(self, at: str | None) -> str:
        params = {"format": "json"} | ({"at": at} if at else {})
        return _get(self._client, self._url, f"/runs/{self._run}/report", params).text

    def check(self, limits: dict[str, Any]) -> dict[str, Any]:
        params = {name: value for name, value in limits.items() if value is not None}
        return _json(_get(self._client, self._url, f"/runs/{self._run}/check", params), self._url)


def _get(client: httpx.Client, url: str, path: str, params: dict[str, Any]) -> httpx.Response:
    answer = client.get(path, params=params)
    if not answer.is_success:
        _refused(answer, url)
    return answer


def _refused(answer: httpx.Response, url: str) -> NoReturn:
    if answer.headers.get("content-type", "").startswith("application/problem+json"):
        fail(str(answer.json().get("detail", answer.status_code)))
    fail(f"{url} answered {answer.status_code} {answer.reason_phrase}; is it a Pacenote service?")


def _json(answer: httpx.Response, url: str) -> dict[str, Any]:
    try:
        found: Any = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        fail(f"{url} did not answer as a Pacenote service does.")
    return {str(name): value for name, value in found.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _look_up(client: httpx.Client, url: str, text: str, stage: str | None) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        pass
    found: list[tuple[str, str]] = []
    cursor: str | None = None
    while True:
        params: dict[str, Any] = {"limit": PAGE} | ({"cursor": cursor} if cursor else {})
        page = _json(_get(client, url, "/runs", params), url)
        for item in page.get("items", []):
            if text in (item["name"], f"{item['project']}/{item['name']}") and stage in (None, item["stage"]):
                found.append((item["id"], f"{item['project']}/{item['name']} {item['stage']} ({item['id']})"))
        cursor = page.get("next_cursor")
        if cursor is None:
            break
    return _only(text, stage, found)


def _find(context: Context, text: str, stage: str | None) -> UUID:
    from service.database.engine import reading
    from service.exporters.run_series import find_runs

    try:
        return UUID(text)
    except ValueError:
        pass
    with reading(context.engine) as session:
        runs = find_runs(session, text, stage)
        listed = [(str(r.uuid), f"{project}/{r.name} {r.stage} ({r.uuid})") for project, r in runs]
    return UUID(_only(text, stage, listed))


def _only(text: str, stage: str | None, found: list[tuple[str, str]]) -> str:
    if not found:
        fail(f"There is no run {text}{f' of {stage}' if stage else ''}; GET /api/v1/runs lists the runs.")
    if len(found) > 1:
        several = ", ".join(name for _, name in found[:6])
        fail(f"{text} stands for {len(found)} runs: {several}. Give --stage, or the id.")
    return found[0][0]
