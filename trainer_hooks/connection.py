"""One keep-alive HTTP connection to the service, from the standard library alone. `request` never raises."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import gzip
import http.client
import io
import ipaddress
import json
import math
import os
import re
import socket
import ssl
import time
import urllib.parse
import urllib.request
from typing import Any, NamedTuple, cast

from trainer_hooks.tally import text_of

GZIP_FROM = 1024  # bytes; below it the header costs more than it saves
MAX_ANSWER = 2**16
MAX_DETAIL = 300  # characters of an answer that are shown
MAX_RETRY_AFTER = 3600.0
_STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError, ConnectionAbortedError)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_PORTS = {"http": 80, "https": 443}


class Answer(NamedTuple):
    """What came back. `status` 0: no answer. `retry_after` in seconds, as the service asked."""

    status: int
    duplicate: bool = False
    retry_after: float = 0.0
    detail: str = ""
    left_out: str = ""  # what the service did not take of a record that it took

    @property
    def accepted(self) -> bool:
        """Whether the service has it."""
        return 200 <= self.status < 300


def parse_address(address: str) -> urllib.parse.SplitResult:
    """The parts of a service's address. Raises ValueError if it is no http or https address."""
    parts = urllib.parse.urlsplit(address.strip().rstrip("/"))
    if parts.username is not None or parts.password is not None:  # do not repeat them: this goes to a log
        raise ValueError("PACENOTE_URL holds a user name; give credentials in PACENOTE_TOKEN or PACENOTE_HEADERS")
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{address!r} is no address of a service; it should look like http://127.0.0.1:8350")
    parts.port  # noqa: B018  # raises ValueError for a port that is no number
    return parts


def parse_headers(text: str) -> dict[str, str]:
    """PACENOTE_HEADERS: `Name=value,Other=value`, percent-encoded where a value holds a comma. Raises ValueError."""
    headers: dict[str, str] = {}
    for item in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = item.partition("=")
        name, value = name.strip(), urllib.parse.unquote(value.strip())
        if not equals or not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError("PACENOTE_HEADERS should look like Name=value,Other=value (values percent-encoded)")
        headers[name] = value
    return headers


def parse_token(text: str) -> str:
    """PACENOTE_TOKEN without the line end it may have from a file. Raises ValueError, which does not repeat it."""
    token = text.strip()
    if not re.fullmatch(r"[\x21-\x7e]*", token):
        raise ValueError("PACENOTE_TOKEN holds a character that no token has")
    return token


class Connection:
    """Talks to one service; `address` may carry a path (a service behind a prefix).

    `timeout` is the longest pause of the network, `deadline` the longest a whole answer may take, both in seconds.
    """

    def __init__(
        self, address: str, token: str = "", headers: str = "", timeout: float = 20.0, deadline: float = 60.0
    ) -> None:
        self.address = address.strip().rstrip("/")
        self._parts = parse_address(address)
        self._timeout = timeout
        self._deadline = deadline
        self._headers = {"User-Agent": "pacenote-hooks", "Content-Type": "application/json", **parse_headers(headers)}
        token = parse_token(token)
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
                    return Answer(0, detail=text_of(error))
            except Exception as error:
                self.close()
                return Answer(0, detail=text_of(error))
        return Answer(0)

    def _exchange(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        if self._connection is None:
            self._connection = self._connect()
        if self._connection.sock is not None:
            self._connection.sock.settimeout(self._timeout)
        self._connection.request(method, self._prefix + path, body=body, headers={**headers, **self._proxy_headers})
        response = self._connection.getresponse()
        content = response.read(MAX_ANSWER + 1)
        if len(content) <= MAX_ANSWER and response.length:  # a cut answer is none, whatever its status was
            raise http.client.IncompleteRead(content, response.length)
        if len(content) > MAX_ANSWER or response.will_close:
            self.close()
        fields = _fields(content)
        if 200 <= response.status < 300 and "accepted" not in fields:  # the log-in page of a proxy, say
            return Answer(0, detail=f"{response.status}, but not as the service answers: is this its address?")
        detail = str(fields.get("detail") or fields.get("title") or response.reason)
        if 300 <= response.status < 400:
            detail += f", to {response.headers.get('Location')}; redirects are not followed: set PACENOTE_URL to it"
        return Answer(
            response.status,
            duplicate=fields.get("duplicate") is True,
            retry_after=retry_after(response.headers.get("Retry-After")),
            detail=" ".join(detail.split())[:MAX_DETAIL],
            left_out=_left_out(fields.get("refused")),
        )

    def _connect(self) -> http.client.HTTPConnection:
        scheme, host = self._parts.scheme, self._parts.hostname or ""
        port = self._parts.port or _PORTS[scheme]  # always given: http.client would take the end of an IPv6 address
        proxy = proxy_for(scheme, host, port)
        via = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}") if proxy else None
        at = (host, port) if via is None else (via.hostname or "", via.port or _PORTS.get(via.scheme, 80))
        if scheme == "https":
            context = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE") or None)
            connection = http.client.HTTPSConnection(*at, timeout=self._timeout, context=context)
            if via is not None:
                connection.set_tunnel(host, port, headers=_proxy_login(via))
        else:
            connection = http.client.HTTPConnection(*at, timeout=self._timeout)
            if via is not None:
                self._prefix = f"http://{self._parts.netloc}{self._parts.path}"
                self._proxy_headers = _proxy_login(via)
        connection.response_class = self._response  # pyright: ignore[reportAttributeAccessIssue]  # as documented
        return connection

    def _response(self, sock: socket.socket, *arguments: Any, **options: Any) -> http.client.HTTPResponse:
        until = _Deadline(sock, time.monotonic() + self._deadline, self._timeout)
        return http.client.HTTPResponse(until, *arguments, **options)  # pyright: ignore[reportArgumentType]

    def close(self) -> None:
        """Closes the connection; the next request opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()


class _Deadline(io.RawIOBase):
    """A socket's incoming side that ends with TimeoutError at a time, however busily it trickles."""

    def __init__(self, sock: socket.socket, until: float, pause: float) -> None:
        self._sock = sock
        self._file = sock.makefile("rb", buffering=0)  # keeps the socket open as long as the answer is read
        self._until = until
        self._pause = pause

    def makefile(self, *arguments: Any, **options: Any) -> io.BufferedReader:
        """As of a socket: what http.client reads from."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer takes too long")
        self._sock.settimeout(min(left, self._pause))
        return self._file.readinto(buffer) or 0

    def close(self) -> None:
        self._file.close()
        super().close()


def _proxy_login(proxy: urllib.parse.SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{urllib.parse.unquote(proxy.username)}:{urllib.parse.unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def proxy_for(scheme: str, host: str, port: int) -> str | None:
    """The proxy that the environment names for an address; none for this machine itself, nor where NO_PROXY says so.

    NO_PROXY holds host names (with all beneath them), addresses, networks such as 10.0.0.0/8, or *.
    """
    if host.rstrip(".").lower() == "localhost" or host.lower().endswith(".localhost"):
        return None
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host.partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        if address.is_loopback or address.is_unspecified or _in_networks(address):
            return None
    with contextlib.suppress(ValueError, OSError):
        if not urllib.request.proxy_bypass(f"[{host}]:{port}" if ":" in host else f"{host}:{port}"):
            return urllib.request.getproxies().get(scheme) or None
    return None


def _in_networks(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    for entry in (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").split(","):
        with contextlib.suppress(ValueError):
            if address in ipaddress.ip_network(entry.strip(), strict=False):
                return True
    return False


def _left_out(refused: Any) -> str:
    """The metrics that were left out, in one line; "" if none were."""
    if not isinstance(refused, list) or not refused:
        return ""
    entries = [cast("dict[str, Any]", entry) for entry in cast("list[Any]", refused) if isinstance(entry, dict)]
    named = ", ".join(str(entry.get("field")) for entry in entries[:3])
    more = f" and {len(entries) - 3} more" if len(entries) > 3 else ""
    return f"{named}{more}: {entries[0].get('detail') if entries else 'refused'}"[:MAX_DETAIL]


def _fields(content: bytes) -> dict[str, Any]:
    try:
        fields: Any = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}


def retry_after(value: str | None) -> float:
    """Seconds to wait, from a Retry-After of either form (RFC 9110, 10.2.3); 0 if there is none to be understood."""
    if not value:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return 0.0 if math.isnan(seconds) else min(max(seconds, 0.0), MAX_RETRY_AFTER)
