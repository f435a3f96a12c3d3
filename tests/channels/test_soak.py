"""A small soak: bad receivers and a service that is killed; the whole one is `make soak`."""

from __future__ import annotations

import datetime
import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from standardwebhooks import Webhook

from benchmarks.soak import CHANNELS, JUDGED, SECRET, Outcome, judge_memory, soak
from benchmarks.soak_receivers import CutOff, Receivers


def test_killed_among_bad_receivers_every_message_arrives_in_order(tmp_path: Path) -> None:
    outcome = soak(f"sqlite:///{tmp_path / 'soak.db'}", alerts=CHANNELS, kills=1, limit=200.0)
    assert outcome.broken == []
    assert (outcome.alerts, outcome.messages, outcome.kills) == (CHANNELS, 3 * CHANNELS, 1)
    assert sum(outcome.spoiled.values()) > 0


def test_two_processes_on_one_database_send_each_message_once(database_url: str) -> None:
    outcome = soak(database_url, alerts=CHANNELS, kills=0, processes=2, limit=200.0)
    assert outcome.broken == []
    assert outcome.messages == 3 * CHANNELS
    assert outcome.doubles == 0, "nobody was killed"


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_one_of_two_processes_on_postgresql_is_killed_and_every_message_arrives(database_url: str) -> None:
    outcome = soak(database_url, alerts=CHANNELS, kills=1, processes=2, limit=200.0)
    assert outcome.broken == []
    assert (outcome.messages, outcome.kills) == (3 * CHANNELS, 1)


def test_memory_that_grows_is_said() -> None:
    flat, growing, short = Outcome(), Outcome(), Outcome()
    judge_memory([50.0 + each % 3 for each in range(JUDGED)], flat)
    judge_memory([50.0 + each for each in range(JUDGED)], growing)
    judge_memory([50.0 + each for each in range(JUDGED - 1)], short)
    assert flat.broken == []
    assert growing.broken == ["memory grew from 64.5 to 84.5 MiB within one life"]
    assert short.broken == [], "too short to say"


def test_a_request_cut_off_is_not_taken_and_one_that_does_not_verify_is_told_from_it() -> None:
    body = json.dumps({"type": "t", "data": {"alert": {"id": "a"}, "change": {"number": 1}}})
    signed = Webhook(SECRET).sign("m", at := datetime.datetime.now(datetime.UTC), body)
    head = f"POST /0/good HTTP/1.1\r\nhost: h\r\nwebhook-id: m\r\nwebhook-timestamp: {int(at.timestamp())}\r\n"
    head += f"webhook-signature: {signed}\r\ncontent-length: {len(body)}\r\n\r\n"
    receivers = Receivers(SECRET, seed=1)
    try:
        for sent, accepted, unsigned, cut_off in (
            (head, 0, 0, [CutOff("m", 0, len(body))]),
            (head + body[:-1], 0, 0, [CutOff("m", 0, len(body)), CutOff("m", len(body) - 1, len(body))]),
            (head + body.replace("a", "b"), 0, 1, None),
            (head + body, 1, 1, None),
        ):
            _send(receivers.url, sent)
            assert (len(receivers.log.accepted), receivers.log.unsigned) == (accepted, unsigned)
            assert cut_off is None or receivers.log.cut_off == cut_off
        assert len(receivers.log.cut_off) == 2
    finally:
        receivers.close()


def _send(url: str, request: str) -> None:
    """Send these bytes, end, and wait until the receiver has ended, too."""
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as connection:
        connection.sendall(request.encode())
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4_096):
            pass
