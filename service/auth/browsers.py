"""Keeps other sites' pages, open in a browser on this machine, from reading and writing through that browser.

Two ways are closed. A page of another site may send a form or a simple request here: browsers say so in
`Sec-Fetch-Site`, or at least in `Origin` (Fetch standard). And a site may point its own name at 127.0.0.1 (DNS
rebinding): its page then reads what it likes, but the requests carry that name in `Host`. Clients that are no browsers
send neither header and are not concerned.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import problem_response
from service.settings import Settings

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class BrowserGuard:
    """ASGI middleware: 403 for what another site's page sent, 421 for a name that is not this service's.

    The name is checked only where the service runs open: with a token a rebound page has nothing to show.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self._settings = settings
        self._checks_host = settings.token is None
        self._own = urlsplit(settings.base_url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = Request(scope)
            refusal = self._refusal(request)
            if refusal is not None:
                await problem_response(request, *refusal)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refusal(self, request: Request) -> tuple[int, str, str] | None:
        """Status, title and detail of the answer; None lets the request through."""
        host = request.headers.get("host", "")
        if self._checks_host and not self._is_own_name(host):
            return (
                421,
                "Misdirected request",
                f"This service runs open and does not answer to the name {host}. "
                "Use its address, or name it in PACENOTE_PUBLIC_URL.",
            )
        if request.method not in SAFE_METHODS and self._is_foreign(request):
            return 403, "Forbidden", "A page of another site sent this. Open a page of this service and try again."
        return None

    def _is_own_name(self, host: str) -> bool:
        """Whether a `Host` is none that a stranger could have registered: an address, a name without a dot, our own."""
        if not host:
            return True
        name = _name_of(host)
        try:
            ipaddress.ip_address(name.partition("%")[0])
        except ValueError:
            own = {self._settings.host.lower(), (self._own.hostname or "").lower()}
            return "." not in name or name.endswith(".localhost") or name in own
        return True

    def _is_foreign(self, request: Request) -> bool:
        site = request.headers.get("sec-fetch-site")
        if site is not None:
            return site not in ("same-origin", "none")
        origin = request.headers.get("origin")
        if origin is None:
            return False
        # Behind a proxy `Host` may be rewritten: then the public address is what the browser knows us by.
        return urlsplit(origin).netloc not in (request.headers.get("host", ""), self._own.netloc)


def _name_of(host: str) -> str:
    """`Host` without port, brackets and final dot, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".").lower()
