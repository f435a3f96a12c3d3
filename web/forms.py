"""What forms send, read into the API's own bodies: a field left empty is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi import Request, Response
from pydantic import BaseModel, ValidationError

from service.errors import ProblemError, field_error
from web.rendering import render

Form = Mapping[str, str]
Body = TypeVar("Body", bound=BaseModel)


def body_of(model: type[Body], fields: Mapping[str, Any]) -> Body:
    """A body from form fields; empty ones count as not sent.

    Raises:
        InvalidError: a field is not as it must be; it is named.
    """
    try:
        return model.model_validate({name: value for name, value in fields.items() if value not in (None, "")})
    except ValidationError as error:
        first = error.errors()[0]
        raise field_error(".".join(map(str, first["loc"])) or "form", first["msg"]) from error


def problem(request: Request, error: ProblemError) -> Response:
    """The page that says what was wrong."""
    return render(request, "problem.html", status=error.status, title=error.title, detail=error.detail)
