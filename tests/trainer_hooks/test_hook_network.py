"""One connection against everything a network and its middle boxes can answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from hook_service import HookService

import trainer_hooks
from trainer_hooks import connection as connections
from trainer_hooks.connection import Answer, Connection, parse_address

BODY = b'{"project":"p"}'
Talk = Callable[[socket.socket], None]


@pytest.fixture
def talker() -> Iterator[Callable[[Talk], str]]:
    """Gives the address of a server that reads one request on each connection, then does as told."""
    ended = threading.Event()
    servers: list[socket.socket] = []
    clients: list[socket.socket] = []

    def make(talk: Talk) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def answer(client: socket.socket) -> None:
            with contextlib.suppress(OSError):
                client.recv(65536)
                talk(client)
                ended.wait(20)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    clients.append(server.accept()[0])
                    threading.Thread(target=answer, args=(clients[-1],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}"

    yield make
    ended.set()
    for one in (*servers, *clients):
        one.close()


def ask(address: str) -> Answer:
    return Connection(address, timeout=0.3, deadline=0.6).request("PUT", "/api/v1/segments/a", BODY)


def forever(piece: bytes) -> Talk:
    def talk(client: socket.socket) -> None:
        while True:
            client.sendall(piece)
            threading.Event().wait(0.02)

    return talk


@pytest.mark.parametrize(
    ("talk", "said"),
    [
        (lambda client: None, "timed out"),
        (lambda client: client.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 40\r\n\r\n{"), "timed out"),
        (lambda client: client.sendall(b"HTTP/1.1 202 Acc"), "timed out"),
        (forever(b"H"), "Timeout"),
        (forever(b"HTTP/1.1 100 Continue\r\n\r\n"), "Timeout"),
        (lambda client: client.sendall(b"220 mail.example ESMTP\r\n"), "BadStatusLine"),
        (lambda client: client.sendall(b"HTTP/1.1 202 A\r\n" + b"X: y\r\n" * 200 + b"\r\n"), "headers"),
        (lambda client: client.sendall(b"HTTP/1.1 202 A\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 10**6), "not as"),
        (lambda client: client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n<html></html>"), "its address?"),
        (
            lambda client: client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + b"[" * 9000),
            "its address?",
        ),
    ],
    ids=["silence", "half", "half line", "drip", "continues", "no HTTP", "headers", "huge", "log-in page", "nested"],
)
def test_no_proper_answer_is_no_answer(talker: Callable[[Talk], str], talk: Talk, said: str) -> None:
    answer = ask(talker(talk))
    assert answer.status == 0
    assert said in answer.detail


@pytest.mark.parametrize(
    "url", ["http://nothing.invalid", "http://[::1]:9", "https://127.0.0.1:9", "http://a..b", "http://é"]
)
def test_no_connection_is_no_answer(url: str) -> None:
    assert ask(url).status == 0


def test_tls_to_a_plain_port_is_no_answer(service: HookService) -> None:
    answer = ask(service.url.replace("http", "https", 1))
    assert (answer.status, "SSL" in answer.detail) == (0, True)


def test_an_answer_that_closes_the_connection_is_read(talker: Callable[[Talk], str]) -> None:
    content = b'{"accepted":1,"duplicate":true}'
    head = b"HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(content)
    assert ask(talker(lambda client: client.sendall(head + content))) == Answer(202, True, 0.0, "Accepted")


def test_a_redirect_is_not_followed_but_shown(talker: Callable[[Talk], str]) -> None:
    text = b"HTTP/1.1 308 Permanent Redirect\r\nLocation: https://elsewhere/\r\nContent-Length: 0\r\n\r\n"
    answer = ask(talker(lambda client: client.sendall(text)))
    assert answer.status == 308
    assert "https://elsewhere/" in answer.detail


@pytest.mark.parametrize(
    ("after", "seconds"), [("nan", 0.0), ("-5", 0.0), ("inf", 3600.0), ("9" * 400, 3600.0), ("x", 0)]
)
def test_retry_after_is_always_a_number_of_seconds(after: str, seconds: float) -> None:
    assert connections.retry_after(after) == seconds


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Connection("http://[::1]/prefix")._connect()
    assert (made.host, made.port) == ("::1", 80)
    monkeypatch.setenv("HTTP_PROXY", "http://[::2]")
    proxied = Connection("http://[fd00::1]:8350")._connect()
    assert (proxied.host, proxied.port) == ("::2", 80)


@pytest.mark.parametrize(
    "url", ["http://user:secret@host", "http://:secret@host", "http://host/?token=secret", "http://h#secret"]
)
def test_what_an_address_cannot_hold_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"PACENOTE_|no address") as caught:
        parse_address(url)
    assert "@" not in str(caught.value)


@pytest.mark.parametrize("token", ["secret\nX-Evil: 1", "sec\x00ret", "sécret"])
def test_a_token_that_no_header_can_carry_is_refused_and_never_shown(
    service: HookService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, token: str
) -> None:
    monkeypatch.setattr(connections.os.environ, "get", {**connections.os.environ, "PACENOTE_TOKEN": token}.get)
    run = trainer_hooks.start("run", project="p")
    assert run.finish().left_in_spool == 2
    assert "PACENOTE_TOKEN holds a character" in caplog.text
    assert "ret" not in caplog.text


def test_the_line_end_of_a_token_file_is_no_part_of_it(service: HookService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACENOTE_TOKEN", "secret\n")
    trainer_hooks.start("run", project="p").finish()
    assert service.requests[0][2]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("url", "no_proxy", "proxy"),
    [
        ("http://127.0.0.1:8350", "", None),
        ("http://127.9.9.9", "", None),
        ("http://localhost:8350", "", None),
        ("http://pacenote.localhost", "", None),
        ("http://[::1]:8350", "", None),
        ("http://[::ffff:127.0.0.1]:8350", "", None),
        ("http://pacenote.example", "", "http://proxy.example:3128"),
        ("http://pacenote.example", "example", None),
        ("http://pacenote.example", "pacenote.example:80", None),
        ("http://pacenote.example", "pacenote.example:8350", "http://proxy.example:3128"),
        ("http://pacenote.example", "*", None),
        ("http://10.1.2.3:8350", "", "http://proxy.example:3128"),
        ("http://10.1.2.3:8350", "10.1.2.3", None),
        ("http://10.1.2.3:8350", "10.1.0.0/16", None),
        ("http://10.1.2.3:8350", "10.2.0.0/16,nonsense/", "http://proxy.example:3128"),
        ("http://[fd00::5]:8350", "fd00::/8", None),
    ],
)
def test_which_addresses_go_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch, url: str, no_proxy: str, proxy: str | None
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", no_proxy)
    parts = parse_address(url)
    assert connections.proxy_for("http", parts.hostname or "", parts.port or 80) == proxy


def test_loopback_does_not_go_through_a_proxy(service: HookService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert Connection(service.url).request("PUT", "/api/v1/segments/a", BODY).accepted


def test_metrics_that_were_left_out_are_told_once_and_counted(
    talker: Callable[[Talk], str], caplog: pytest.LogCaptureFixture
) -> None:
    body = (
        b'{"accepted":1,"duplicate":false,"refused":['
        b'{"field":"metrics.a","detail":"the run has 2,000 metrics"},{"field":"metrics.b","detail":"x"}]}'
    )
    head = b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = ask(talker(lambda client: client.sendall(head + body)))
    assert answer.accepted
    assert answer.left_out == "metrics.a, metrics.b: the run has 2,000 metrics"
