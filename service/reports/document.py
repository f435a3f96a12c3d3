"""What a report holds. JSON of it is the report; Markdown and HTML are made from that alone.

Tokens are on the project's axis, shares from 0 to 1, times RFC 3339 in UTC. A `Real` is a number, "NaN", "Infinity" or
"-Infinity" as on the wire, or null where there is none.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal, cast

import msgspec

SCHEMA = "pacenote-report/1"

Real = float | str | None
Stand = Literal["inside", "outside", "cannot tell"]


class Progress(msgspec.Struct, frozen=True):
    """How far the run is. `tokens` is on the project's axis, `stage_share` of the reference's stage."""

    step: int | None
    tokens: float | None
    stage_steps: int | None
    stage_tokens: int | None
    stage_share: float | None
    last_data_at: str | None
    finished: bool


class RunPart(msgspec.Struct, frozen=True):
    """Which run this is."""

    id: str
    project: str
    name: str
    stage: str
    role: str
    forked_from: str | None
    forked_at_step: int | None
    metrics: int


class ReferencePart(msgspec.Struct, frozen=True):
    """What the run is compared with. `digest` is the SHA-256 of what the bundle says; `siblings` healthy reruns of it
    that noise and tolerances may rest on."""

    slug: str
    version: str
    digest: str
    title: str
    url: str
    retrieved: str
    licence: str
    citation: str
    siblings: int
    loss: str
    loss_proven: bool
    conflicts: list[str]


class VerdictPart(msgspec.Struct, frozen=True):
    """The verdict, the newest step it looked at, and the reference version it was reached against.

    `current`: all data and the newest version were judged; `note` says what is missing where not. `state` is null where
    nothing was judged."""

    state: str | None
    because: str
    decided_at: str | None
    at_step: int | None
    reference: str | None
    version: str | None
    current: bool
    note: str


class Checkpoint(msgspec.Struct, frozen=True):
    """A column of the table: the weights after `step` updates, and why they were chosen."""

    step: int
    tokens: float | None
    why: str


class Cell(msgspec.Struct, frozen=True):
    """One metric at one checkpoint. `deviation` is run minus reference at equal tokens with the half width of its 95 %
    interval; `because` says why where it cannot be told."""

    run: Real
    reference: Real
    deviation: Real
    half_width: Real
    stand: Stand
    because: str


class Row(msgspec.Struct, frozen=True):
    """One metric over the checkpoints, null where it was not measured. `gap_steps` is the width of a block whose mean
    stands for a metric that is logged each step, null for evaluations."""

    metric: str
    title: str
    unit: str
    tolerance: float | None
    tolerance_source: str
    tolerance_runs: int
    gap_steps: int | None
    cells: list[Cell | None]


class Line(msgspec.Struct, frozen=True):
    """One curve in buckets: mean, least and largest finite value of each, null where it has none; `spoilt` are the
    places in it where a value is NaN or infinite. Seven digits are kept."""

    tokens: list[float]
    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]
    spoilt: list[int]


class Chart(msgspec.Struct, frozen=True):
    """One picture. `smooth` are block means of a run that is logged each step, null between blocks that are not
    neighbours, `band` the level of the reference that the tolerance is drawn about; both as (tokens, values)."""

    key: str
    title: str
    unit: str
    run: Line
    reference: Line | None
    second: Line | None
    tolerance: float | None
    smooth: tuple[list[float], list[float | None]] | None
    band: tuple[list[float], list[float]] | None
    note: str


class Mark(msgspec.Struct, frozen=True):
    """An alert on the axis of tokens: where its cause began (earliest, latest) and where it was raised."""

    onset: tuple[float, float]
    raised: float
    label: str
    resolved: bool


class SegmentPart(msgspec.Struct, frozen=True):
    """One start of the trainer. Its points beyond `live_to_step` were superseded by a later start."""

    kind: str
    start_step: int
    start_tokens: float | None
    started_at: str | None
    finished_at: str | None
    live_to_step: int | None
    superseded: bool
    topology: dict[str, Any]
    versions: dict[str, Any]


class CausePart(msgspec.Struct, frozen=True):
    """A possible explanation, and what speaks for it."""

    name: str
    weight: str
    because: str


class Happened(msgspec.Struct, frozen=True):
    """One change of an alert."""

    kind: str
    at: str
    by: str
    note: str


class Incident(msgspec.Struct, frozen=True):
    """One alert: since when, what it rests on, the causes that are not ruled out, and what happened to it."""

    id: str
    title: str
    family: str
    severity: str
    state: str
    rules: list[str]
    opened_at: str
    opened_step: int
    resolved_at: str | None
    onset_steps: tuple[int, int] | None
    onset_tokens: tuple[float, float] | None
    summaries: list[str]
    causes: list[CausePart]
    history: list[Happened]


class DeviationPart(msgspec.Struct, frozen=True):
    """A declared difference from the reference's recipe, with its budgets by metric and its span."""

    text: str
    item: str
    budgets: dict[str, float]
    from_step: int
    from_tokens: float | None
    end_step: int | None
    end_tokens: float | None
    end_at: str | None
    by: str
    declared_at: str


class Judged(msgspec.Struct, frozen=True):
    """One rule's newest answer, as everywhere: see the API's judgements."""

    rule: str
    family: str
    state: str
    at_step: int
    decided_at: str
    since_step: tuple[int, int] | None
    summary: str
    value: Real
    interval: tuple[Real, Real] | None
    unit: str
    limit: Real
    limit_source: str
    n: int
    evidence: list[dict[str, Any]]


class DataAudit(msgspec.Struct, frozen=True):
    """What is known of the rows that were read. `coverage` is distinct rows over declared rows."""

    repeats: Judged | None
    sample: int | None
    rows_read: float | None
    distinct_rows: float | None
    declared_rows: int | None
    declared_epochs: float | None
    coverage: float | None
    answers: list[Judged]
    blind: list[str]


class SettingChange(msgspec.Struct, frozen=True):
    """Somebody changed how the run is judged. `scope` is run or project; `old` and `new` null: as shipped."""

    rule: str
    scope: str
    at: str
    by: str
    reason: str
    old: dict[str, Any] | None
    new: dict[str, Any] | None


class ConversionPart(msgspec.Struct, frozen=True):
    """What was done to a trainer's number before it was stored."""

    metric: str
    formula: str
    why: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run's account. `left_out` says what was too much to be listed."""

    schema: str = SCHEMA
    generator: str
    run: RunPart
    progress: Progress
    reference: ReferencePart | None
    verdict: VerdictPart
    checkpoints: list[Checkpoint]
    table: list[Row]
    charts: list[Chart]
    marks: list[Mark]
    segments: list[SegmentPart]
    incidents: list[Incident]
    deviations: list[DeviationPart]
    data: DataAudit
    parity: Judged | None
    rules: list[Judged]
    settings: list[SettingChange]
    step_meanings: list[str]
    conversions: list[ConversionPart]
    left_out: list[str]
    digest: str = ""


class ReportError(ValueError):
    """A document is no report, or not one that this program can read; the message is one line."""


def sealed(report: Report) -> Report:
    """The report in the types of its schema, with its digest."""
    plain = msgspec.to_builtins(report)
    plain["digest"] = digest_of(plain)
    made = msgspec.convert(plain, Report)
    return msgspec.structs.replace(made, digest=digest_of(msgspec.to_builtins(made)))


def digest_of(document: dict[str, Any]) -> str:
    """SHA-256 (hex) of the document without its digest: JSON with sorted keys, no spaces, letters as they are."""
    data = {name: value for name, value in document.items() if name != "digest"}
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def to_json(report: Report) -> str:
    """The report as JSON text, one line."""
    return json.dumps(msgspec.to_builtins(report), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def from_json(text: str | bytes) -> Report:
    """A report that was written before, whatever its digest says.

    Raises:
        ReportError: it is no report, or one of another schema.
    """
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"this is no JSON: {error}") from error
    found: Any = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    schema = found.get("schema")
    if schema != SCHEMA:
        raise ReportError(f"this is no report that can be read here: its schema is {schema!r}, not {SCHEMA!r}")
    try:
        return msgspec.convert(document, Report)
    except msgspec.ValidationError as error:
        raise ReportError(f"this is no whole report: {error}") from error


def is_unchanged(report: Report) -> bool:
    """Whether the digest is that of what the report says."""
    return report.digest == digest_of(msgspec.to_builtins(report))


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a report."""
    return msgspec.json.schema(Report)
