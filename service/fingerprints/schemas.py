"""What the API says about the rows that a run has read."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel

from service.runs.fields import Number


class RepeatPattern(BaseModel):
    """What the repeats since the onset look like; shares (0 to 1) are of the repeated readings.

    `lag` is the commonest distance in steps to the row's previous reading and `lag_share` how many have it;
    `same_step`: read by two hosts within one step; `own_host`: first read by the same host; `new_share`: readings since
    the onset whose row was new; `copies`: readings per repeated row."""

    lag: int
    lag_share: Number
    same_step: Number
    own_host: Number
    new_share: Number
    copies: Number


class RowAudit(BaseModel):
    """What sampled row fingerprints show of a run's live steps.

    1 row in `sample` is known by its hash: `readings` of them, `distinct` different ones, `repeats` that no declared
    epoch explains, `planned` further readings that one does. `share` of repeats with its 95 % interval is of the
    readings since the onset while one is open, else of all; `natural` is what a healthy corpus holds anyway.

    `rows_read` counts every row that hosts reported, `distinct_rows` = `distinct` x `sample`. `coverage` is that over
    the declared rows (null where none were declared), `steps` how many steps from `first_step` to `last_step` were
    reported.
    """

    sample: int
    readings: int
    distinct: int
    repeats: int
    planned: int
    share: Number
    low: Number
    high: Number
    natural: Number
    natural_source: str
    rows_read: int
    distinct_rows: int
    declared_rows: int | None
    declared_epochs: Number | None
    coverage: Number | None
    hosts: int
    steps: int
    first_step: int | None
    last_step: int | None
    onset: tuple[int, int] | None
    pattern: RepeatPattern | None


class RunAudit(BaseModel):
    """What was read; `rows` is null where no row fingerprints were sent."""

    run: UUID
    rows: RowAudit | None
