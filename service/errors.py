"""What the service answers when it cannot do as asked: RFC 9457 problem bodies, made in one place."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

PROBLEM = "application/problem+json"


class FieldError(msgspec.Struct, frozen=True):
    """One field that was wrong, as a path such as `metrics.train/ce_loss[3]`."""

    field: str
    detail: str


class ProblemError(Exception):
    """An answer other than success. `title` names the kind, `detail` says what was wrong and what to do."""

    status = 400
    title = "Bad request"

    def __init__(
        self,
        detail: str,
        *,
        status: int | None = None,
        title: str | None = None,
        errors: Sequence[FieldError] = (),
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status or self.status
        self.title = title or self.title
        self.errors = list(errors)
        self.headers = headers or {}


class NotFoundError(ProblemError):
    """There is no such thing."""

    status = 404
    title = "Not found"


class ConflictError(ProblemError):
    """The same key was used before with other content."""

    status = 409
    title = "Conflict"


class TooLargeError(ProblemError):
    """A body or a number of things over a limit."""

    status = 413
    title = "Too large"


class InvalidError(ProblemError):
    """A body that says something impossible; `errors` names the fields."""

    status = 422
    title = "Invalid"


class UnauthorizedError(ProblemError):
    """No token, or a wrong one."""

    status = 401
    title = "Unauthorized"


def field_error(field: str, detail: str) -> InvalidError:
    """An InvalidError about one field."""
    return InvalidError(f"{field}: {detail}", errors=[FieldError(field, detail)])


def problem_response(
    request: Request,
    status: int,
    title: str,
    detail: str,
    errors: Sequence[FieldError] = (),
    headers: dict[str, str] | None = None,
) -> Response:
    """The RFC 9457 body; `errors` is our extension member."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "instance": request.url.path,
        "errors": list(errors),
    }
    return Response(msgspec.json.encode(body), status, headers, media_type=PROBLEM)


def _field_error(entry: dict[str, Any]) -> FieldError:
    """What pydantic says about one field; of a body that is no JSON it says at which byte."""
    if entry["type"] == "json_invalid":
        return FieldError("body", f"is no JSON: {entry['ctx']['error']} (byte {entry['loc'][-1]})")
    return FieldError(".".join(str(part) for part in entry["loc"]), entry["msg"])


class _LimitAsProblem:
    """ASGI middleware: FastAPI's own limit on bodies answers in plain text; this says the same as a problem body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        instead: Response | None = None

        async def sending(message: Message) -> None:
            nonlocal instead
            if message["type"] == "http.response.start" and message["status"] == 413:
                media_type = Headers(raw=message["headers"]).get("content-type", "")
                if media_type.startswith("text/plain"):
                    detail = "The body is larger than this address takes."
                    errors = [FieldError("body", "is too large")]
                    instead = problem_response(Request(scope), 413, TooLargeError.title, detail, errors)
            if instead is None:
                await send(message)
            elif not message.get("more_body", message["type"] == "http.response.start"):
                await instead(scope, receive, send)

        await self.app(scope, receive, sending)


def install(app: FastAPI) -> None:
    """Make every error of this application a problem body."""

    async def problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, ProblemError)
        return problem_response(request, error.status, error.title, error.detail, error.errors, error.headers)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = {name.title(): value for name, value in (error.headers or {}).items()}
        title = detail = str(error.detail)
        if title == HTTPStatus(error.status_code).phrase:  # made by the router, which says no more
            detail = {
                404: f"There is nothing at {request.url.path}. The API is described at /api/docs.",
                405: f"{request.method} is not possible here, but {headers.get('Allow', 'another method')} is.",
            }.get(error.status_code, detail)
        return problem_response(request, error.status_code, title, detail, headers=headers)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        errors = [_field_error(entry) for entry in error.errors()]
        detail = "; ".join(f"{e.field}: {e.detail}" for e in errors)
        return problem_response(request, 422, "Invalid", detail, errors)

    async def database(request: Request, error: Exception) -> Response:
        log.error("%s %s: %s", request.method, request.url.path, error)
        detail = "The database does not take requests now. Send this again later; the service's log says more."
        return problem_response(request, 503, "Database unavailable", detail, headers={"Retry-After": "2"})

    async def unforeseen(request: Request, _error: Exception) -> Response:  # its traceback is in the log
        detail = "Something unforeseen went wrong. The service's log says what."
        return problem_response(request, 500, "Internal server error", detail)

    app.add_exception_handler(ProblemError, problem)
    for kind in (OperationalError, InterfaceError, PoolTimeoutError):
        app.add_exception_handler(kind, database)
    app.add_exception_handler(Exception, unforeseen)
    app.add_middleware(_LimitAsProblem)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
