"""What the service answers when it cannot do as asked: RFC 9457 problem bodies, made in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

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


def install(app: FastAPI) -> None:
    """Make every error of this application a problem body."""

    async def problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, ProblemError)
        return problem_response(request, error.status, error.title, error.detail, error.errors, error.headers)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        return problem_response(request, error.status_code, str(error.detail), str(error.detail), headers=headers)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        errors = [FieldError(".".join(str(part) for part in e["loc"]), e["msg"]) for e in error.errors()]
        detail = "; ".join(f"{e.field}: {e.detail}" for e in errors)
        return problem_response(request, 422, "Invalid", detail, errors)

    app.add_exception_handler(ProblemError, problem)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
