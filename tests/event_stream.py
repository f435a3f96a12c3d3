"""Reads server-sent events as a client does."""

from __future__ import annotations

from collections.abc import Iterator


def events(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """Whole events of a stream, as field -> text; comments are field ""."""
    current: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            current[name] = value.strip()
        elif current:
            yield current
            current = {}
