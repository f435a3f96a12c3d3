"""One keep-alive HTTP connection to the service, from the standard library alone. `request` never raises."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import gzip
import http.client
import json
import os
import ssl
import time
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

GZIP_FROM = 1024  # bytes; below it the header costs more than it saves
MAX_ANSWER = 2**16
MAX_RETRY_AFTER = 3600.0
_STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError, ConnectionAbortedError)


class Answer(NamedTuple):
    """What came back. `status` 0: no answer. `retry_after` in seconds, as the service asked."""

    status: int
    duplicate: bool = False
    retry_after: float = 0.0
    detail: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the service has it."""
        return 200 <= self.status < 300


def parse_address(address: str) -> urllib.parse.SplitResult:
    """The parts of a service's address. Raises ValueError if it is no http or https address."""
    parts = urllib.parse.urlsplit(address.strip().rstrip("/"))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{address!r} is no address of a service; it should look like http://127.0.0.1:8350")
    parts.port  # noqa: B018  # raises ValueError for a port that is no number
    return parts


def parse_headers(text: str) -> dict[str, str]:
    """PACENOTE_HEADERS: `Name=value,Other=value`, percent-encoded where a value holds a comma. Raises ValueError."""
    headers: dict[str, str] = {}
    for item in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = item.partition("=")
        name, value = name.strip(), urllib.parse.unquote(value.strip())
        if not equals or not name.isascii() or not name or any(c in name + value for c in "\r\n"):
            raise ValueError("PACENOTE_HEADERS should look like Name=value,Other=value (values percent-encoded)")
        headers[name] = value
    return headers


class Connection:
    """Talks to one service; `address` may carry a path (a service behind a prefix)."""

    def __init__(self, address: str, token: str = "", headers: str = "", timeout: float = 20.0) -> None:
        self.address = address.strip().rstrip("/")
        self._parts = parse_address(address)
        self._timeout = timeout
        self._headers = {"User-Agent": "pacenote-hooks", "Content-Type": "application/json", **parse_headers(headers)}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._connection: http.client.HTTPConnection | None = None
        self._prefix = self._parts.path
        self._proxy_headers: dict[str, str] = {}

    def request(self, method: str, path: str, body: bytes) -> Answer:
        """Sends one JSON body, an object; `sent_at` is added to it. Any trouble is an Answer of status 0."""
        body = b'{"sent_at":%.6f,%s' % (time.time(), body[1:])
        headers = dict(self._headers)
        if len(body) >= GZIP_FROM:
            body = gzip.compress(body, compresslevel=1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        for fresh in (False, True):
            reused = self._connection is not None
            try:
                return self._exchange(method, path, body, headers)
            except _STALE as error:
                self.close()
                if fresh or not reused:  # a connection the service had closed while it was idle is no trouble yet
                    return Answer(0, detail=f"{type(error).__name__}: {error}")
            except Exception as error:
                self.close()
                return Answer(0, detail=f"{type(error).__name__}: {error}")
        return Answer(0)

    def _exchange(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request(method, self._prefix + path, body=body, headers={**headers, **self._proxy_headers})
        response = self._connection.getresponse()
        content = response.read(MAX_ANSWER + 1)
        if len(content) <= MAX_ANSWER and response.length:  # a cut answer is none, whatever its status was
            raise http.client.IncompleteRead(content, response.length)
        if len(content) > MAX_ANSWER or response.will_close:
            self.close()
        return Answer(
            response.status,
            duplicate=_field(content, "duplicate") is True,
            retry_after=_retry_after(response.headers.get("Retry-After")),
            detail=str(_field(content, "detail") or _field(content, "title") or response.reason),
        )

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        proxy = None
        with contextlib.suppress(ValueError):
            if not urllib.request.proxy_bypass(host):
                proxy = urllib.request.getproxies().get(self._parts.scheme)
        tls = self._parts.scheme == "https"
        context = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE") or None) if tls else None
        if proxy is None:
            if context is not None:
                return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=context)
            return http.client.HTTPConnection(host, port, timeout=self._timeout)
        via = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        login = _proxy_login(via)
        if context is not None:
            tunnel = http.client.HTTPSConnection(via.hostname or "", via.port, timeout=self._timeout, context=context)
            tunnel.set_tunnel(host, port or 443, headers=login)
            return tunnel
        self._prefix = f"http://{self._parts.netloc.rpartition('@')[2]}{self._parts.path}"
        self._proxy_headers = login
        return http.client.HTTPConnection(via.hostname or "", via.port, timeout=self._timeout)

    def close(self) -> None:
        """Closes the connection; the next request opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()


def _proxy_login(proxy: urllib.parse.SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{urllib.parse.unquote(proxy.username)}:{urllib.parse.unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _field(content: bytes, name: str) -> Any:
    try:
        return json.loads(content).get(name)
    except (ValueError, AttributeError):
        return None


def _retry_after(value: str | None) -> float:
    """Seconds to wait, from a Retry-After of either form (RFC 9110, 10.2.3); 0 if there is none to be understood."""
    if not value:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError):
            return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)
