"""Hosts that always read the same rows at the same steps: sharding that is missing, or rows shared on purpose."""

from __future__ import annotations

from .findings import Findings
from .judgement import Cause
from .rows import RowFinding, RowPattern

NEWEST = 4_096  # sampled readings that are looked at
ENOUGH = 32  # repeated readings before a pattern counts as shown
NAME = "hosts share rows on purpose (context parallelism) and do not say so"
DECLARE = (
    "Where hosts share rows on purpose (context, tensor or pipeline parallelism), have all of a group name one data "
    "shard: log_rows(step, rows, host=SHARD) or wrap(loader, host=SHARD). Rows are then one reading."
)


def groups_of(findings: Findings) -> list[list[int]]:
    """Groups of two hosts or more, of which each row is read by all of one group at its step and by nobody else; []
    where hosts are not grouped so."""
    rows = findings.view.rows
    if rows is None or len(rows.steps) == 0:
        return []
    steps, hosts, hashes = rows.steps[-NEWEST:], rows.hosts[-NEWEST:], rows.hashes[-NEWEST:]
    # The newest step may not be there from every host yet, and the oldest is cut.
    whole = (steps > steps[0]) & (steps < steps[-1]) if len(rows.steps) > NEWEST else steps < steps[-1]
    readers: dict[tuple[int, int], set[int]] = {}
    for step, host, value in zip(*(part[whole].tolist() for part in (steps, hosts, hashes)), strict=True):
        readers.setdefault((step, value), set()).add(host)
    found = {frozenset(group) for group in readers.values()}
    apart = sum(len(group) for group in found) == len(frozenset[int]().union(*found))
    if not found or not apart or min(len(group) for group in found) < 2:
        return []
    return sorted(sorted(group) for group in found)


def every_host_the_same(findings: Findings, found: RowFinding, pattern: RowPattern) -> list[Cause]:
    """What rows that several hosts read within one step may mean; [] on one host."""
    if found.hosts < 2:
        return []
    name, share = "every host reads the same rows", pattern.same_step
    because = f"{share:.0%} of the repeats are another host's row of the same step ({found.hosts} hosts)"
    if share < 0.1:
        return [Cause(name, "ruled out", because)]
    groups = groups_of(findings) if share >= 0.9 and pattern.repeats >= ENOUGH else []
    if len(groups) > 1:
        shown = "; ".join("hosts " + ", ".join(map(str, group)) for group in groups[:3])
        each = f"each row is read by all hosts of one group and by no other: {shown}{' …' if len(groups) > 3 else ''}"
        return [Cause(NAME, "shown", each), Cause(name, "ruled out", f"{len(groups)} groups read different rows")]
    if share >= 0.9 and pattern.repeats >= ENOUGH:
        made = [Cause(name, "shown", because)]
    else:
        made = [Cause(name, "likely" if share >= 0.5 else "possible", because)]
    if groups:
        made.append(Cause(NAME, "possible", f"all {len(groups[0])} hosts read every row: one group would look like it"))
    return made
