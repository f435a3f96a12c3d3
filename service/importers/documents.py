"""JSON files that are one document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from service.importers.formats import Head, Source
from service.importers.rows import LogError
from service.importers.text import DAMAGE, damaged, encoding_of, open_bytes

LARGEST = 256 * 1024 * 1024


def begins_document(head: Head) -> bool:
    """Whether a file begins as a JSON object."""
    first = next((line.strip() for line in head.lines if line.strip()), "")
    return first.startswith("{")


def load(source: Source) -> dict[str, Any]:
    """The object a file holds.

    Raises:
        LogError: it is too large, or no JSON object.
    """
    try:
        with open_bytes(source.path, source.progress) as data:
            encoding = encoding_of(source.path, data)
            content = data.read(LARGEST + 1)
    except DAMAGE as error:
        raise damaged(source.path, error) from error
    if len(content) > LARGEST:
        raise LogError(f"{source.path}: one JSON document of more than 256 MiB; write it as JSON lines or Parquet")
    return _decode(source.path, content.decode(encoding, errors="replace"))


def _decode(path: Path, text: str) -> dict[str, Any]:
    found: Any
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        try:
            found = json.loads(text)  # takes NaN and Infinity
        except RecursionError:
            raise LogError(f"{path}: the JSON is nested too deeply") from None
        except ValueError as error:
            raise LogError(f"{path}: the JSON is damaged or cut off ({error})") from error
    if not isinstance(found, dict):
        raise LogError(f"{path}: a JSON object is expected")
    return cast("dict[str, Any]", found)


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """The objects of a list."""
    if isinstance(value, list):
        for entry in cast("list[Any]", value):
            if isinstance(entry, dict):
                yield cast("dict[str, Any]", entry)


def mapping(value: Any) -> dict[str, Any]:
    """The value where it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
