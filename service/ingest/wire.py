"""The bodies that hooks send, as docs/wire.md describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

MAX_STEP = 2**53 - 1  # what every JSON reader keeps exact
MAX_TIME = 253_402_300_799.0  # the last second of the year 9999: what can be shown as a date
MAX_TOKENS = 1e18

Step = Annotated[int, Meta(ge=0, le=MAX_STEP)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
NonFinite = Literal["NaN", "Infinity", "-Infinity"]
Number = float | None | NonFinite
Time = Annotated[float, Meta(ge=0.0, le=MAX_TIME)]  # unix seconds
Tokens = Annotated[float, Meta(ge=0.0, le=MAX_TOKENS)]


class Sent(Struct, kw_only=True, frozen=True):
    """What every body carries: who sent it, the how-many-eth of its kind, and when (unix seconds)."""

    process: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    seq: Step
    sent_at: Time


class Fork(Struct, frozen=True):
    """The parent of a forked run (its id, or its name in this project and stage) and the last step taken from it."""

    run: Name
    step: Step


class DataDeclared(Struct, frozen=True):
    """What is to be read: distinct rows, and passes over them."""

    rows: Annotated[int, Meta(ge=1, le=MAX_STEP)]
    epochs: Annotated[float, Meta(gt=0)] = 1.0


class SegmentBody(Sent, kw_only=True, frozen=True):
    """PUT /segments/{id}: one start of a trainer, an evaluator or an import."""

    project: Name
    run: Name
    stage: Name
    started_at: Time
    role: Literal["reproduction", "reference"] = "reproduction"
    reference: Name | None = None
    kind: Literal["trainer", "evaluator", "import"] = "trainer"
    start_step: Step = 0
    start_tokens: Tokens | None = None
    tokens_per_step: Annotated[int, Meta(ge=0, le=MAX_STEP)] | None = None
    ramp: list[tuple[Step, Annotated[int, Meta(ge=0, le=MAX_STEP)]]] | None = None
    forked_from: Fork | None = None
    topology: dict[str, Any] = {}
    config: dict[str, Any] = {}
    versions: dict[str, Any] = {}
    data: DataDeclared | None = None
    sample_rows: Annotated[int, Meta(ge=1, le=2**62)] = 1024


class BatchBody(Sent, kw_only=True, frozen=True):
    """POST batches: columns of numbers, parallel to `steps`; null where a metric has no value at a step."""

    steps: list[int]
    times: list[Time]
    metrics: dict[str, list[Number]]
    tokens: list[Number] | None = None
    eval_sets: dict[str, Name] | UnsetType | None = UNSET
    weights_segment: str | None = None


class FingerprintBody(Sent, kw_only=True, frozen=True):
    """POST fingerprints: sampled hashes (16 hex digits) of rows, of windows or of held-out windows that were met, and
    inclusive runs of steps that were seen. `set` and `windows` (how many are looked for) are of held-out sets, and
    `counts`, parallel to `hashes`: how many windows the row held."""

    kind: Literal["rows", "windows", "heldout_hits"]
    host: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    sample: Annotated[int, Meta(ge=1, le=2**62)]
    steps: list[Step]
    hashes: list[Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]]
    seen: list[tuple[Step, Step, Annotated[int, Meta(ge=0, le=MAX_STEP)]]] = []
    set: Name | UnsetType | None = UNSET
    windows: Annotated[int, Meta(ge=1, le=MAX_STEP)] | UnsetType | None = UNSET
    counts: list[Annotated[int, Meta(ge=1, le=2**31 - 1)]] | UnsetType | None = UNSET


class ItemsBody(Sent, kw_only=True, frozen=True):
    """POST items: which of a task's `n` items were answered correctly, lowest bit first, in base64."""

    step: Step
    task: Name
    n: Annotated[int, Meta(ge=1, le=10_000_000)]
    correct: str


class EventBody(Sent, kw_only=True, frozen=True):
    """POST events: something a trainer says beside numbers."""

    step: Step
    kind: Annotated[str, Meta(min_length=1, max_length=32)]
    at: Time
    value: Any = None


class FinishBody(Sent, kw_only=True, frozen=True):
    """POST finish: the process ended as it should."""

    at: Time


def on_our_clock(at: float, sent_at: float, received_at: float) -> float:
    """A time of the sender (unix seconds) by the service's clock, which may be any time ahead of or behind it."""
    return min(max(at + (received_at - sent_at), 0.0), MAX_TIME)


def schema(body: type[Sent]) -> dict[str, Any]:
    """OpenAPI's description of a body."""
    (reference,), components = msgspec.json.schema_components([body], ref_template="#/$defs/{name}")
    return {"$defs": components, **reference} if components else dict(reference)
