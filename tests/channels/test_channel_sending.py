"""One POST to a receiver, well-behaved or not."""

from __future__ import annotations

import socket
import threading

import pytest
from http_receiver import Answer, Receiver

from service.channels.sending import MAX_REPLY, Sender, SendError


def test_body_and_headers_arrive_as_they_were_given(receiver: Receiver) -> None:
    reply = Sender(allow_private=True).post(receiver.url + "/a?b=ü", {"webhook-id": "7", "x": "y"}, "ü".encode())
    assert (reply.status, reply.body) == (200, b"ok")
    [request] = receiver.take()
    assert (request.path, request.body, request.headers["x"]) == ("/a?b=%C3%BC", "ü".encode(), "y")
    assert request.headers["host"] == receiver.url.removeprefix("http://")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(receiver: Receiver, status: int) -> None:
    receiver.will("/a", Answer(status, (("location", receiver.url + "/b"),)))
    assert Sender(allow_private=True).post(receiver.url + "/a", {}, b"").status == status
    assert [request.path for request in receiver.take()] == ["/a"]
    assert receiver.nothing_left()


@pytest.mark.parametrize("manner", ["never", "drip"])
def test_time_for_the_whole_request_is_limited(receiver: Receiver, manner: str) -> None:
    receiver.will("/", Answer(manner=manner))
    with pytest.raises(SendError, match=r"No answer within 0\.3 s"):
        Sender(allow_private=True, timeout=0.3).post(receiver.url + "/", {}, b"")


def test_an_answer_that_breaks_off_is_a_failure(receiver: Receiver) -> None:
    receiver.will("/", Answer(manner="close"))
    with pytest.raises(SendError, match="RemoteProtocolError"):
        Sender(allow_private=True).post(receiver.url + "/", {}, b"")


def test_a_huge_answer_is_read_up_to_the_limit(receiver: Receiver) -> None:
    receiver.will("/", Answer(manner="huge"))
    assert len(Sender(allow_private=True).post(receiver.url + "/", {}, b"").body) == MAX_REPLY


def test_nobody_listening_is_a_failure() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(SendError, match=r"[Rr]efused"):
        Sender(allow_private=True).post(f"http://127.0.0.1:{port}/", {}, b"")


def test_a_name_that_leads_inside_is_refused_without_connecting(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(receiver.url.rsplit(":", 1)[1])))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: inside)
    with pytest.raises(SendError, match=r"127\.0\.0\.1 is not a public address"):
        Sender(allow_private=False).post("https://rebound.example.com/", {}, b"")
    assert receiver.nothing_left()


def test_the_address_is_looked_up_once_and_that_one_is_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = socket.getaddrinfo, []

    def once(host: str, port: int, **more: int) -> object:
        asked.append(host)
        assert len(asked) == 1, "a second answer could be another address"
        return real("127.0.0.1", port, **more)

    monkeypatch.setattr(socket, "getaddrinfo", once)
    port = receiver.url.rsplit(":", 1)[1]
    assert Sender(allow_private=True).post(f"http://hooks.example.com:{port}/", {}, b"").status == 200
    assert receiver.take()[0].headers["host"] == f"hooks.example.com:{port}"


def test_abort_ends_what_is_being_sent(receiver: Receiver) -> None:
    receiver.will("/", Answer(manner="never"))
    sender, failures = Sender(allow_private=True), []

    def send() -> None:
        with pytest.raises(SendError) as raised:
            sender.post(receiver.url + "/", {}, b"")
        failures.append(raised.value)

    thread = threading.Thread(target=send)
    thread.start()
    receiver.take()
    sender.abort()
    thread.join(10.0)
    assert len(failures) == 1
