"""What the API says about the rows that a run has read."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel

from service.detect.same_rows import Relation
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


class RepeatBin(BaseModel):
    """Sampled readings of the steps from `first_step` to `last_step`, and how many of them were repeats."""

    first_step: int
    last_step: int
    readings: int
    repeats: int


class RepeatDistance(BaseModel):
    """So many repeats lie so many steps behind the row's previous reading."""

    steps: int
    repeats: int


class RowsReturned(BaseModel):
    """Behind the restart at step `restart`: of the first `readings` sampled readings, `returned` had been read before
    it, and `hits` of these lie exactly `lag` steps behind."""

    restart: int
    readings: int
    returned: int
    lag: int
    hits: int


class PassAudit(BaseModel):
    """One pass over the declared rows, counted from 1: `rows_read` in it, and the share of the declared rows that the
    different ones among them are."""

    number: int
    rows_read: int
    distinct_rows: int
    coverage: Number


class RowAudit(BaseModel):
    """What sampled row fingerprints show of a run's live steps.

    1 row in `sample` is known by its hash: `readings` of them, `distinct` different ones, `repeats` that no declared
    epoch explains, `planned` further readings that one does. `share` of repeats with its 95 % interval is of the
    readings since the onset while one is open, else of all; `natural` is what a healthy corpus holds anyway.

    `rows_read` counts every row that hosts reported, `distinct_rows` = `distinct` x `sample`. `coverage` is that over
    the declared rows (null where none were declared), `passes` says the same of each pass over them, and `declared_by`
    who declared them: the run, or its reference's data order. `steps` is how many steps from `first_step` to
    `last_step` were reported.

    `repeats` by where the row was read before: `within_batch` by the same host in the same step, `across_hosts` by
    another one in that step, else `distances` steps before (the commonest ones); `over_time` in at most 100 parts.

    Of windows, all counts but `rows_read` are of windows of 32 tokens, and `distinct_rows` and `coverage` are null,
    `passes` empty.
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
    distinct_rows: int | None
    declared_rows: int | None
    declared_epochs: Number | None
    declared_by: str | None
    coverage: Number | None
    passes: list[PassAudit]
    hosts: int
    steps: int
    first_step: int | None
    last_step: int | None
    onset: tuple[int, int] | None
    pattern: RepeatPattern | None
    within_batch: int
    across_hosts: int
    distances: list[RepeatDistance]
    restarts: list[RowsReturned]
    over_time: list[RepeatBin]


class HeldoutAudit(BaseModel):
    """Text of one held-out set in training rows: of the `rows_read` that were looked through, `rows_with_text` hold at
    least one window of the set, `windows_met` in all, and `rows_with_passage` several: more than boilerplate.

    1 window of the set in `rate` is looked for, `windows` in all. `share` of rows with a passage and its 95 % interval,
    since the onset where one is open; `natural` is what any corpus shows. `rows_with_document` rows hold so much of
    the set (24 windows and more) that it is a whole document, each text counted once: `set_share` of the set."""

    set: str
    rate: int
    windows: int
    rows_read: int
    rows_with_text: int
    rows_with_passage: int
    windows_met: int
    share: Number
    low: Number
    high: Number
    natural: Number
    natural_source: str
    onset: tuple[int, int] | None
    rows_with_document: int
    set_share: Number


class SameRows(BaseModel):
    """This run's sampled rows beside those of `run` at the `steps` that both reported, `told` of them by a hash.

    They are the same through step `through` (null: not even at the first), and differ first at `differs` (null:
    nowhere), at `wrong_steps` in all, since a step within `since`; of `compared` hashes `same` were read by the other
    run at the same step.

    `relation` says what is read now: `same`; `same again` behind steps with other rows; `shifted`, what the other run
    read `shift` steps later (negative: earlier), as `steady` of the `looked` newest hashes show; `other order` or
    `other rows`, by the share `known` of these that the other run reads anywhere; `not told` from fewer than five.
    `summary` says it in words."""

    run: UUID
    name: str
    sample: int
    steps: int
    told: int
    compared: int
    same: int
    through: int | None
    differs: int | None
    wrong_steps: int
    since: tuple[int, int] | None
    relation: Relation
    shift: int
    steady: Number
    known: Number
    looked: int
    summary: str


class RunAudit(BaseModel):
    """What was read; `rows` and `windows` are null where none were sent, `heldout` is empty where nothing is looked
    for, `same_rows` null where there is nothing to compare with. `unseen`: what all this cannot show, in words."""

    run: UUID
    rows: RowAudit | None
    windows: RowAudit | None
    heldout: list[HeldoutAudit]
    same_rows: SameRows | None
    unseen: list[str]
