"""From the other bodies (segments, fingerprints, items, events, finish) to what the committer writes."""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import numpy as np

from service.errors import field_error
from service.ingest.body import decode_json
from service.ingest.requests import Event, Fingerprints, Finish, Ints, Items, Post, Put
from service.ingest.wire import EventBody, FingerprintBody, FinishBody, ItemsBody, SegmentBody, Sent, on_our_clock

MOST_SEEN_STEPS = 10_000_000  # per request

_segments = msgspec.json.Decoder(SegmentBody)
_fingerprints = msgspec.json.Decoder(FingerprintBody)
_items = msgspec.json.Decoder(ItemsBody)
_events = msgspec.json.Decoder(EventBody)
_finishes = msgspec.json.Decoder(FinishBody)

S = TypeVar("S", bound=Sent)


def content_digest(body: Sent, size: int) -> bytes:
    """A digest of everything but who sent it, the how-many-eth it was, and when."""
    bare = msgspec.structs.replace(body, process=0, seq=0, sent_at=0.0)
    return blake2b(msgspec.json.encode(bare, order="sorted"), digest_size=size).digest()


def decode_segment(segment: UUID, data: bytes, received_at: float) -> Put:
    """A segment's PUT.

    Raises:
        ProblemError: it is malformed.
    """
    body = decode_json(data, _segments)
    for field in ("project", "run", "stage", "reference"):
        _check_text(field, getattr(body, field))
    if body.forked_from is not None:
        _check_text("forked_from.run", body.forked_from.run)
    for index, (earlier, later) in enumerate(zip(body.ramp or [], (body.ramp or [])[1:], strict=False), 1):
        if later[0] <= earlier[0]:
            raise field_error(f"ramp[{index}]", f"begins at step {later[0]}, not after step {earlier[0]}")
    started_at = on_our_clock(body.started_at, body.sent_at, received_at)
    return Put(segment, body, content_digest(body, 16), started_at, received_at)


def decode_post(kind: str, segment: UUID, data: bytes, received_at: float) -> Post:
    """A POST of fingerprints, items, events or finish.

    Raises:
        ProblemError: it is malformed.
    """
    body, accepted, content = _DECODERS[kind](data, received_at)
    digest = content_digest(body, 8)
    return Post(segment, body.process, body.seq, kind, digest, received_at, accepted, content)


def _decode_fingerprints(data: bytes, _received_at: float) -> tuple[FingerprintBody, int, Fingerprints]:
    body = decode_json(data, _fingerprints)
    if len(body.hashes) != len(body.steps):
        raise field_error("hashes", f"has {len(body.hashes)} values for {len(body.steps)} steps")
    hashes = np.frombuffer(bytes.fromhex("".join(body.hashes)), ">u8").astype(np.uint64)
    counts = _check_heldout(body)
    if body.kind == "rows":
        wrong, rule = np.flatnonzero(hashes % np.uint64(body.sample)), "0 modulo `sample`"
    else:
        wrong, rule = np.flatnonzero(hashes > np.uint64((2**64 - 1) // body.sample)), "below 2**64 / `sample`"
    if len(wrong):
        index = int(wrong[0])
        raise field_error(f"hashes[{index}]", f"{body.hashes[index]} is not {rule} ({body.sample})")
    reported = 0
    for index, (first, last, _) in enumerate(body.seen):
        if last < first:
            raise field_error(f"seen[{index}]", f"ends at step {last}, before it begins at step {first}")
        reported += last - first + 1
    if reported > MOST_SEEN_STEPS:
        raise field_error("seen", f"covers {reported:,} steps; at most {MOST_SEEN_STEPS:,} at once")
    seen = np.array(body.seen, np.int64).reshape(-1, 3)
    content = Fingerprints(
        body.kind, body.host, body.sample, np.array(body.steps, np.int64), hashes, seen, body.set or None,
        body.windows or None, counts,
    )  # fmt: skip
    return body, len(body.hashes), content


def _check_heldout(body: FingerprintBody) -> Ints | None:
    """The counts of held-out hits; None for other kinds, which have none."""
    given = {"set": body.set or None, "windows": body.windows or None, "counts": body.counts or None}
    if body.kind != "heldout_hits":
        for field, value in given.items():
            if value is not None:
                raise field_error(field, f"is of held-out hits alone, not of {body.kind}")
        return None
    if not body.set:
        raise field_error("set", "is missing: the held-out set that was looked for")
    _check_text("set", body.set)
    if body.counts and len(body.counts) != len(body.hashes):
        raise field_error("counts", f"has {len(body.counts)} values for {len(body.hashes)} hashes")
    return np.array(body.counts, np.int64) if body.counts else np.ones(len(body.hashes), np.int64)


def _decode_items(data: bytes, _received_at: float) -> tuple[ItemsBody, int, Items]:
    body = decode_json(data, _items)
    _check_text("task", body.task)
    try:
        correct = base64.b64decode(body.correct, validate=True)
    except (binascii.Error, ValueError) as error:
        raise field_error("correct", f"is no base64: {error}") from error
    if len(correct) != (body.n + 7) // 8:
        raise field_error("correct", f"holds {len(correct)} bytes, but {body.n} items take {(body.n + 7) // 8}")
    return body, body.n, Items(body.step, body.task, body.n, correct)


def _decode_event(data: bytes, received_at: float) -> tuple[EventBody, int, Event]:
    body = decode_json(data, _events)
    _check_text("kind", body.kind)
    return body, 1, Event(body.step, body.kind, body.value, on_our_clock(body.at, body.sent_at, received_at))


def _decode_finish(data: bytes, received_at: float) -> tuple[FinishBody, int, Finish]:
    body = decode_json(data, _finishes)
    return body, 1, Finish(on_our_clock(body.at, body.sent_at, received_at))


_DECODERS: dict[str, Any] = {
    "fingerprints": _decode_fingerprints,
    "items": _decode_items,
    "events": _decode_event,
    "finish": _decode_finish,
}


def _check_text(field: str, text: str | None) -> None:
    if text is not None and ("\0" in text or len(text.encode()) > 256):
        raise field_error(field, "expected 1 to 256 bytes of UTF-8 without NUL")
