"""Turns columns of a table, as pyarrow reads them, into blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.importers.blocks import Block, Column, Floats, Ints
from service.importers.layout import Layout, Metric
from service.importers.rows import EARLIEST, NO_NUMBER, NO_STEP, Account, number, unix_seconds

pa: Any = import_module("pyarrow")  # have no types
pc: Any = import_module("pyarrow.compute")

Bools = NDArray[np.bool_]
HIGHEST = 2.0**62


class Tables:
    """Reads the batches of one table in turn. `decimal_comma` is how its numbers are written."""

    def __init__(self, layout: Layout, account: Account, *, decimal_comma: bool = False) -> None:
        self._layout = layout
        self._account = account
        self._decimal_comma = decimal_comma
        self._row = 0
        self._numbers: Counter[str] = Counter()
        self._texts: Counter[str] = Counter()
        self._last: tuple[float, float, float] | None = None  # step and epoch of the row before, and what is added
        if layout.ranges:
            account.note(f"the ranges beside the curves ({layout.ranges} columns __MIN, __MAX) are left out")

    def blocks(self, arrays: Sequence[Any]) -> Iterator[Block]:
        """Blocks of one batch: `arrays` stand in the order of the layout's names."""
        layout, count = self._layout, len(arrays[0])
        if not count:
            return
        steps, good = self._steps(arrays)
        times = None if layout.time is None else times_of(arrays[layout.time])
        metrics = layout.metrics
        if layout.time is not None and times is None:  # a duration, such as the time a step took
            metrics = [*metrics, Metric(layout.time, "", layout.names[layout.time])]
        if layout.long is not None:
            yield from self._long(arrays, layout.long, steps, good, times)
        else:
            columns = {metric: self._values(metric.name, arrays[metric.at]) for metric in metrics}
            owners = _labels(arrays[layout.run]) if layout.run is not None else [("", None)]
            starts = _labels(arrays[layout.launch]) if layout.launch is not None else [("", None)]
            for owner, of_owner in owners:
                for start, of_start in starts:
                    chosen = _both(_both(good, of_owner), of_start)
                    yield from _wide(columns, steps, chosen, times, owner, start)
            self._refuse_rows(columns, good)
        self._row += count

    def finish(self) -> None:
        """Count what cells held text between numbers; columns of nothing but text are no metrics."""
        words = [name for name in self._texts if not self._numbers[name]]
        for name, count in self._texts.items():
            if self._numbers[name]:
                self._account.refuse(NO_NUMBER, f"column {name!r}", count)
        if words:
            shown = ", ".join(words[:8]) + (f" and {len(words) - 8} more" if len(words) > 8 else "")
            self._account.note(f"columns of text are no metrics: {shown}")

    def _steps(self, arrays: Sequence[Any]) -> tuple[Ints, Bools]:
        values, there = self._numeric(arrays[self._layout.step])[:2]
        with np.errstate(invalid="ignore"):
            good = there & np.isfinite(values) & (values >= 0) & (values <= HIGHEST) & (np.floor(values) == values)
        steps = np.where(good, values, 0.0)
        if self._layout.epoch is not None and good.all():
            steps = self._unrolled(steps, self._numeric(arrays[self._layout.epoch])[0])
        return steps.astype(np.int64), good

    def _unrolled(self, steps: Floats, epochs: Floats) -> Floats:
        """Steps that begin anew in every epoch, put one after another."""
        before = (steps[0], epochs[0], 0.0) if self._last is None else self._last
        earlier, epoch_before = np.concatenate([[before[0]], steps[:-1]]), np.concatenate([[before[1]], epochs[:-1]])
        again = (steps < earlier) & (steps <= 1) & (epochs == epoch_before + 1)
        added = before[2] + np.cumsum(np.where(again, earlier + 1 - steps, 0.0))
        self._last = (float(steps[-1]), float(epochs[-1]), float(added[-1]))
        if again.any():
            self._account.note("steps begin anew in every epoch: the epochs are put one after another")
        return steps + added

    def _values(self, name: str, array: Any) -> tuple[Floats, Bools]:
        values, there, texts = self._numeric(array)
        self._numbers[name] += int(there.sum())
        if texts:
            self._texts[name] += texts
        return values, there

    def _numeric(self, array: Any) -> tuple[Floats, Bools, int]:
        """Values, which of them are there, and how many cells hold something else."""
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            return _parsed(array, self._decimal_comma)
        if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or pa.types.is_decimal(array.type)):
            return np.zeros(len(array)), np.zeros(len(array), np.bool_), len(array) - array.null_count
        floats = pc.cast(array, pa.float64(), safe=False)
        return *_split(floats), 0

    def _long(
        self, arrays: Sequence[Any], at: tuple[int, int], steps: Ints, good: Bools, times: Floats | None
    ) -> Iterator[Block]:
        layout = self._layout
        values, there, _ = self._numeric(arrays[at[1]])
        metrics = _labels(arrays[at[0]])
        named = np.ones(len(values), np.bool_)
        for name, of_metric in metrics:
            if not name:
                named &= False if of_metric is None else ~of_metric
        if not (there & named & good).all():
            bad = {NO_NUMBER: int((~(there & named)).sum()), NO_STEP: int((there & named & ~good).sum())}
            for reason, count in bad.items():
                if count:
                    self._account.refuse(reason, f"rows from {self._row + 1} on", count)
        chosen = there & named & good
        owners = _labels(arrays[layout.run]) if layout.run is not None else [("", None)]
        starts = _labels(arrays[layout.launch]) if layout.launch is not None else [("", None)]
        for owner, of_owner in owners:
            for start, of_start in starts:
                rows = np.flatnonzero(_both(_both(chosen, of_owner), of_start))
                columns: dict[str, Column] = {}
                for name, of_metric in metrics if len(rows) else ():
                    mine = np.arange(len(rows)) if of_metric is None else np.flatnonzero(of_metric[rows])
                    if len(mine):
                        columns[name] = Column(values[rows[mine]], mine)
                if columns:
                    kept = None if times is None else times[rows]
                    yield Block(steps[rows], columns, kept, owner, start, in_time_order=False)

    def _refuse_rows(self, columns: dict[Metric, tuple[Floats, Bools]], good: Bools) -> None:
        if good.all():
            return
        count = sum(int((there & ~good).sum()) for _, there in columns.values())
        if count:
            self._account.refuse(NO_STEP, f"row {self._row + int(np.argmin(good)) + 1}", count)


def _wide(
    columns: dict[Metric, tuple[Floats, Bools]],
    steps: Ints,
    chosen: Bools,
    times: Floats | None,
    owner: str,
    start: str,
) -> Iterator[Block]:
    everything = bool(chosen.all())
    for run in dict.fromkeys(metric.run for metric in columns):
        made: dict[str, Column] = {}
        for metric, (values, there) in columns.items():
            if metric.run != run:
                continue
            if not everything:
                values, there = values[chosen], there[chosen]
            if there.all():
                made[metric.name] = Column(values)
            elif there.any():
                rows = np.flatnonzero(there)
                made[metric.name] = Column(values[rows], rows)
        if made and (everything or chosen.any()):
            kept = steps if everything else steps[chosen]
            stamped = None if times is None else times if everything else times[chosen]
            yield Block(kept, made, stamped, run or owner, start)


def _both(mask: Bools, other: Bools | None) -> Bools:
    return mask if other is None else mask & other


def _split(floats: Any) -> tuple[Floats, Bools]:
    if not len(floats):
        return np.empty(0), np.empty(0, np.bool_)
    values = _buffer(floats, np.float64)
    if floats.null_count == 0:
        return values, np.ones(len(floats), np.bool_)
    there = _buffer(pc.cast(floats.is_valid(), pa.uint8()), np.bool_)
    return np.where(there, values, 0.0), there


def _buffer(array: Any, dtype: Any) -> NDArray[Any]:
    """The values of an array of numbers; pyarrow's own way into numpy imports pandas, for nothing."""
    width = np.dtype(dtype).itemsize
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * width)


def _coded(texts: Any) -> tuple[list[str], NDArray[np.int32]]:
    """The distinct texts of a column in order of first appearance, and which of them stands in each row; null is ""."""
    encoded = texts.dictionary_encode()
    names: list[str] = encoded.dictionary.to_pylist()
    if not len(encoded):
        return names, np.empty(0, np.int32)
    at = _buffer(encoded.indices, np.int32)
    if encoded.null_count:
        there = _buffer(pc.cast(encoded.is_valid(), pa.uint8()), np.bool_)
        if "" not in names:
            names = [*names, ""]
        at = np.where(there, at, np.int32(names.index("")))
    return names, at


def _parsed(array: Any, decimal_comma: bool) -> tuple[Floats, Bools, int]:
    if array.null_count == len(array):
        return np.zeros(len(array)), np.zeros(len(array), np.bool_), 0
    if decimal_comma:
        array = pc.replace_substring(array, ",", ".")
    try:
        return *_split(pc.cast(array, pa.float64())), 0
    except pa.ArrowInvalid:
        pass
    texts, at = _coded(array)  # the same text is read once
    words = [word.strip() for word in texts]
    found = [number(word) for word in words]
    values = np.array([0.0 if value is None else value for value in found], np.float64)
    known = np.array([value is not None for value in found], np.bool_)
    blank = np.array([not word for word in words], np.bool_)
    return values[at], known[at], int((~known[at] & ~blank[at]).sum())


def _text(array: Any) -> Any:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return pc.utf8_trim_whitespace(pc.cast(array, pa.string()))


def _labels(array: Any) -> list[tuple[str, Bools | None]]:
    """The distinct texts of a column, in order of first appearance, with the rows they stand in (None: all)."""
    names, at = _coded(_text(array))
    if len(names) == 1:
        return [(names[0], None)]
    return [(name, at == place) for place, name in enumerate(names)]


def times_of(array: Any) -> Floats | None:
    """Unix seconds, None where the column holds no times."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_timestamp(array.type):
        return _stamped(array)
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        values, there = _split(pc.cast(array, pa.float64(), safe=False))
        values = np.where(values > 1e11, values / 1000.0, values)
        times = np.where(there & (values > EARLIEST), values, np.nan)
    elif (stamps := _iso(array)) is not None:
        times = stamps
    else:
        found = [unix_seconds(text) for text in array.to_pylist()]
        times = np.array([np.nan if time is None else time for time in found], np.float64)
    return None if np.isnan(times).all() else times


def _stamped(stamps: Any) -> Floats:
    whole = pc.cast(pc.cast(stamps, pa.timestamp("us", stamps.type.tz), safe=False), pa.int64())
    values, there = _split(pc.cast(whole, pa.float64(), safe=False))
    return np.where(there, values / 1e6, np.nan)


def _iso(texts: Any) -> Floats | None:
    """Unix seconds of a column in which every text is a time in ISO 8601, without or with a zone; None for others."""
    if not pa.types.is_string(texts.type) or texts.null_count == len(texts):
        return None
    for zone in (None, "UTC"):
        try:
            return _stamped(pc.cast(texts, pa.timestamp("us", zone)))
        except pa.ArrowInvalid:
            continue
    return None
