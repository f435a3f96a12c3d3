"""What an audit found, for programs, as JSON and as text."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

SHOWN_ROWS = 100  # of each pass


@dataclass(frozen=True, slots=True)
class Cause:
    """A likely cause: its name, what it is told by, and what to do. A `note` breaks no row."""

    name: str
    because: str
    remedy: str = ""
    note: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One row that was not read once. `key`: 16 hex digits, as in fingerprints; `expected`: how often it should be."""

    key: str
    reads: int
    expected: int
    hosts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """One reading of the data by `hosts` hosts with `workers` workers each, whole or resumed.

    `resumed_from`: (hosts, workers, step) that were read before, None for a whole pass. Counts of rows: `expected` in
    one pass over the data, `read` with repeats, `distinct`, `never` read (`dropped` of them legally, as what the last
    batch or an even split leaves over), read `twice` or more (reads beyond the first), `across` read on several hosts.
    `order`: "kept" (every step reads what one host would), else how it differs; empty where it cannot be told.
    """

    hosts: int
    workers: int
    expected: int
    read: int = 0
    distinct: int = 0
    never: int = 0
    dropped: int = 0
    twice: int = 0
    across: int = 0
    order: str = ""
    batch: int = 0
    resumed_from: tuple[int, int, int] | None = None
    causes: tuple[Cause, ...] = ()
    rows: tuple[Row, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every row was read once, but for what a loader may drop at the end."""
        return all(cause.note for cause in self.causes)

    @property
    def name(self) -> str:
        """Such as "4 hosts, 2 workers" or "4 hosts → 2 hosts at step 10"."""
        name = _place(self.hosts, self.workers)
        if self.resumed_from is None:
            return name
        hosts, workers, step = self.resumed_from
        return f"{_place(hosts, workers)} → {name} at step {step:,}"


def _place(hosts: int, workers: int) -> str:
    name = f"{hosts:,} host{'s' * (hosts != 1)}"
    return f"{name}, {workers} workers each" if workers else name


@dataclass(frozen=True, slots=True)
class Report:
    """All passes of an audit, and what concerns them all."""

    passes: tuple[Pass, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every pass was."""
        return all(one.ok for one in self.passes)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Each cause of a fault once, in the order of the passes; without notes."""
        found = {cause.name: cause for one in reversed(self.passes) for cause in reversed(one.causes) if not cause.note}
        return tuple(reversed(found.values()))

    @property
    def rows(self) -> tuple[Row, ...]:
        """Rows that were not read once, at most 100 of each pass; each with the hosts of its first bad pass."""
        found = {row.key: row for one in reversed(self.passes) for row in reversed(one.rows)}
        return tuple(reversed(found.values()))

    def to_json(self) -> str:
        """The whole report as a JSON object."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def as_dict(self) -> dict[str, Any]:
        """The whole report as plain dicts and lists."""
        passes = [{"name": one.name, "ok": one.ok, **dataclasses.asdict(one)} for one in self.passes]
        causes = [dataclasses.asdict(cause) for cause in self.causes]
        return {"ok": self.ok, "causes": causes, "passes": passes, "notes": list(self.notes)}

    def __str__(self) -> str:
        good = sum(one.ok for one in self.passes)
        lines = [
            "The loader reads each row once."
            if self.ok
            else f"The loader does not read each row once: {len(self.passes) - good} of {len(self.passes)} passes fail."
        ]
        for one in self.passes:
            lines.append(f"{'ok  ' if one.ok else 'BAD '} {one.name}: {counts(one)}")
            for cause in one.causes:
                lines.append(f"       {'note' if cause.note else 'likely cause'}: {cause.name}. {cause.because}")
                if cause.remedy:
                    lines.append(f"         {cause.remedy}")
            lines += [f"       {sentence}" for sentence in examples(one)]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def counts(one: Pass) -> str:
    """Its figures in a line."""
    parts = [f"{one.read:,} reads of {one.expected:,} rows"]
    if one.dropped:
        parts.append(f"{one.dropped:,} dropped as remainder")
    if one.never > one.dropped:
        parts.append(f"{one.never - one.dropped:,} never read")
    if one.twice:
        parts.append(f"{one.twice:,} repeats")
    if one.across:
        parts.append(f"{one.across:,} rows on several hosts")
    if one.order:
        parts.append("order kept" if one.order == "kept" else f"order: {one.order}")
    return ", ".join(parts)


def examples(one: Pass, most: int = 3) -> list[str]:
    """A few of its rows, in words."""
    made: list[str] = []
    for row in sorted(one.rows, key=lambda row: -row.reads)[:most]:
        where = f" on host{'s' * (len(row.hosts) > 1)} {', '.join(map(str, row.hosts))}" if row.hosts else ""
        made.append(f"row {row.key}: read {row.reads} times instead of {row.expected}{where}")
    return made
