"""Serving a sub-path of an address behind a proxy."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class SubPath:
    """ASGI middleware: some proxies take the sub-path off a request's path, others leave it on. Routing expects it on
    (ASGI's `root_path`), so here it is put back where it is missing."""

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self.app, self.root_path = app, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root = self.root_path
        if root and scope["type"] == "http" and not f"{scope['path']}/".startswith(f"{root}/"):
            scope = dict(scope) | {"path": root + scope["path"], "raw_path": root.encode() + scope.get("raw_path", b"")}
        await self.app(scope, receive, send)
