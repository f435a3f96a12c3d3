"""A small chat receiver on loopback: takes Standard Webhooks, checks each signature, keeps every message once."""

from __future__ import annotations

import base64
import json
import queue
import secrets
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError


@dataclass(frozen=True, slots=True)
class Received:
    """One message: `body` is {type, timestamp, data}; `genuine` says whether its signature was right."""

    id: str
    body: dict[str, Any]
    genuine: bool


class ChatReceiver:
    """Listens until closed. New messages come out of `messages`; `known` holds the ids seen, so doubles are dropped."""

    def __init__(self) -> None:
        self.secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
        self.messages: queue.Queue[Received] = queue.Queue()
        self.known: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/chat"
        self._thread = threading.Thread(target=self._server.serve_forever, name="chat receiver", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        """Keep a message unless its id is known."""
        try:
            Webhook(self.secret).verify(body, headers)
            genuine = True
        except WebhookVerificationError:
            genuine = False
        message = Received(headers.get("webhook-id", ""), json.loads(body), genuine)
        if message.id not in self.known:
            self.known.add(message.id)
            self.messages.put(message)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                receiver.take(body, {name.lower(): value for name, value in self.headers.items()})
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing: the terminal belongs to the demo."""

        return Handler
