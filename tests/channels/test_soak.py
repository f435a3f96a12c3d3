"""A small soak: bad receivers and a service that is killed; the whole one is `make soak`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.soak import CHANNELS, soak


def test_killed_twice_among_bad_receivers_every_message_arrives_in_order(tmp_path: Path) -> None:
    outcome = soak(f"sqlite:///{tmp_path / 'soak.db'}", alerts=2 * CHANNELS, kills=2, limit=200.0)
    assert outcome.broken == []
    assert (outcome.alerts, outcome.messages, outcome.kills) == (2 * CHANNELS, 6 * CHANNELS, 2)
    assert sum(outcome.spoiled.values()) > 0


def test_two_processes_on_one_database_send_each_message_once(database_url: str) -> None:
    outcome = soak(database_url, alerts=2 * CHANNELS, kills=0, processes=2, limit=200.0)
    assert outcome.broken == []
    assert outcome.messages == 6 * CHANNELS
    assert outcome.doubles == 0, "nobody was killed"
