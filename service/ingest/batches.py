"""From a batch's JSON to arrays, and from a bad one to the name of the field that is wrong."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, cast
from uuid import UUID

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.errors import InvalidError, field_error
from service.ingest.body import decode_json
from service.ingest.requests import Batch
from service.ingest.wire import MAX_STEP, MAX_TOKENS, BatchBody, Number
from service.series.journal import AXES, TIME, TOKENS
from service.settings import Settings

NON_FINITE = ("NaN", "Infinity", "-Infinity")
_decoder = msgspec.json.Decoder(BatchBody)


def decode_batch(body: bytes, settings: Settings, received_at: float) -> tuple[BatchBody, Batch, bytes]:
    """The body, its arrays, and the digest of its content (everything but process, seq and sent_at).

    Raises:
        ProblemError: it is malformed; a 422 names the field, such as `metrics.train/ce_loss[3]`.
    """
    try:
        sent = decode_json(body, _decoder)
    except InvalidError as error:
        raise (_value_error(body) or error) from None
    steps = _steps(sent.steps)
    names = sorted(sent.metrics)
    for name in names:
        _check_name(name, settings.max_metric_name_bytes)
        _check_length(f"metrics.{name}", sent.metrics[name], steps)
    _check_length("times", sent.times, steps)
    axes, columns = [TIME], [cast(list[Number], sent.times)]
    if sent.tokens is not None:
        _check_length("tokens", sent.tokens, steps)
        _check_tokens(sent.tokens)
        axes.append(TOKENS)
        columns.append(sent.tokens)
    try:
        kept, missing, present = names, 0, None
        columns += [sent.metrics[name] for name in names]
        values = struct.pack(f"{len(columns) * len(steps)}d", *chain.from_iterable(columns))
    except struct.error:  # a null, or a number that is not finite
        kept = [name for name in names if any(value is not None for value in sent.metrics[name])]
        columns = columns[: len(axes)] + [sent.metrics[name] for name in kept]
        values, here = _matrix(columns, len(steps))
        missing = int(np.count_nonzero(~here[len(axes) :]))
        present = None if here.all() else np.packbits(here).tobytes()
    eval_sets = sent.eval_sets or {}
    for name in eval_sets:
        if name not in sent.metrics:
            raise field_error(f"eval_sets.{name}", "there is no such metric in this batch")
    weights = None if sent.weights_segment is None else parse_uuid("weights_segment", sent.weights_segment)
    digest = blake2b(msgspec.json.encode((kept, axes, sorted(eval_sets.items()), weights)), digest_size=8)
    for part in (steps.data, values, present or b""):
        digest.update(part)
    batch = Batch(
        tuple(kept),
        tuple(axes),
        steps,
        values,
        present,
        len(kept) * len(steps) - missing,
        eval_sets,
        weights,
        settings.max_metrics_per_run,
        received_at - sent.sent_at,
    )
    return sent, batch, digest.digest()


def parse_uuid(field: str, text: str) -> UUID:
    """An id.

    Raises:
        InvalidError: it is none.
    """
    try:
        return UUID(text)
    except ValueError as error:
        raise field_error(field, f"{text[:64]!r} is no UUID") from error


def _steps(steps: list[int]) -> NDArray[np.int64]:
    if steps and (min(steps) < 0 or max(steps) > MAX_STEP):
        index = next(i for i, step in enumerate(steps) if not 0 <= step <= MAX_STEP)
        raise field_error(f"steps[{index}]", f"{_short(steps[index])} is no step: expected 0 to 2^53 - 1")
    return np.array(steps, np.int64)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _check_name(name: str, most_bytes: int) -> None:
    if not name or len(name.encode()) > most_bytes or "\0" in name:
        raise field_error(
            f"metrics.{name[:64]}", f"is no metric name: expected 1 to {most_bytes} bytes of UTF-8 without NUL"
        )
    if name in AXES:
        raise field_error(f"metrics.{name}", "is the name of an axis: send `times` and `tokens`")


def _check_length(field: str, column: Sequence[object], steps: NDArray[np.int64]) -> None:
    if len(column) != len(steps):
        raise field_error(field, f"has {len(column)} values for {len(steps)} steps")


def _check_tokens(tokens: list[Number]) -> None:
    for index, value in enumerate(tokens):
        if value is not None and (isinstance(value, str) or not 0 <= value <= MAX_TOKENS):
            raise field_error(f"tokens[{index}]", f"{_short(value)} is no number of tokens: expected 0 to 10^18")


def _matrix(columns: list[list[Number]], n: int) -> tuple[bytes, NDArray[np.bool_]]:
    """Values as float64 bytes, and which of them are there; both (columns, n)."""
    values = np.empty((len(columns), n))
    present = np.ones((len(columns), n), np.bool_)
    for row, column in enumerate(columns):
        values[row] = np.array(column, np.float64)  # reads None as NaN and the names of non-finite numbers
        if None in column:
            present[row] = [value is not None for value in column]
            values[row, ~present[row]] = 0.0
    return values.tobytes(), present


def _value_error(body: bytes) -> InvalidError | None:
    """The first value that is no number, by its name; the decoder's own message names no key of an object."""
    try:
        sent: Any = json.loads(body, parse_int=float)  # int has a limit of digits
    except (ValueError, RecursionError):
        return None
    metrics = cast(dict[str, Any], sent).get("metrics") if isinstance(sent, dict) else None
    if not isinstance(metrics, dict):
        return None
    for name, column in cast(dict[str, Any], metrics).items():
        if not isinstance(column, list):
            return field_error(f"metrics.{name}", "expected a list of numbers")
        for index, value in enumerate(cast(list[Any], column)):
            number = isinstance(value, float)
            if (number and math.isfinite(value)) or value is None or value in NON_FINITE:
                continue
            if number:  # json reads what is too large as infinity
                wrong = 'the number is larger than a 64-bit float holds; an infinite value is the string "Infinity"'
            else:
                shown = msgspec.json.encode(value).decode()[:64]
                wrong = f'{shown} is not a number: expected a number, null, "NaN", "Infinity" or "-Infinity"'
            return field_error(f"metrics.{name}[{index}]", wrong)
    return None
