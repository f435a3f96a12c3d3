"""Errors as pages for whoever opened an address in a browser; programs get the same as problem bodies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response

from service.errors import PROBLEM
from web.rendering import base_of, render

Handler = Callable[[Request, Exception], Response | Awaitable[Response]]


def wants_page(request: Request) -> bool:
    """Whether a browser went to this address: scripts and programs do not ask for HTML by name."""
    path = request.url.path.removeprefix(base_of(request))
    return "text/html" in request.headers.get("accept", "") and not path.startswith(("/api/v1/", "/pages/"))


def install(app: FastAPI) -> None:
    """Put a page in front of every handler of errors that the application has by now."""
    for kind, handler in list(app.exception_handlers.items()):
        app.add_exception_handler(kind, _with_page(handler))


def _with_page(handler: Handler) -> Handler:
    async def answer(request: Request, error: Exception) -> Response:
        made = handler(request, error)
        response = await made if isawaitable(made) else made
        if response.headers.get("content-type") != PROBLEM or not wants_page(request):
            return response
        body: dict[str, Any] = msgspec.json.decode(bytes(response.body))
        page = render(request, "problem.html", status=response.status_code, title=body["title"], detail=body["detail"])
        page.headers.update({name: value for name, value in response.headers.items() if name == "retry-after"})
        return page

    return answer
