"""What forms send, read into the API's own bodies (a field left empty is left out), and shown again when refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import Request, Response
from pydantic import BaseModel, ValidationError

from service.errors import FieldError, InvalidError, ProblemError
from web.rendering import render

Form = Mapping[str, str]
Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Filled:
    """A form as it is shown: `values` were typed, `errors` say what was wrong by field, `error` of the whole."""

    values: Form = field(default_factory=dict[str, str])
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    error: str = ""


EMPTY = Filled()
NEEDED = "This is needed."


def refused(form: Form, error: ProblemError, fields: Collection[str]) -> Filled:
    """A form that the service did not take. What is wrong with none of its `fields` is said of the whole."""
    named = {one.field.removeprefix("body."): one.detail for one in error.errors}  # as the API names them
    errors = {name: detail for name, detail in named.items() if name in fields}
    return Filled(form, errors, "" if errors and len(errors) == len(named) else error.detail)


def body_of(model: type[Body], fields: Mapping[str, Any]) -> Body:
    """A body from form fields; empty ones count as not sent.

    Raises:
        InvalidError: fields are not as they must be; they are named.
    """
    try:
        return model.model_validate({name: value for name, value in fields.items() if value not in (None, "")})
    except ValidationError as error:
        found = [
            FieldError(".".join(map(str, one["loc"])) or "form", NEEDED if one["type"] == "missing" else one["msg"])
            for one in error.errors()
        ]
        raise InvalidError("; ".join(f"{one.field}: {one.detail}" for one in found), errors=found) from error


def problem(request: Request, error: ProblemError) -> Response:
    """The page that says what was wrong."""
    return render(request, "problem.html", status=error.status, title=error.title, detail=error.detail)
