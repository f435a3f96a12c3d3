"""Makes the rows that a stage should be read with, without training: by a loader, or by an order and token files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.detect.inputs import Ints, RowReadings
from service.importers.rows import LogError
from service.references.data_order import DataOrder, ExpectedRows, Hashes, expected_rows
from trainer_hooks.fingerprints import sampled_rows, snapshot
from trainer_hooks.loader_audit.hosts import Factory, Host, simulated_hosts
from trainer_hooks.wrapping import wrap

NPY = b"\x93NUMPY"
Progress = Callable[[str, int], None]  # who is read, and the step


class _Recorder:
    """Stands for a run: keeps the sampled rows of what one host hands out."""

    def __init__(self, sample: int) -> None:
        self._sample = sample
        self.steps: list[int] = []
        self.hashes: list[int] = []
        self.seen: dict[int, int] = {}

    def log_rows(self, step: Any, rows: Any, host: int | None = None) -> None:
        """Takes the rows of a step, whole or a piece of it."""
        array = snapshot(rows)
        found = sampled_rows(array, self._sample)
        self.steps += [step] * len(found)
        self.hashes += found
        self.seen[step] = self.seen.get(step, 0) + len(array)

    def refuse(self, call: str, error: Exception) -> None:
        """A batch without rows."""
        raise LogError(f"step {max(self.seen, default=0) + 1:,}: {error}") from error


def by_loader(
    make_loader: Callable[..., Any], stage: str, steps: int, *, hosts: int = 1, workers: int = 0, rows: str = "inputs",
    batches_per_step: int = 1, sample: int = 1024, progress: Progress | None = None,
) -> ExpectedRows:  # fmt: skip
    """What a loader hands out in its first `steps` steps, read as `hosts` hosts one after another.

    `make_loader` is given process_index, process_count, worker_count and start_step by name, where it takes them.

    Raises:
        LogError: the loader or a batch fails, or ends before the first step.
        TypeError: the factory needs other arguments.
    """
    factory, recorders = Factory(make_loader), [_Recorder(sample) for _ in range(hosts)]
    with simulated_hosts() as simulation:
        for index, recorder in enumerate(recorders):
            host = Host(index, hosts, workers)
            with simulation.playing(host):
                try:
                    loader = wrap(recorder, iter(factory.make(host)), rows, None, 1, batches_per_step, 0)
                    for count, _ in enumerate(itertools.islice(loader, steps * batches_per_step)):
                        if progress is not None:
                            progress(str(host), count // batches_per_step + 1)
                except LogError as error:
                    raise LogError(f"{host}: {error}") from error
                except Exception as error:
                    raise LogError(f"{host}: {type(error).__name__}: {error}") from error
    last = min(max(recorder.seen, default=0) for recorder in recorders)
    if last == 0:
        raise LogError("the loader ended before its first step")
    return _together(stage, sample, recorders, last)


def by_order(
    order: DataOrder, files: Sequence[Path], stage: str, steps: int | None = None, *, sample: int = 1024,
    progress: Progress | None = None,
) -> ExpectedRows:  # fmt: skip
    """What a computed order reads from token files, laid one after another in the order given.

    A file is a NumPy array (rows, length) or (tokens,), or raw little-endian uint32 without a header. Tokens are cut
    into rows of `order.row_length`, file by file, and the remainder of each file is dropped.

    Raises:
        LogError: a file cannot be read, or they do not hold `order.rows` rows.
        ValueError: this order cannot be computed.
    """
    parts = [_rows_of_file(path, order.row_length) for path in files]
    ends = np.cumsum([len(part) for part in parts])
    total = int(ends[-1]) if len(ends) else 0
    if total != order.rows:
        raise LogError(f"the files hold {total:,} rows, the order is of {order.rows:,}")
    recorder = _Recorder(sample)
    for step, numbers in enumerate(itertools.islice(order.batches(), steps), 1):
        for piece in _pieces(parts, ends, numbers.astype(np.int64)):
            recorder.log_rows(step, piece)
        if progress is not None:
            progress("the order", step)
    return _together(stage, sample, [recorder], max(recorder.seen, default=0))


def _pieces(parts: Sequence[NDArray[Any]], ends: Ints, numbers: Ints) -> Iterator[NDArray[Any]]:
    """The rows of these numbers, those of one file together."""
    place = np.searchsorted(ends, numbers, side="right")
    for file in np.unique(place).tolist():
        mine = numbers[place == file]
        yield parts[file][mine - (int(ends[file - 1]) if file else 0)]


def _rows_of_file(path: Path, length: int | None) -> NDArray[Any]:
    try:
        with path.open("rb") as file:
            named = file.read(len(NPY)) == NPY
        array: NDArray[Any] = np.load(path, mmap_mode="r") if named else np.memmap(path, "<u4", "r")
    except (OSError, ValueError) as error:
        raise LogError(f"{path}: cannot be read ({error})") from error
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2):
        raise LogError(f"{path}: must hold integers (rows, length) or (tokens,), not {array.dtype} {array.shape}")
    if array.ndim == 2 and length in (None, array.shape[1]):
        return array
    if length is None:
        raise LogError(f"{path}: holds tokens one after another; order.json must say row_length")
    if array.ndim == 2:
        raise LogError(f"{path}: its rows have {array.shape[1]:,} tokens, those of the order {length:,}")
    count = len(array) // length
    return array[: count * length].reshape(count, length)


def _together(stage: str, sample: int, recorders: Sequence[_Recorder], last: int) -> ExpectedRows:
    """What several hosts have read up to and with step `last`."""
    steps: Ints = np.array([step for one in recorders for step in one.steps], np.int64)
    hashes: Hashes = np.array([value for one in recorders for value in one.hashes], np.uint64)
    at: Ints = np.unique(np.array([step for one in recorders for step in one.seen], np.int64))
    at = at[at <= last]
    rows: Ints = np.array([sum(one.seen.get(step, 0) for one in recorders) for step in at.tolist()], np.int64)
    keep = steps <= last
    hosts = np.zeros(int(np.count_nonzero(keep)), np.int64)
    return expected_rows(stage, RowReadings(steps[keep], hosts, hashes[keep], sample, at, rows))
