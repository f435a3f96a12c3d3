"""Loaders of Grain in every combination of shards, workers and resumes that is known to go wrong, or not to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grain
import jax
import numpy as np

ROWS = 512
BATCH = 8
IN_MEMORY = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)  # no threads for rows that are there
Shards = grain.sharding.ShardOptions


class Source:
    """Rows of eight tokens, all different; `keys` of them if not all."""

    def __init__(self, keys: range = range(ROWS)) -> None:
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> np.ndarray:
        key = self.keys[index]
        return np.arange(8, dtype=np.int32) + key * 1000

    def __repr__(self) -> str:
        return "Source"


def strided(process_index: int, process_count: int) -> Source:
    return Source(range(process_index, ROWS, process_count))


def block(process_index: int, process_count: int) -> Source:
    size = ROWS // process_count
    return Source(range(process_index * size, (process_index + 1) * size))


def loader(
    source: Any, sampler: Any, shards: Shards | None, workers: int = 0, batch: int = BATCH, drop: bool = True
) -> grain.DataLoader:
    return grain.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[grain.transforms.Batch(batch, drop_remainder=drop)],
        shard_options=shards,
        worker_count=workers,
        read_options=IN_MEMORY,
    )


def index_sampler(source: Source, shards: Shards, epochs: int | None = None) -> grain.samplers.IndexSampler:
    return grain.samplers.IndexSampler(len(source), shards, shuffle=True, num_epochs=epochs, seed=3)


def mapped(source: Source) -> grain.MapDataset:
    return grain.MapDataset.source(source)


def batches(dataset: grain.MapDataset, batch: int = BATCH) -> grain.IterDataset:
    return dataset.batch(batch, drop_remainder=True).to_iter_dataset(IN_MEMORY)


NONE = grain.sharding.NoSharding()


def shard(process_index: int, process_count: int, drop_remainder: bool = True) -> Shards:
    return Shards(process_index, process_count, drop_remainder)


# --- which place shards: one, two, none, or two that disagree; all endless unless said ---


def sampler_only(process_index: int, process_count: int, worker_count: int = 0) -> Any:
    options = shard(process_index, process_count)
    return loader(Source(), index_sampler(Source(), options), None, worker_count)


def loader_only(process_index: int, process_count: int) -> Any:
    return loader(Source(), index_sampler(Source(), NONE), shard(process_index, process_count))


def loader_asks_jax() -> Any:
    return loader(Source(), index_sampler(Source(), NONE), grain.sharding.ShardByJaxProcess(drop_remainder=True))


def sampler_and_loader_alike(process_index: int, process_count: int) -> Any:
    options = shard(process_index, process_count)
    return loader(Source(), index_sampler(Source(), options), options)


def source_only(process_index: int, process_count: int) -> Any:
    source = strided(process_index, process_count)
    return loader(source, index_sampler(source, NONE), NONE)


def sliced_last(process_index: int, process_count: int) -> Any:
    return batches(mapped(Source()).shuffle(seed=3).repeat()[process_index::process_count])


def sliced_first(process_index: int, process_count: int) -> Any:
    return batches(mapped(Source())[process_index::process_count].shuffle(seed=3).repeat())


def elastically(dataset: grain.MapDataset, shards: Shards) -> Any:
    return grain.experimental.ElasticIterator(dataset, BATCH * 4, shards, read_options=IN_MEMORY)


def elastic(process_index: int, process_count: int) -> Any:
    dataset = mapped(Source()).shuffle(seed=3).repeat()
    return elastically(dataset, shard(process_index, process_count))


def source_and_sampler(process_index: int, process_count: int, worker_count: int = 0) -> Any:
    source = strided(process_index, process_count)
    return loader(source, index_sampler(source, shard(process_index, process_count)), None, worker_count)


def block_and_sampler(process_index: int, process_count: int) -> Any:
    source = block(process_index, process_count)
    return loader(source, index_sampler(source, shard(process_index, process_count)), None)


def source_sampler_and_loader(process_index: int, process_count: int) -> Any:
    source, options = strided(process_index, process_count), shard(process_index, process_count)
    return loader(source, index_sampler(source, options), options)


def source_and_load(process_index: int, process_count: int) -> Any:
    return grain.load(
        strided(process_index, process_count),
        shuffle=True,
        seed=3,
        shard_options=shard(process_index, process_count),
        batch_size=BATCH,
        drop_remainder=True,
        read_options=IN_MEMORY,
    )


def source_and_slice(process_index: int, process_count: int) -> Any:
    dataset = mapped(strided(process_index, process_count)).shuffle(seed=3).repeat()
    return batches(dataset[process_index::process_count])


def source_and_slice_first(process_index: int, process_count: int) -> Any:
    return batches(mapped(strided(process_index, process_count))[process_index::process_count].shuffle(seed=3).repeat())


def sliced_twice_at_once(process_index: int, process_count: int) -> Any:
    part = slice(process_index, None, process_count)
    return batches(mapped(Source())[part][part].shuffle(seed=3))  # ends by itself


def source_and_loader(process_index: int, process_count: int) -> Any:
    source = strided(process_index, process_count)
    return loader(source, index_sampler(source, NONE), shard(process_index, process_count))


def source_and_loader_asks_jax(process_index: int, process_count: int) -> Any:
    source = strided(process_index, process_count)
    return loader(source, index_sampler(source, NONE), grain.sharding.ShardByJaxProcess(drop_remainder=True))


def sliced_first_and_last(process_index: int, process_count: int) -> Any:
    part = slice(process_index, None, process_count)
    return batches(mapped(Source())[part].shuffle(seed=3).repeat()[part])


def elastic_of_a_slice(process_index: int, process_count: int) -> Any:
    dataset = mapped(strided(process_index, process_count)).shuffle(seed=3).repeat()
    return elastically(dataset, shard(process_index, process_count))


def elastic_of_a_late_slice(process_index: int, process_count: int) -> Any:
    dataset = mapped(Source()).shuffle(seed=3).repeat()[process_index::process_count]
    return elastically(dataset, shard(process_index, process_count))


def nobody(process_index: int, process_count: int) -> Any:
    return loader(Source(), index_sampler(Source(), NONE), NONE)


def nobody_but_a_seed_each(process_index: int, process_count: int) -> Any:
    return batches(mapped(Source()).shuffle(seed=process_index))  # ends by itself


_ASKED_TOO_EARLY = grain.sharding.ShardByJaxProcess(drop_remainder=True)  # before jax.distributed.initialize


def asked_jax_too_early() -> Any:
    return loader(Source(), index_sampler(Source(), NONE), _ASKED_TOO_EARLY)


def sampler_shards_loader_does_not(process_index: int, process_count: int) -> Any:
    return loader(Source(), index_sampler(Source(), shard(process_index, process_count)), NONE)


def sampler_shards_loader_does_not_once(process_index: int, process_count: int) -> Any:
    sampler = index_sampler(Source(), shard(process_index, process_count), epochs=1)
    return loader(Source(), sampler, NONE)  # ends by itself


def sequential_on_a_slice(process_index: int, process_count: int) -> Any:
    source = strided(process_index, process_count)  # ends by itself
    return loader(source, grain.samplers.SequentialSampler(len(source), shard(process_index, process_count)), None)


def asks_late(process_count: int) -> Any:
    """The host is asked of jax, when the first row is read; the number of hosts is given."""

    class Late:
        def __iter__(self) -> Iterator[np.ndarray]:
            return iter(sliced_last(jax.process_index(), process_count))

    return Late()


# --- workers ---


def threaded(make: Callable[..., Any], drop: bool = True, batch: int = BATCH) -> Callable[..., Any]:
    """Grain's threads take shares as its worker processes do, and start at once."""

    def made(process_index: int, process_count: int, worker_count: int) -> Any:
        dataset = make(process_index, process_count).to_iter_dataset().batch(batch, drop_remainder=drop)
        if worker_count:
            return grain.experimental.multithread_prefetch(dataset, num_threads=worker_count, buffer_size=1)
        return dataset

    return made


# --- the custom sampler of the incident, which shards itself ---


class BlockSampler:
    """Every host walks a block of one permutation; from `start` on, counted within the block; a new one after each."""

    def __init__(self, host: int, hosts: int, start: int) -> None:
        self.host, self.size, self.start = host, ROWS // hosts, start

    def __len__(self) -> int:
        return 2**40

    def __getitem__(self, index: int) -> Any:
        epoch, place = divmod(index + self.start, self.size)
        key = np.random.default_rng(epoch).permutation(ROWS)[self.host * self.size + place]
        return grain.RecordMetadata(index=index, record_key=int(key))


def incident(
    process_index: int,
    process_count: int,
    start_step: int = 0,
    *,
    total: int | None = None,
    shards: bool = True,
    off_by: int = 0,
) -> Any:
    batch = BATCH if total is None else total // process_count
    sampler = BlockSampler(process_index, process_count, max(0, start_step + off_by * bool(start_step)) * batch)
    return loader(Source(), sampler, shard(process_index, process_count) if shards else NONE, batch=batch)


class GlobalSampler(BlockSampler):
    """The mend: positions of all hosts, which DataLoader shares out."""

    def __init__(self, start: int) -> None:
        super().__init__(0, 1, start)


def mended(
    process_index: int, process_count: int, start_step: int = 0, *, total: int = 64, unit: str = "global"
) -> Any:
    batch = total // process_count
    start = start_step * {"global": total, "host": batch, "steps": 1}[unit]
    return loader(Source(), GlobalSampler(start), shard(process_index, process_count), batch=batch)


# --- a set, saved and resumed ---


def by_state(process_index: int, process_count: int, *, total: int | None = 32, first: bool = False) -> Any:
    """A single pass of MapDataset; `total` rows a step over all hosts, or always eight a host."""
    dataset, part = mapped(Source()), slice(process_index, None, process_count)
    dataset = dataset[part].shuffle(seed=3) if first else dataset.shuffle(seed=3)[part]
    return batches(dataset, BATCH if total is None else total // process_count)


def loader_by_state(process_index: int, process_count: int, *, where: str = "loader", worker_count: int = 0) -> Any:
    options = shard(process_index, process_count)
    sampler = index_sampler(Source(), options if where == "sampler" else NONE, epochs=1)
    return loader(Source(), sampler, options, worker_count, batch=32 // process_count)
