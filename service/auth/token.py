"""One shared token for reads and writes; on loopback the service may run open."""

from __future__ import annotations

import hmac

from fastapi import Request

from service.context import ContextDep
from service.errors import UnauthorizedError
from service.settings import Settings

COOKIE = "pacenote_token"


def refuses_to_start(settings: Settings) -> str | None:
    """Why the service must not start with these settings, None if it may."""
    if settings.token is None and not settings.loopback:
        return (
            f"Refusing to listen on {settings.host} without a token: anyone who reaches it could read and write. "
            "Set PACENOTE_TOKEN, or use --host 127.0.0.1."
        )
    if settings.token is None:
        return None
    token = settings.token.get_secret_value()
    if len(token) < 16:
        return "PACENOTE_TOKEN is too short: use at least 16 characters, for example from `openssl rand -hex 20`."
    if not all("!" <= character <= "~" for character in token):
        return "PACENOTE_TOKEN holds a space, a line end or a letter beyond ASCII, which no header can carry."
    return None


def given_token(request: Request) -> str | None:
    """The bearer token of a request, or the one a browser keeps in its cookie."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value:
        return value.strip()
    return request.cookies.get(COOKIE)


def is_authorized(request: Request, settings: Settings) -> bool:
    """Whether the request carries the token (compared in constant time), or none is needed."""
    if settings.token is None:
        return True
    given = given_token(request)
    return given is not None and hmac.compare_digest(given.encode(), settings.token.get_secret_value().encode())


async def require_token(request: Request, context: ContextDep) -> None:  # async: else every request waits for a thread
    """Refuse a request without the token.

    Raises:
        UnauthorizedError: no token, or another one.
    """
    if not is_authorized(request, context.settings):
        raise UnauthorizedError(
            "Send the service's token as `Authorization: Bearer …`.", headers={"WWW-Authenticate": "Bearer"}
        )
