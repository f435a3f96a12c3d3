"""A small soak: bad receivers and a service that is killed; the whole one is `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak import CHANNELS, JUDGED, Outcome, judge_memory, soak


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
