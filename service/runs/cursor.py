"""Opaque cursors: where the next page begins."""

from __future__ import annotations

import base64
import binascii

import msgspec

from service.errors import field_error

Place = tuple[float | str, int]  # sort value and id of the last row that was given


def encode(place: Place) -> str:
    """A cursor that a client only hands back."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def decode(cursor: str) -> Place:
    """The place behind a cursor.

    Raises:
        InvalidError: it was not made by `encode`.
    """
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=Place)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise field_error("query.cursor", "not a cursor of ours; leave it out to begin at the first page") from error
