"""One HTTP POST to an address that a user gave: resolved once, pinned, no redirects, bounded in time and size."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

from service.channels.safety import UnsafeAddressError, check_url, is_public, refusal

TIMEOUT = 20.0  # seconds for the whole of it
MAX_REPLY = 64 * 1024  # bytes read of an answer


@dataclass(frozen=True, slots=True)
class Reply:
    """What a receiver answered: status, headers with lower-case names, at most MAX_REPLY bytes of its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class SendError(Exception):
    """No answer came; the message says why in one line."""


class Sender:
    """Posts messages, each over a connection of its own. Any thread may use it."""

    def __init__(self, *, allow_private: bool, timeout: float = TIMEOUT) -> None:
        self.allow_private = allow_private
        self._timeout = timeout
        self._tls = httpx.create_ssl_context()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Send `body` and read the answer, whatever its status.

        Raises:
            SendError: refused address, no connection, broken or late answer.
        """
        deadline = time.monotonic() + self._timeout
        backend = _PinnedBackend(self, deadline)
        try:
            parsed = check_url(url, allow_private=self.allow_private)
            target = httpcore.URL(
                scheme=parsed.raw_scheme, host=parsed.raw_host, port=parsed.port, target=parsed.raw_path
            )
            with (
                httpcore.ConnectionPool(ssl_context=self._tls, network_backend=backend, max_connections=1) as pool,
                pool.stream("POST", target, headers=list(headers.items()), content=body) as response,
            ):
                return Reply(response.status, _decoded(response.headers), _read(response.iter_stream()))
        except UnsafeAddressError as error:
            raise SendError(f"The address {error}") from error
        except httpcore.TimeoutException as error:
            raise SendError(f"No answer within {self._timeout:g} s") from error
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError, UnicodeError) as error:
            raise SendError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error

    def abort(self) -> None:
        """Break every connection that is open now; their `post` calls end with a SendError."""
        with self._lock:
            open_now = list(self._sockets)
        for connected in open_now:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def connect(self, host: str, port: int, deadline: float) -> socket.socket:
        """A connection to the first address of `host` that may be used and answers.

        Raises:
            UnsafeAddressError: none of its addresses may be used.
            OSError: none answers.
        """
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        usable = [entry for entry in found if self.allow_private or is_public(str(entry[4][0]))]
        if not usable:
            raise UnsafeAddressError(f"leads to a refused one: {refusal(str(found[0][4][0]))}")
        failure: OSError | None = None
        for family, kind, protocol, _, address in usable:
            connected = socket.socket(family, kind, protocol)
            try:
                connected.settimeout(max(0.001, deadline - time.monotonic()))
                connected.connect(address)
            except OSError as error:
                connected.close()
                failure = error
                continue
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets.add(connected)
            return connected
        assert failure is not None
        raise failure

    def forget(self, connected: socket.socket) -> None:
        """The connection is about to close or has changed hands."""
        with self._lock:
            self._sockets.discard(connected)

    def adopt(self, connected: socket.socket) -> None:
        """The connection goes on as this object (after TLS began)."""
        with self._lock:
            self._sockets.add(connected)


def _decoded(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("ascii", "replace").lower(): value.decode("latin-1") for name, value in headers}


def _read(parts: Iterable[bytes]) -> bytes:
    body = bytearray()
    for part in parts:
        body += part
        if len(body) >= MAX_REPLY:
            break
    return bytes(body[:MAX_REPLY])


class _PinnedBackend(httpcore.NetworkBackend):
    def __init__(self, sender: Sender, deadline: float) -> None:
        self._sender = sender
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        try:
            connected = self._sender.connect(host, port, self._deadline)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        return _BoundedStream(self._sender, connected, self._deadline)


class _BoundedStream(httpcore.NetworkStream):
    """A socket whose every wait ends at the deadline of the whole request."""

    def __init__(self, sender: Sender, connected: socket.socket, deadline: float) -> None:
        self._sender = sender
        self._socket = connected
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            self._wait()
            return self._socket.recv(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            self._wait()
            self._socket.sendall(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        self._sender.forget(self._socket)
        self._socket.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        self._sender.forget(self._socket)
        try:
            self._wait()
            secured = ssl_context.wrap_socket(self._socket, server_hostname=server_hostname)
        except TimeoutError as error:
            self._socket.close()
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            self._socket.close()
            raise httpcore.ConnectError(str(error)) from error
        self._sender.adopt(secured)
        return _BoundedStream(self._sender, secured, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._socket if info == "socket" else None

    def _wait(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time for the whole request is over")
        self._socket.settimeout(left)
