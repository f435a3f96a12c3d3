"""The protobuf wire format: enough of it to walk through a message."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are no protobuf message."""


def fields(message: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Every field: (number, wire type, value of a varint, bytes of everything else).

    Raises:
        WireError: a field reaches beyond the end, or is of an unknown type.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield number, kind, value, b""
            continue
        if kind == BYTES:
            size, at = _varint(message, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise WireError(f"wire type {kind}")
        if at + size > end:
            raise WireError("a field reaches beyond the end")
        yield number, kind, 0, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
            if shift > 63:
                raise WireError("a number of more than 64 bits")
    except IndexError:
        raise WireError("a number is cut off") from None
