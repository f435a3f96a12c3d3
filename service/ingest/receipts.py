"""Receipts of long runs, joined: one row stands for a range of numbers whose requests have all been accepted.

A run of months sends tens of millions of requests. Its old receipts are replaced by ranges: a repeat is still known,
whenever it comes, but is no longer compared with what came first.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Table, and_, bindparam, delete, func, insert, or_, select, tuple_
from sqlalchemy.orm import Session

from service.database.models import Receipt, Segment

KEPT = 4096  # newest receipts of each lane that keep their digests
JOINED_FROM = 2 * KEPT  # receipts of a lane
RANGES = "+"  # after the kind: a range, from `seq` to the number in `digest`
ANY = b""  # digest of a request that is known to have been accepted, with whatever content
AT_ONCE = 200_000  # receipts of one transaction
LAST = struct.Struct(">q")

Key = tuple[int, int, str, int]  # segment, process, kind, seq

_RECEIPT: Table = Receipt.__table__  # pyright: ignore[reportAssignmentType]
_LANE = (_RECEIPT.c.segment_id, _RECEIPT.c.process, _RECEIPT.c.kind)
_RANGES = select(*_LANE, _RECEIPT.c.seq, _RECEIPT.c.digest).where(
    tuple_(*_LANE).in_(bindparam("lanes", expanding=True))
)


def joined_receipts(connection: Connection, keys: Sequence[Key]) -> list[Key]:
    """Those of the keys that lie in a range."""
    lanes = {(segment, process, kind + RANGES) for segment, process, kind, _ in keys}
    if not lanes:
        return []
    ranges: dict[tuple[int, int, str], list[tuple[int, int]]] = {}
    for segment, process, kind, first, last in connection.execute(_RANGES, {"lanes": list(lanes)}):
        own = ranges.setdefault((segment, process, kind.removesuffix(RANGES)), [])
        own.append((first, LAST.unpack(bytes(last))[0]))
    return [key for key in keys if any(first <= key[3] <= last for first, last in ranges.get(key[:3], ()))]


def join_receipts(session: Session, run_id: int) -> int:
    """Join the old receipts of each lane that has many. Returns how many rows went. The seal task must be claimed."""
    connection = session.connection()
    own = select(Segment.id).where(Segment.run_id == run_id)
    many = select(*_LANE).where(_LANE[0].in_(own), _LANE[2].not_like(f"%{RANGES}")).group_by(*_LANE)
    gone = 0
    for segment, process, kind in connection.execute(many.having(func.count() > JOINED_FROM)).all():
        gone += _join(connection, segment, process, kind)
    return gone


def _join(connection: Connection, segment: int, process: int, kind: str) -> int:
    seq = _RECEIPT.c.seq
    lane = and_(_LANE[0] == segment, _LANE[1] == process, _LANE[2] == kind)
    last = connection.scalar(select(seq).where(lane).order_by(seq.desc()).offset(KEPT).limit(1))
    if last is None:
        return 0
    old = select(seq).where(lane, seq <= last).order_by(seq).limit(AT_ONCE)
    numbers = np.fromiter(connection.scalars(old), np.int64)
    same = and_(_LANE[0] == segment, _LANE[1] == process, _LANE[2] == kind + RANGES)
    before = [
        (first, LAST.unpack(bytes(end))[0])
        for first, end in connection.execute(select(seq, _RECEIPT.c.digest).where(same))
    ]
    ranges = _ranges(numbers, before)
    connection.execute(delete(_RECEIPT).where(or_(same, and_(lane, seq <= int(numbers[-1])))))
    rows = [
        {"segment_id": segment, "process": process, "kind": kind + RANGES, "seq": first, "digest": LAST.pack(end)}
        for first, end in ranges
    ]
    connection.execute(insert(_RECEIPT), rows)
    return len(numbers) + len(before) - len(ranges)


def _ranges(numbers: NDArray[np.int64], before: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Inclusive ranges of numbers (ascending) and of the ranges that there were, those that touch joined."""
    breaks = np.flatnonzero(np.diff(numbers) > 1) + 1
    parts = [(int(part[0]), int(part[-1])) for part in np.split(numbers, breaks) if len(part)]
    joined: list[tuple[int, int]] = []
    for first, last in sorted([*before, *parts]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined
