"""The cause that an audit names for every known combination of Grain's shards; with the figures that were measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import grain_loaders as loaders
import pytest

from trainer_hooks.loader_audit import Pass, audit

ROWS = loaders.ROWS
TWICE = "sharded in source and loader"
NOBODY = "nobody shards"
DISAGREE = "sampler and loader disagree on shards"


def four_hosts(make: Callable[..., Any], **arguments: Any) -> Pass:
    (one,) = audit(make, hosts=[4], workers=[0], records=ROWS, **arguments).passes
    return one


@pytest.mark.parametrize(
    ("make", "order"),
    [
        (loaders.sampler_only, "slice before shuffle"),
        (loaders.loader_only, ""),
        (loaders.loader_asks_jax, ""),
        (loaders.sampler_and_loader_alike, "slice before shuffle"),
        (loaders.source_only, "slice before shuffle"),
        (loaders.sliced_last, ""),
        (loaders.sliced_first, "slice before shuffle"),
        (loaders.elastic, ""),
        (loaders.asks_late, ""),
        (partial(loaders.incident, shards=False), "a block of rows per host"),
        (loaders.mended, ""),
    ],
)
def test_one_place_shards(make: Callable[..., Any], order: str) -> None:
    found = four_hosts(make)
    assert found.ok
    assert (found.read, found.distinct, found.never, found.twice) == (ROWS, ROWS, 0, 0)
    assert [cause.name for cause in found.causes] == [order] * bool(order)
    assert (found.order == "kept") == (not order)


def test_an_order_that_depends_on_the_hosts_is_a_fault_where_it_is_asked_for() -> None:
    assert four_hosts(loaders.sliced_last, same_order=True).ok
    found = four_hosts(loaders.sliced_first, same_order=True)
    assert [(cause.name, cause.note) for cause in found.causes] == [("slice before shuffle", False)]


@pytest.mark.parametrize(
    ("make", "cause", "distinct"),
    [
        (loaders.source_and_sampler, TWICE, ROWS // 4),
        (loaders.block_and_sampler, TWICE, ROWS // 4),
        (loaders.source_sampler_and_loader, TWICE, ROWS // 4),
        (loaders.source_and_load, TWICE, ROWS // 4),
        (loaders.source_and_slice, TWICE, None),
        (loaders.source_and_slice_first, TWICE, ROWS // 4),
        (loaders.sliced_twice_at_once, TWICE, ROWS // 4),
        (loaders.source_and_loader, TWICE, None),
        (loaders.source_and_loader_asks_jax, TWICE, None),
        (loaders.sliced_first_and_last, TWICE, None),
        (loaders.elastic_of_a_slice, TWICE, None),
        (loaders.elastic_of_a_late_slice, TWICE, None),
        (loaders.incident, TWICE, None),
        (loaders.sequential_on_a_slice, TWICE, ROWS // 4),
        (loaders.nobody, NOBODY, ROWS // 4),
        (loaders.asked_jax_too_early, NOBODY, ROWS // 4),
        (loaders.nobody_but_a_seed_each, NOBODY, ROWS),
        (loaders.sampler_shards_loader_does_not, DISAGREE, ROWS // 4),
        (loaders.sampler_shards_loader_does_not_once, DISAGREE, ROWS),
    ],
)
def test_two_places_shard_or_none(make: Callable[..., Any], cause: str, distinct: int | None) -> None:
    found = four_hosts(make)
    assert not found.ok
    assert [one.name for one in found.causes] == [cause]
    if distinct is None:  # the pool is filled again in each epoch: 1 - (3/4)^4 = 68 % of the rows
        assert 0.65 * ROWS < found.distinct < 0.72 * ROWS
    else:
        assert found.distinct == distinct
    assert found.never == ROWS - found.distinct
    assert {row.reads == 1 for row in found.rows} == {False}
