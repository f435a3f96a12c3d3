"""HEAD, answered as GET is but without the body (RFC 9110, 9.3.2)."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """ASGI middleware: wherever GET is answered HEAD is too. A stream that would never end is left after its head."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        answered = asyncio.Event()

        async def heading(message: Message) -> None:
            if message["type"] == "http.response.start" and not answered.is_set():
                await send(message)
                await send({"type": "http.response.body", "body": b""})
                answered.set()

        async def gone() -> Message:
            if not answered.is_set():
                message = await receive()
                if message["type"] == "http.request":
                    return message
            return {"type": "http.disconnect"}

        async def leave() -> None:
            await answered.wait()
            working.cancel()

        working = asyncio.ensure_future(self.app({**scope, "method": "GET"}, gone, heading))
        leaving = asyncio.ensure_future(leave())
        try:
            await working
        except asyncio.CancelledError:
            if not answered.is_set():
                raise
        finally:
            working.cancel()
            leaving.cancel()
