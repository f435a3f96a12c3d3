"""A gap is worked out once for each state of a run's data, and anew for the next."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest

from service.database.engine import reading
from service.judgements.gap import Gap, read_gap
from service.runs.repository import RunRepository
from tests.web.world import TRAIN, World
from web.content import gaps


def asked(world: World, name: str) -> tuple[Gap, Gap]:
    """From memory, and as it is."""
    with reading(world.context.engine) as session:
        run = RunRepository(session).by_uuid(UUID(world.run_id(name)))
        assert run is not None
        return gaps.gap_of(session, run, TRAIN, 100), read_gap(session, run, TRAIN, 100)[0]


def test_it_is_the_same_until_the_data_change(world: World) -> None:
    segment = world.start("gaps")
    world.train(segment, 1, 200)
    first, fresh = asked(world, "gaps")
    np.testing.assert_array_equal(first.gap, fresh.gap)
    assert asked(world, "gaps")[0] is first
    world.train(segment, 201, 300)
    second, fresh = asked(world, "gaps")
    np.testing.assert_array_equal(second.gap, fresh.gap)
    assert len(second.gap) > len(first.gap)


def test_no_more_are_kept_than_fit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "KEPT", 1)
    for name in ("one", "two"):
        world.train(world.start(name), 1, 100)
    first, _ = asked(world, "one")
    asked(world, "two")
    assert asked(world, "one")[0] is not first
