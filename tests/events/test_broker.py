"""What listeners are told: everything in order, once more what they missed, and where that is too much, that it is."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.broker import KEPT, MISSED, QUEUE_LENGTH, STRIDE, Broker, Notice


async def drain(queue: asyncio.Queue[Notice]) -> list[Notice]:
    """What is in a queue once the loop has handed everything over."""
    await asyncio.sleep(0)
    return [queue.get_nowait() for _ in range(queue.qsize())]


@given(before=st.integers(0, 30), between=st.integers(0, 30), after=st.integers(0, 30))
def test_a_listener_that_comes_back_hears_everything_once(before: int, between: int, after: int) -> None:
    async def listen() -> None:
        broker = Broker()
        for number in range(before):
            broker.publish("points", {"n": number})
        known = broker.last
        for number in range(before, before + between):
            broker.publish("points", {"n": number})
        with broker.listening(known) as queue:
            for number in range(before + between, before + between + after):
                broker.publish("points", {"n": number})
            heard = await drain(queue)
        assert [notice.body["n"] for notice in heard] == list(range(before, before + between + after))
        assert [notice.number for notice in heard] == list(range(known + STRIDE, broker.last + 1, STRIDE))
        assert broker.listeners == 0

    asyncio.run(listen())


def test_a_new_listener_hears_of_nothing_old() -> None:
    async def listen() -> None:
        broker = Broker()
        broker.publish("points", {})
        with broker.listening() as queue:
            assert await drain(queue) == []

    asyncio.run(listen())


def test_what_is_too_long_ago_is_said_to_be_missed() -> None:
    async def listen() -> None:
        broker = Broker()
        known = broker.last
        for _ in range(KEPT + 1):
            broker.publish("points", {})
        of_another_process = broker.last - STRIDE + 1
        for since in (known, 0, broker.last + STRIDE, of_another_process):
            with broker.listening(since) as queue:
                assert await drain(queue) == [Notice(broker.last, MISSED, {})]
        with broker.listening(known + STRIDE) as queue:
            assert len(await drain(queue)) == KEPT

    asyncio.run(listen())


def test_who_does_not_keep_up_is_told_so() -> None:
    async def listen() -> None:
        broker = Broker()
        with broker.listening() as queue:
            for _ in range(QUEUE_LENGTH + 1):
                broker.publish("points", {})
            heard = await drain(queue)
        assert len(heard) == QUEUE_LENGTH
        assert [notice.kind for notice in heard[-2:]] == [MISSED, "points"]
        assert heard[-1].number == broker.last

    asyncio.run(listen())


def test_numbers_go_on_from_process_to_process(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Broker()
    for _ in range(900):
        first.publish("points", {})
    later = time.time_ns() + 1_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: later)
    assert Broker().last > first.last
