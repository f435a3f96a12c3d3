"""One Grain loader per host, sharded once, as it should be, or twice, as in the incident."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args

import grain
import numpy as np
from numpy.typing import NDArray

from reproduction.data.rows import RowSource

Sharding = Literal["correct", "double"]


def host_loader(
    rows: NDArray[np.uint32], *, host: int, hosts: int, batch: int, seed: int, sharding: Sharding = "correct"
) -> grain.DataLoader:
    """The endless, shuffled loader of one host: batches (batch, length) of the rows that fall to it.

    "correct": Grain's sampler gives each host its share of the rows. "double": the source hands over every
    `hosts`-th row only, and then the sampler shares these out *again*, so that a host reads 1/hosts of its own
    share, over and over. Neither Grain nor the trainer notices.
    """
    source = RowSource(rows, np.arange(host, len(rows), hosts) if sharding == "double" else None)
    sampler = grain.samplers.IndexSampler(
        num_records=len(source),
        shard_options=grain.sharding.ShardOptions(shard_index=host, shard_count=hosts, drop_remainder=True),
        shuffle=True,
        seed=seed,
    )
    return grain.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[grain.transforms.Batch(batch_size=batch, drop_remainder=True)],
        read_options=grain.ReadOptions(num_threads=0, prefetch_buffer_size=0),  # the rows are in memory
        worker_count=0,
    )


def check(n: int, *, hosts: int, batch: int, sharding: Sharding = "correct") -> None:
    """Say whether `n` rows can be shared out so.

    Raises:
        ValueError: `batch` does not split into `hosts`, or a host would not fill one batch in a pass.
    """
    if sharding not in get_args(Sharding):
        raise ValueError(f"sharding is {sharding!r}; it can be {' or '.join(get_args(Sharding))}")
    if hosts < 1 or batch < 1 or batch % hosts:
        raise ValueError(f"a batch of {batch} rows does not split over {hosts} hosts; choose a multiple of {hosts}")
    share = n // hosts // (hosts if sharding == "double" else 1)
    if share < batch // hosts:
        raise ValueError(f"{n} rows leave a host {share}, fewer than the {batch // hosts} of one batch")


def global_batches(
    rows: NDArray[np.uint32], *, hosts: int, batch: int, seed: int, sharding: Sharding = "correct"
) -> Iterator[list[NDArray[np.uint32]]]:
    """Endless global batches: for each step a list with one array (batch / hosts, length) per host.

    Args:
        rows: (n, length) the data set.
        hosts: how many data shards there are; this process plays all of them.
        batch: rows per step over all hosts.
        seed: of the order.

    Raises:
        ValueError: as `check`.
    """
    check(len(rows), hosts=hosts, batch=batch, sharding=sharding)
    loaders: list[Iterator[Any]] = [
        iter(host_loader(rows, host=h, hosts=hosts, batch=batch // hosts, seed=seed, sharding=sharding))
        for h in range(hosts)
    ]
    return (list(batches) for batches in zip(*loaders, strict=True))
