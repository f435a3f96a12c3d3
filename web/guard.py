"""Who may see pages: with a token set, only browsers that have signed in with it."""

from __future__ import annotations

import hmac
from html import escape
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from service.auth.token import COOKIE, is_authorized
from service.context import ContextDep
from service.errors import ProblemError
from web.rendering import HEADERS, base_of, render

MAX_FORM_BYTES = 64 * 1024  # a note of 4,000 characters, each of up to 12 bytes once encoded
MAX_LOGIN_BYTES = 4096  # anyone may send it
KEEP_SECONDS = 90 * 24 * 3600

router = APIRouter(include_in_schema=False)


class SignInError(Exception):
    """A page was asked for without the token."""


class ForbiddenError(ProblemError):
    """A form that another site's page sent."""

    status = 403
    title = "Forbidden"


def require_sign_in(request: Request, context: ContextDep) -> None:
    """Let a page's request through only with the token (or where none is needed)."""
    if not is_authorized(request, context.settings):
        raise SignInError
    request.state.news = context.broker.last  # before anything is read: the page is told of all that comes after it


def require_same_origin(request: Request) -> None:
    """Refuse a form sent by another site's page.

    Browsers say where a request comes from in `Sec-Fetch-Site`, older ones in `Origin`; what carries neither is no
    browser's form.

    Raises:
        ForbiddenError: the request comes from elsewhere.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        same = site == "same-origin"
    else:
        same = origin is not None and urlsplit(origin).netloc == request.headers.get("host", "")
    if not same:
        raise ForbiddenError("This form was not sent from a page of this service. Open the page itself and try again.")


def local_path(path: str) -> str:
    """A path of this service to go on to, the list of runs for anything that could lead elsewhere."""
    parts = urlsplit(path)
    safe = path.startswith("/") and not path.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return path if safe and "\\" not in path and path.isprintable() else "/"


async def form_of(request: Request, most: int = MAX_FORM_BYTES) -> dict[str, str]:
    """The fields of a url-encoded form of at most `most` bytes.

    Raises:
        ProblemError: more bytes than such a form has.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise ProblemError("The form is too large.", status=413, title="Too large")
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: values[-1] for name, values in fields.items()}


@router.post("/login")
async def login(request: Request, context: ContextDep) -> Response:
    """Check the token of the login form and keep it in a cookie that scripts cannot read."""
    require_same_origin(request)
    form = await form_of(request, MAX_LOGIN_BYTES)
    token, going_to = form.get("token", "").strip(), local_path(form.get("next", "/"))
    wanted = context.settings.token
    if wanted is not None and not hmac.compare_digest(token.encode(), wanted.get_secret_value().encode()):
        return render(request, "login.html", status=401, next=going_to, wrong=True)
    response = RedirectResponse(base_of(request) + going_to, 303)
    if wanted is None:  # open: there is nothing to keep
        return response
    secure = request.url.scheme == "https" or context.settings.base_url.startswith("https:")
    response.set_cookie(COOKIE, token, max_age=KEEP_SECONDS, path="/", httponly=True, samesite="strict", secure=secure)
    return response


@router.post("/logout")
def logout(request: Request) -> Response:
    """Forget the token."""
    require_same_origin(request)
    response = RedirectResponse(f"{base_of(request)}/", 303)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


def install(app: FastAPI) -> None:
    """Answer a page asked for without the token with the login form."""

    async def sign_in(request: Request, error: Exception) -> Response:
        assert isinstance(error, SignInError)
        path = request.url.path.removeprefix(base_of(request)) or "/"
        if request.url.query:
            path += f"?{request.url.query}"
        # A link in a chat message comes from another site: the browser leaves the strict cookie out, although the
        # reader may have signed in. Loading the page once more, from here, sends it.
        if request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
            target = quote(base_of(request) + path, safe="/?&=%:+,;@~!$'()*")
            refresh = f'<meta http-equiv="refresh" content="0;url={escape(target)}">'
            return HTMLResponse(f'<!doctype html><meta charset="utf-8"><title>Pacenote</title>{refresh}', 200, HEADERS)
        return render(request, "login.html", status=401, next=local_path(path), wrong=False)

    app.add_exception_handler(SignInError, sign_in)
