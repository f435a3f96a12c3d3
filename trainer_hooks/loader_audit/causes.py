"""What a whole pass over the data gives away of why rows repeat or are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trainer_hooks.loader_audit.counting import BLOCKS, OWN_SHUFFLE, Expected, Tally, whole_batches
from trainer_hooks.loader_audit.reading import Stream
from trainer_hooks.loader_audit.report import Cause

SHARDED_TWICE = Cause(
    "sharded in source and loader",
    "",
    "Let one place shard: give the loader NoSharding() (or no slice), or the source and sampler all rows.",
)
NOT_SHARDED = Cause(
    "nobody shards",
    "",
    "Shard by process_index and process_count, asked after jax.distributed.initialize.",
)
DISAGREE = Cause(
    "sampler and loader disagree on shards",
    "",
    "Give DataLoader the sampler's shard_options, or none: IndexSampler divides positions by its own shard_count.",
)
DROPPED_PER_WORKER = Cause(
    "last batch dropped per worker",
    "",
    "Batch after the workers, keep the remainder, or make each worker's share a multiple of the batch.",
)
NO_BATCH = Cause("too few rows for a batch on every host", "", "Audit more rows, or smaller batches.")
OTHER_ROWS = Cause(
    "rows differ from those of one host",
    "",
    "Rows are packed or changed after they are shared out; name them by key= (an id that comes from the source).",
)
BETWEEN = Cause(
    "slice between shuffle and repeat",
    "",
    "Slice first and shuffle then, or slice without shuffling; an epoch after the first reads rows outside the slice.",
)
SLICE_FIRST = Cause(
    "slice before shuffle",
    "",
    "Shuffle all rows, repeat, then slice by host: the order and a resume then do not depend on the number of hosts.",
    note=True,
)
BY_BLOCKS = Cause(
    "a block of rows per host",
    "",
    "Give host h of H every H-th row from h on: the order and a resume then do not depend on the number of hosts.",
    note=True,
)
UNKNOWN = Cause("unknown", "")


def because(cause: Cause, text: str) -> Cause:
    """`cause`, told by `text`."""
    return replace(cause, because=text)


def why(
    expected: Expected,
    streams: Sequence[Stream],
    found: Tally,
    workers: int,
    without_workers: int | None,
    order: str,
) -> list[Cause]:
    """The causes of a whole pass, and notes of its order. `without_workers`: reads of the same hosts with none."""
    made = _fault(expected, streams, found, workers, without_workers)
    if made is not None:
        return [made]
    if len(streams) > 1 and order == OWN_SHUFFLE and not workers:
        return [because(SLICE_FIRST, "Each host shuffles a part of its own; with other hosts the order is another.")]
    if len(streams) > 1 and order == BLOCKS and not workers:
        return [because(BY_BLOCKS, "Each host reads a block of the single host's order.")]
    return []


def legally_dropped(expected: Expected, streams: Sequence[Stream], found: Tally) -> int:
    """How many of the rows that were never read are a remainder of the split or of last batches; 0 if any is not."""
    hosts = len(streams)
    enough = all(len(stream.keys) >= whole_batches(expected.rows, hosts, stream.batch) > 0 for stream in streams)
    return found.never if enough and not found.twice else 0


def _fault(
    expected: Expected, streams: Sequence[Stream], found: Tally, workers: int, without_workers: int | None
) -> Cause | None:
    hosts = len(streams)
    if found.unknown > expected.loose and not expected.partial:
        return because(OTHER_ROWS, f"{found.unknown:,} rows of {hosts} hosts are none that a single host reads.")
    if found.twice:
        return _repeats(expected, streams, found)
    if expected.partial or found.never <= legally_dropped(expected, streams, found):
        return None
    if without_workers is not None and workers and found.read < without_workers:
        return because(
            DROPPED_PER_WORKER,
            f"{without_workers - found.read:,} rows fewer than without workers: each of {workers} workers a host "
            "drops the rows that do not fill its own last batch.",
        )
    if hosts > 1 and _about(found.distinct, expected.rows / hosts):
        return because(
            SHARDED_TWICE,
            f"{hosts} hosts end after {found.distinct:,} of {expected.rows:,} rows, one in {hosts}: each host "
            "reads only a part of its part.",
        )
    batches = [stream.batch for stream in streams]
    if min(len(stream.keys) for stream in streams) == 0:
        size = max(batches)
        text = f"{expected.rows // hosts:,} rows a host do not fill a batch" + (f" of {size:,}." if size else ".")
        return because(NO_BATCH, text)
    return because(UNKNOWN, f"{found.never:,} rows were never read, more than whole batches leave over.")


def _repeats(expected: Expected, streams: Sequence[Stream], found: Tally) -> Cause:
    hosts = len(streams)
    if hosts == 1:
        return because(UNKNOWN, f"One host reads {found.twice:,} rows again within one pass.")
    if _same(streams):
        return because(NOT_SHARDED, f"All {hosts} hosts read the same rows in the same order.")
    in_a_row = sum(int((np.diff(stream.keys) == 0).sum()) for stream in streams)
    if in_a_row and in_a_row >= 0.9 * found.within:
        return because(
            DISAGREE, f"On each host a row comes {round(found.read / max(found.read - in_a_row, 1))} times in a row."
        )
    if not found.within:
        return because(
            NOT_SHARDED, f"Hosts share {found.across:,} rows, and none reads a row twice itself: each reads all rows."
        )
    if not found.across:
        share = found.distinct / expected.rows
        text = f"Hosts share no row, yet each reads its own again: {share:.1%} of the rows stand for all"
        return because(SHARDED_TWICE, f"{text} (1 in {hosts} is {1 / hosts:.1%}).")
    return because(
        SHARDED_TWICE,
        f"Within one pass hosts read {found.within:,} rows of their own again and share {found.across:,}: each skips "
        f"{hosts} times too far ahead, into later epochs.",
    )


def _same(streams: Sequence[Stream]) -> bool:
    shortest = min(len(stream.keys) for stream in streams)
    first = streams[0].keys[:shortest]
    return shortest > 0 and all((stream.keys[:shortest] == first).all() for stream in streams[1:])


def _about(value: float, target: float) -> bool:
    """Within a fifth, which lets remainders pass but no other share of whole hosts than the one meant."""
    return 0.8 * target <= value <= 1.2 * target
