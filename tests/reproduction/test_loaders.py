"""What the loaders hand out, by Grain itself: every row once when sharded once, and the incident when sharded twice."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduction.data.loaders import Sharding, global_batches

LENGTH = 4


def readings(
    n: int, steps: int, *, hosts: int, batch: int, seed: int = 1, sharding: Sharding = "correct"
) -> np.ndarray:
    """Which rows (steps, hosts, batch / hosts) were handed out; a row is filled with its own number."""
    rows = np.arange(n, dtype=np.uint32)[:, None].repeat(LENGTH, axis=1)
    batches = list(islice(global_batches(rows, hosts=hosts, batch=batch, seed=seed, sharding=sharding), steps))
    assert {share.shape for shares in batches for share in shares} == {(batch // hosts, LENGTH)}
    assert all((share == share[:, :1]).all() for shares in batches for share in shares)
    return np.array([[share[:, 0] for share in shares] for shares in batches])


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([1, 2, 4]), st.integers(1, 3), st.integers(1, 12), st.integers(0, 2**31))
def test_sharded_once_every_row_is_read_once_a_pass(hosts: int, per_host: int, steps: int, seed: int) -> None:
    n = steps * hosts * per_host
    read = readings(n, 3 * steps, hosts=hosts, batch=hosts * per_host, seed=seed)
    for one_pass in np.split(read, 3):
        assert sorted(one_pass.ravel()) == list(range(n))


def test_sharded_twice_each_host_reads_a_fraction_of_its_share_over_and_over() -> None:
    n, hosts, steps = 320, 4, 40
    read = readings(n, steps, hosts=hosts, batch=8, sharding="double")
    pools = [set(read[:, host].ravel().tolist()) for host in range(hosts)]
    assert [len(pool) for pool in pools] == [n // hosts**2] * hosts
    assert len(set.union(*pools)) == n // hosts
    counts = Counter(read.ravel().tolist())
    assert set(counts.values()) == {hosts}  # passes over the pool in what should be one pass


def test_sharded_twice_the_first_repeat_comes_when_the_pool_is_used_up() -> None:
    n, hosts, batch = 320, 4, 8
    read = readings(n, 40, hosts=hosts, batch=batch, sharding="double").reshape(40, batch)
    first_pass = n // hosts // batch
    seen: set[int] = set()
    share_repeated = []
    for step in read:
        share_repeated.append(np.mean([int(row) in seen for row in step]))
        seen |= set(step.tolist())
    assert share_repeated == [0.0] * first_pass + [1.0] * (40 - first_pass)


def test_the_labs_double_shard_first_repeats_at_step_101() -> None:
    read = readings(3200, 101, hosts=4, batch=8, sharding="double").reshape(101, 8)
    assert len(np.unique(read[:100])) == 800
    assert np.isin(read[100], read[:100]).all()


def test_the_seed_alone_decides_the_order() -> None:
    once, again, other = (readings(96, 24, hosts=4, batch=8, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(once, again)
    assert (once != other).any()
    assert (once[:12] != once[12:]).any()  # the second pass is shuffled anew


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hosts": 3}, "does not split over 3 hosts"),
        ({"sharding": "triple"}, "correct or double"),
        ({"hosts": 4, "sharding": "double"}, "leave a host 1, fewer than the 2"),
    ],
)
def test_what_cannot_be_loaded_is_refused_at_once(arguments: dict[str, object], message: str) -> None:
    rows = np.zeros((16, LENGTH), np.uint32)
    with pytest.raises(ValueError, match=message):
        global_batches(rows, **({"hosts": 2, "batch": 8, "seed": 0} | arguments))
