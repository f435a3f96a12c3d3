"""Rows of scalars → bodies of `batches` records, column by column."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainer_hooks.values import NotReadyError, UnusableError, as_float, json_column

MAX_VALUES = 20_000  # in one batch: about half a megabyte of JSON, far below the service's 8 MiB
MAX_ROWS = 5_000
MAX_NAME_BYTES = 256
MAX_NAMES = 2_000  # of one process; the service refuses a batch that brings a run above that
TOKENS = "axis/tokens"  # also what a name map calls the tokens a trainer counts itself
AXES = frozenset({"axis/time", TOKENS})  # the service's own series: it refuses a batch with such a metric
PIECE = 256  # values encoded at once, some 0.1 ms of holding the interpreter lock
SLICE_SECONDS = 0.0003
REST_SECONDS = 0.0001

Refuse = Callable[[str, str], None]
Translate = Callable[[dict[str, float], Refuse], dict[str, float]]
_to_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class Pace:
    """Keeps background work in short slices, so that the training loop never waits long for the interpreter lock."""

    def __init__(self) -> None:
        self.hurry = False  # far behind: work through
        self._since = time.perf_counter()

    def rest(self) -> None:
        """To be called at least every tenth of a millisecond of work; sleeps once a slice was used up."""
        if not self.hurry and time.perf_counter() - self._since > SLICE_SECONDS:
            time.sleep(REST_SECONDS)
            self._since = time.perf_counter()


class Names:
    """Which metric names can be stored at all. One bad name must not cost the batch it would travel in."""

    def __init__(self) -> None:
        self._known: dict[Any, bool] = {}
        self._good = 0

    def fault(self, name: Any) -> str:
        """Why `name` cannot be sent; empty if it can."""
        try:
            known = self._known.get(name)
        except TypeError:
            return f"{name!r:.60} is not a metric name"
        if known:
            return ""
        if not isinstance(name, str) or not name:
            return f"{name!r:.60} is not a metric name"
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            return f"metric name {name!r:.60} is not valid Unicode"
        if size > MAX_NAME_BYTES:
            return f"metric name {name[:40]!r}… is longer than {MAX_NAME_BYTES} bytes"
        if "\0" in name or name in AXES:
            return f"metric name {name[:60]!r} holds a NUL" if "\0" in name else f"{name} is the name of an axis"
        if self._good >= MAX_NAMES:
            return f"metric {name[:60]!r} is one more than {MAX_NAMES:,} in one run"
        self._known[name] = True
        self._good += 1
        return ""


def checked_sets(eval_sets: Mapping[Any, Any]) -> dict[str, str]:
    """A copy of {metric: id of the evaluation set}. Raises ValueError for an id that the service would refuse."""
    for metric, name in eval_sets.items():
        if not isinstance(name, str) or not 0 < len(name.encode()) <= MAX_NAME_BYTES or "\0" in name:
            raise ValueError(f"the evaluation set of {metric!r:.80} must have an id of 1 to 256 bytes")
    return dict(eval_sets)


class Row:
    """One `log` call, converted."""

    __slots__ = ("eval_sets", "step", "time", "tokens", "values", "weights_segment")

    def __init__(
        self,
        step: int,
        values: dict[str, float],
        tokens: float | int | None,
        at: float,
        weights_segment: str | None,
        eval_sets: Mapping[str, str] | None = None,
    ) -> None:
        self.step = step
        self.values = values
        self.tokens = tokens
        self.time = at
        self.weights_segment = weights_segment
        self.eval_sets = {} if eval_sets is None else {name: eval_sets[name] for name in values if name in eval_sets}


def convert_values(
    metrics: Mapping[Any, Any],
    names: Names,
    refuse: Refuse,
    pace: Pace,
    last_chance: bool = False,
    translate: Translate | None = None,
) -> tuple[dict[str, float], float | None]:
    """The values that are numbers; None means no value. What is no number is handed to `refuse` and left out.

    `translate` gives them the names and units under which they are sent; if the tokens consumed are among them, they
    come second.

    Raises NotReadyError, before anything was refused, while a device still computes one of them; with `last_chance`
    such values are refused like others.
    """
    numbers: dict[str, float] = {}
    faults: list[tuple[str, str]] = []
    for name, value in metrics.items():
        if value is None:
            continue
        if type(value) is float:
            number = value
        else:
            pace.rest()
            try:
                number = as_float(value)
            except NotReadyError:
                if not last_chance:
                    raise
                faults.append(("not ready", f"{name!r:.80}: the device has not computed the value"))
                continue
            except UnusableError as error:
                faults.append((error.reason, f"{name!r:.80}: {error}"))
                continue
        if translate is None or isinstance(name, str):
            numbers[name] = number
        else:
            faults.append(("refused", f"{name!r:.60} is not a metric name"))
    if translate is not None:
        numbers = translate(numbers, lambda reason, message: faults.append((reason, message)))
    tokens = numbers.pop(TOKENS, None) if translate is not None else None
    values: dict[str, float] = {}
    for name, number in numbers.items():
        fault = names.fault(name)
        if fault:
            faults.append(("refused", fault))
        else:
            values[name] = number
    for reason, message in faults:
        refuse(reason, message)
        pace.rest()
    return values, tokens


class BatchBuilder:
    """Gathers rows into one batch."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._start()

    def _start(self) -> None:
        self._steps: list[int] = []
        self._times: list[float] = []
        self._tokens: list[float | int | None] = []
        self._columns: dict[str, list[float | None]] = {}
        self._values = 0
        self._weights_segment: str | None = None
        self._eval_sets: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def takes(self, row: Row) -> bool:
        """Whether `row` may join; if not, `body` has to be taken first."""
        count = len(self._steps)
        if not count:
            return True
        if any(self._eval_sets.get(name, value) != value for name, value in row.eval_sets.items()):
            return False
        width = len(self._columns) + len(row.values.keys() - self._columns.keys())
        return row.weights_segment == self._weights_segment and count < MAX_ROWS and width * (count + 1) <= MAX_VALUES

    def add(self, row: Row) -> None:
        """Adds one row; rows keep their order, and a step may come again."""
        count = len(self._steps)
        for name, value in row.values.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = []
            if len(column) < count:
                column.extend([None] * (count - len(column)))
            column.append(value)
        self._steps.append(row.step)
        self._times.append(row.time)
        self._tokens.append(row.tokens)
        self._weights_segment = row.weights_segment
        self._eval_sets.update(row.eval_sets)

    def body(self, process: int, seq: int) -> bytes:
        """The batch as JSON; the builder is empty afterwards."""
        try:
            return self._encode(process, seq)
        finally:
            self._start()

    def _encode(self, process: int, seq: int) -> bytes:
        count = len(self._steps)
        pieces = [f'{{"process":{process},"seq":{seq},"steps":{self._column(self._steps)}']
        if any(tokens is not None for tokens in self._tokens):
            pieces.append(f'"tokens":{self._column(self._tokens)}')
        pieces.append(f'"times":{self._column(self._times)}')
        if self._weights_segment is not None:
            pieces.append(f'"weights_segment":{_to_json(self._weights_segment)}')
        if self._eval_sets:
            pieces.append(f'"eval_sets":{_to_json(self._eval_sets)}')
        columns: list[str] = []
        for name, column in self._columns.items():
            if len(column) < count:
                column.extend([None] * (count - len(column)))
            columns.append(f"{_to_json(name)}:{self._column(column)}")
        pieces.append(f'"metrics":{{{",".join(columns)}}}}}')
        return ",".join(pieces).encode()

    def _column(self, column: Sequence[float | None]) -> str:
        pieces: list[str] = []
        for start in range(0, len(column), PIECE):
            piece = column[start : start + PIECE]
            try:
                pieces.append(_to_json(piece)[1:-1])
            except ValueError:  # not all finite
                pieces.append(_to_json(json_column(piece))[1:-1])
            self._pace.rest()
        return f"[{','.join(pieces)}]"
