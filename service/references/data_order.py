"""What a bundle says of the order in which the published run read its data: `order.json` and `rows.bin`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from service.detect.inputs import Ints, RowReadings
from service.references.series_file import BundleError

FORMAT = "pacenote-rows-1"
MOST_HEAD = 1 << 20  # bytes of the first line
Hashes = NDArray[np.uint64]
Runs = list[tuple[int, int, int]]


class DataOrder(BaseModel):
    """How one stage's order is computed: an entry of `order.json`.

    `pcg64-shuffle`, OLMo-core's: the numbers 0 … `rows` - 1 as uint32, shuffled once by NumPy's
    `Generator(PCG64(seed + pass))`, passes counted from 1; each pass is cut to whole batches of `rows_per_step`.
    `loader`: by a program that `text` names; only rows.bin says then which rows come.
    """

    model_config = ConfigDict(extra="forbid")

    method: Literal["pcg64-shuffle", "loader"]
    rows: Annotated[int, Field(gt=0)]
    rows_per_step: Annotated[int, Field(gt=0)]
    row_length: Annotated[int, Field(gt=0)] | None = None
    epochs: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    seed: Annotated[int, Field(ge=0)] | None = None
    text: Annotated[str, Field(max_length=4096)] = ""

    @model_validator(mode="after")
    def _consistent(self) -> DataOrder:
        if self.method == "pcg64-shuffle" and self.seed is None:
            raise ValueError("pcg64-shuffle needs a seed")
        if self.method == "pcg64-shuffle" and self.rows >= 2**32:
            raise ValueError("pcg64-shuffle numbers rows by uint32: fewer than 4,294,967,296")
        if self.method == "loader" and not self.text:
            raise ValueError("loader needs a text that says which program makes the order")
        if self.rows_per_step > self.rows:
            raise ValueError("rows_per_step is more than rows")
        return self

    def batches(self) -> Iterator[NDArray[np.uint32]]:
        """The numbers of the rows of each step, uint32 (rows_per_step,), pass after pass up to `epochs`.

        Raises:
            ValueError: `loader` orders cannot be computed.
        """
        if self.seed is None or self.method != "pcg64-shuffle":
            raise ValueError(f"the order is made by a loader and cannot be computed ({self.text})")
        each = self.rows // self.rows_per_step
        left = int(each * self.epochs)
        for epoch in range(1, -(-left // each) + 1):
            order = np.arange(self.rows, dtype=np.uint32)
            np.random.Generator(np.random.PCG64(self.seed + epoch)).shuffle(order)
            for at in range(min(left - (epoch - 1) * each, each)):
                yield order[at * self.rows_per_step : (at + 1) * self.rows_per_step]


class _Head(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: str
    stage: Annotated[str, Field(min_length=1, max_length=256)]
    sample: Annotated[int, Field(gt=0, lt=2**64)]
    count: Annotated[int, Field(ge=0)]
    seen: Annotated[list[tuple[int, int, int]], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """Sampled row hashes that a stage should be read with: a `rows.bin`.

    `steps` int64 (n,) and `hashes` uint64 (n,), all 0 modulo `sample`, are parallel and sorted by step, then hash.
    `seen`: inclusive runs of steps that are covered, ascending and apart, and the rows of each step.
    """

    stage: str
    sample: int
    steps: Ints
    hashes: Hashes
    seen: Runs

    def to_bytes(self) -> bytes:
        """One line of JSON, then the steps as little-endian int64, then the hashes as little-endian uint64."""
        head = {
            "format": FORMAT, "stage": self.stage, "sample": self.sample, "count": len(self.steps), "seen": self.seen
        }  # fmt: skip
        line = json.dumps(head, separators=(",", ":")).encode() + b"\n"
        return line + self.steps.astype("<i8").tobytes() + self.hashes.astype("<u8").tobytes()


def expected_rows(stage: str, readings: RowReadings) -> ExpectedRows:
    """What a run has read, as what others are expected to read; hosts are left out."""
    order = np.lexsort((readings.hashes, readings.steps))
    steps, rows = readings.seen_steps, readings.seen_rows
    cut = np.flatnonzero((np.diff(steps) != 1) | (np.diff(rows) != 0)) + 1
    begins, ends = np.concatenate(([0], cut)), np.append(cut, len(steps)) - 1
    seen = (
        [(int(steps[b]), int(steps[e]), int(rows[b])) for b, e in zip(begins, ends, strict=True)] if len(steps) else []
    )
    return ExpectedRows(stage, readings.sample, readings.steps[order], readings.hashes[order], seen)


def read_expected(name: str, content: bytes) -> ExpectedRows:
    """A `rows.bin`.

    Raises:
        BundleError: one line that says what is wrong with it.
    """
    end = content.find(b"\n", 0, MOST_HEAD)
    try:
        if end < 0:
            raise ValueError("the first line, which says what follows, does not end")
        head = _Head.model_validate_json(content[:end])
    except ValidationError as error:
        first = error.errors()[0]
        raise BundleError(f"{name}: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from error
    except ValueError as error:
        raise BundleError(f"{name}: {error}") from error
    if head.format != FORMAT:
        raise BundleError(f"{name}: format is {head.format!r}; this version reads {FORMAT}")
    body = content[end + 1 :]
    if len(body) != 16 * head.count:
        raise BundleError(
            f"{name}: {len(body):,} bytes follow the first line; {head.count:,} rows take {16 * head.count:,}"
        )
    steps: Ints = np.frombuffer(body, "<i8", head.count).astype(np.int64)
    hashes: Hashes = np.frombuffer(body, "<u8", head.count, 8 * head.count).astype(np.uint64)
    last = -1
    for first, to, rows in head.seen:
        if not last < first <= to < 2**53 or not 0 < rows < 2**31:
            raise BundleError(f"{name}: seen: [{first}, {to}, {rows}] is no run of steps behind step {last}")
        last = to
    if bool((hashes % np.uint64(head.sample) != 0).any()):
        raise BundleError(f"{name}: holds a hash that is no multiple of sample {head.sample}")
    if bool((np.diff(steps) < 0).any()) or bool(((np.diff(steps) == 0) & (hashes[1:] < hashes[:-1])).any()):
        raise BundleError(f"{name}: rows must be sorted by step, then by hash")
    starts, ends = (np.array([run[at] for run in head.seen], np.int64) for at in (0, 1))
    place = np.searchsorted(starts, steps, side="right") - 1
    if bool((place < 0).any()) or bool((steps > ends[np.maximum(place, 0)]).any()):
        raise BundleError(f"{name}: holds a row of a step that is not in seen")
    return ExpectedRows(head.stage, head.sample, steps, hashes, _joined(head.seen))


def _joined(runs: Runs) -> Runs:
    """Runs that go on where the one before ends become one: the same coverage is always said alike."""
    made: Runs = []
    for first, to, rows in runs:
        if made and made[-1][1] == first - 1 and made[-1][2] == rows:
            made[-1] = (made[-1][0], to, rows)
        else:
            made.append((first, to, rows))
    return made


def read_orders(name: str, content: bytes) -> Mapping[str, Any]:
    """The entries of an `order.json` by stage, not checked yet.

    Raises:
        BundleError: it is no JSON object.
    """
    try:
        found: Any = json.loads(content.decode())
    except ValueError as error:
        raise BundleError(f"{name}: is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise BundleError(f'{name}: must be an object of stages, such as {{"stage1": {{"method": …}}}}')
    return found  # pyright: ignore[reportUnknownVariableType]
