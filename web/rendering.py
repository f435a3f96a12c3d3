"""Templates, and the headers every page carries."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from web import formatting
from web.static_files import static_path

TEMPLATES = Path(__file__).parent / "templates"
# Scripts come from our own files alone. Plotly writes inline styles and makes images from data addresses.
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
FILTERS = (
    "age", "as_float", "estimate", "family_title", "in_unit", "iso", "number", "percent", "rule_title", "signed",
    "span", "step", "tokens", "utc",
)  # fmt: skip
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@cache
def environment() -> Environment:
    """Jinja with everything escaped; a name a template does not know is an error."""
    env = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in FILTERS:
        env.filters[name] = getattr(formatting, name)  # pyright: ignore[reportUnknownMemberType]
    return env


def base_of(request: Request) -> str:
    """What every address begins with behind a proxy that serves a sub-path, without a final slash."""
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")


def render(request: Request, template: str, *, status: int = 200, **content: Any) -> HTMLResponse:
    """A page from a template; every template knows `base`, `static`, `now`, its `status`, the newest of the
    `news` that it holds, and whether a token is in use."""
    base = base_of(request)
    text = (
        environment()
        .get_template(template)
        .render(
            base=base,
            static=base + static_path(),
            now=time.time(),
            status=status,
            news=getattr(request.state, "news", 0),
            signed_in=request.app.state.context.settings.token is not None,
            **content,
        )
    )
    return HTMLResponse(text, status, HEADERS)
