"""What the outbox gives out, and what it makes of answers: nothing is sent here."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from delivery_world import DeliveryWorld
from sqlalchemy import Engine

from service.channels import outbox
from service.channels.outbox import Attempt
from service.channels.sending import Reply
from service.database.engine import writing


@pytest.fixture
def world(engine: Engine) -> DeliveryWorld:
    return DeliveryWorld(engine)


def test_no_channel_starves_where_others_never_run_dry(world: DeliveryWorld) -> None:
    channels = {world.channel(f"https://example.com/{number}") for number in range(4)}
    for _ in range(60):
        world.alert()
    served: Counter[int] = Counter()
    for _ in range(60):  # one sender for all of them
        with writing(world.engine) as session:
            [claimed] = outbox.claim(session, time.time(), 60.0, (), 1)
            outbox.record(session, claimed, Attempt(time.time(), 0.0, Reply(200, {}, b"")))
        served[claimed.channel_id] += 1
    assert set(served) == channels


def test_a_failure_after_the_claim_lapsed_leaves_the_claim_of_another_process(world: DeliveryWorld) -> None:
    world.channel("https://example.com/")
    world.alert()
    now = time.time()
    with writing(world.engine) as session:
        [first] = outbox.claim(session, now, 1.0, (), 9)
    with writing(world.engine) as session:
        assert outbox.claim(session, now, 1.0, (), 9) == []
        [second] = outbox.claim(session, now + 2.0, 60.0, (), 9)
    with writing(world.engine) as session:
        outbox.record(session, first, Attempt(now, 3.0, error="late"))
    [delivery] = world.deliveries()
    assert (delivery.claimed_until, delivery.attempts) == (second.until, 1)
    assert delivery.next_attempt_at < now + 1.0


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (b'{"message": "limited", "retry_after": 64.57, "global": false}', 64.57),
        (b'{"retry_after": "soon"}', 0.0),
        (b'{"retry_after": 1e400}', 86400.0),
        (b'{"retry_after": NaN}', 0.0),
        (b'{"retry_after": true}', 0.0),
        (b"[1]", 0.0),
        (b"\xff", 0.0),
    ],
)
def test_discords_own_retry_after_is_honoured(body: bytes, seconds: float) -> None:
    assert outbox.retry_after(Reply(429, {}, body), 0.0) == seconds
    assert outbox.retry_after(Reply(500, {}, body), 0.0) == 0.0
