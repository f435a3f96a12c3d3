"""Why rows repeat: possible causes, ranked, each with the numbers for and against it."""

from __future__ import annotations

import numpy as np

from .findings import Findings
from .judgement import Cause, Weight
from .rows import RowFinding, RowPattern
from .sharing import DECLARE, every_host_the_same

ORDER: tuple[Weight, ...] = ("shown", "likely", "possible", "ruled out")
ENOUGH_REPEATS = 32  # repeated readings before a pattern counts as shown
NEARLY_ALL = 0.95
CLOSED_POOL = 0.05  # at most this share of new rows: the pool is used up
COVERAGE_ERROR = 0.05  # relative, beside the sampling error of the distinct count
RESTART_REACH = 50  # steps after a restart within which its replay begins


def of_repeated_rows(findings: Findings) -> list[Cause]:
    """Causes of an open repeated-rows episode, most likely first; empty without one."""
    found = findings.rows
    if found is None or found.pattern is None or found.onset is None:
        return []
    pattern = found.pattern
    causes = [
        *every_host_the_same(findings, found, pattern),
        _replay(findings, found, pattern),
        _double_shard(findings, found, pattern),
        _with_replacement(findings, found, pattern),
        _undeclared_pass(findings, found, pattern),
        _natural_twins(findings, found, pattern),
    ]
    ranked = sorted((c for c in causes if c is not None), key=lambda c: ORDER.index(c.weight))
    met = _meeting(findings, found)
    if met and ranked and ranked[0].weight != "ruled out":
        ranked[0] = Cause(ranked[0].name, ranked[0].weight, f"{ranked[0].because}; {met}")
    return ranked


def next_checks(findings: Findings) -> list[str]:
    """What to do next, the most telling first."""
    found = findings.rows
    checks: list[str] = []
    if found is None:
        checks.append("Send row fingerprints (run.log_rows): they tell a replay from another order in minutes.")
    elif found.episode is not None:
        if found.pattern is not None and found.pattern.same_step > 0.5:
            checks.append(DECLARE)
        checks.append("Audit the loader with its real host count: each row exactly once over all hosts in one pass.")
        checks.append("See whether both the data source and the sampler or DataLoader shard; shard in one place only.")
        checks.append("After a restart, compare the loader's position (rows over all hosts) with step x global batch.")
        if findings.view.data is None:
            checks.append("Declare the data set's rows at start (data={'rows': …}): coverage then shows the factor.")
    checks.append("Stop before more is memorized; resume from the last checkpoint before the onset.")
    return checks


def _double_shard(findings: Findings, found: RowFinding, pattern: RowPattern) -> Cause | None:
    hosts, data = found.hosts, findings.view.data
    own = f"{pattern.own_host:.0%} of the repeats were first read by the same host"
    new = f"{pattern.new_share:.1%} of the rows since step {_step(found):,} are new"
    if data is None or data.rows <= 0:
        if hosts < 2:
            return None
        weight: Weight = "likely" if _closed(pattern) and pattern.own_host >= NEARLY_ALL else "possible"
        return Cause(
            f"double shard by factor {hosts}", weight,
            f"{own}; {new}; {hosts} hosts; the data set's rows were not declared, so coverage cannot be checked",
        )  # fmt: skip
    factor, fits = _factor(found, data.rows, hosts)
    distinct = found.distinct_at_onset * found.sample
    part = data.rows / max(distinct, 1)
    coverage = f"repeats began after {distinct:,} distinct of {data.rows:,} declared rows (1/{part:.2f})"
    if pattern.same_step > 0.5:
        return Cause(f"double shard by factor {factor}", "ruled out", "the repeats are across hosts within one step")
    if not fits or (hosts > 1 and pattern.own_host < 0.5):
        return Cause(f"double shard by factor {max(hosts, 2)}", "ruled out", f"{coverage}; {hosts} hosts; {own}")
    closed = _closed(pattern)
    shown = closed and factor == hosts and pattern.own_host >= NEARLY_ALL and pattern.repeats >= ENOUGH_REPEATS
    leak = "" if closed else "; each pass draws the shard anew"
    return Cause(
        f"double shard by factor {factor}", "shown" if shown else "likely",
        f"{coverage}, as when {hosts} hosts shard data that is sharded already; {own}; {new}{leak}",
    )  # fmt: skip


def _factor(found: RowFinding, rows: int, hosts: int) -> tuple[int, bool]:
    """The integer k with distinct rows at the onset ≈ rows / k, and whether one fits (the host count first)."""
    distinct = max(found.distinct_at_onset, 1)
    allowed = COVERAGE_ERROR + 2.0 / np.sqrt(distinct) * (1.0 if found.sample > 1 else 0.0)
    ratio = rows / (distinct * found.sample)
    for k in (hosts, round(ratio)):
        if k >= 2 and abs(ratio / k - 1.0) <= allowed:
            return int(k), True
    return max(round(ratio), 2), False


def _closed(pattern: RowPattern) -> bool:
    return pattern.new_share <= CLOSED_POOL


def _replay(findings: Findings, found: RowFinding, pattern: RowPattern) -> Cause | None:
    step = _step(found)
    steady = f"{pattern.lag_share:.0%} of the repeats lie exactly {pattern.lag:,} steps behind"
    rows = findings.view.rows
    began = int(rows.seen_steps[0]) if rows is not None and len(rows.seen_steps) else 0
    restarts = [s.start_step for s in findings.view.segments if began <= s.start_step < step]
    reach = max(RESTART_REACH, 20 * found.sample // max(_rows_per_step(findings), 1))
    near = [s for s in restarts if step - s <= reach]
    began_after = f"the repeats begin {step - near[-1]:,} steps after that restart" if near else ""
    constant = pattern.lag > 0 and pattern.lag_share >= 0.8
    if near:
        name = f"replay since the restart at step {near[-1]:,}"
        if constant:
            weight: Weight = "shown" if pattern.lag_share >= NEARLY_ALL and pattern.repeats >= 8 else "likely"
            return Cause(name, weight, f"{steady}; {began_after}")
        return Cause(
            name, "possible", f"the repeats begin {step - near[-1]:,} steps after that restart, but only {steady}"
        )
    if constant:
        return Cause(
            "the loader reads the same rows in the same order again", "likely", f"{steady}; no restart is near"
        )
    why = (
        f"no restart within reach before step {step:,}" if not restarts else f"the restarts are not near step {step:,}"
    )
    return Cause("replay since a restart", "ruled out", f"{why}; only {steady}")


def _with_replacement(findings: Findings, found: RowFinding, pattern: RowPattern) -> Cause | None:
    name, data = "sampling with replacement", findings.view.data
    if pattern.same_step > 0.5:
        return Cause(name, "ruled out", "the repeats are across hosts within one step")
    if data is not None and data.rows > 0:
        load = found.rows_read / data.rows
        expected = data.rows * (1.0 - float(np.exp(-load)))
        off = found.distinct_rows / expected - 1.0 if expected > 0 else 0.0
        before = found.read_at_onset * found.sample
        # With replacement n reads of N rows hold about n²/2N repeats already; none came before the onset.
        missing = before * before / (2.0 * data.rows) / found.sample
        because = f"{found.distinct_rows:,} distinct rows where drawing with replacement would give {expected:,.0f}"
        if missing > 20.0 and found.read_at_onset - found.distinct_at_onset < missing / 4.0:
            return Cause(
                name, "ruled out", f"no repeats in the first {before:,} rows, where it would give {missing:,.0f}"
            )
        if abs(off) > 0.1 or _closed(pattern):
            return Cause(name, "ruled out" if abs(off) > 0.25 or _closed(pattern) else "possible", because)
        enough = pattern.repeats >= ENOUGH_REPEATS and load >= 0.05
        return Cause(name, "shown" if enough and abs(off) < 0.05 else "likely", because)
    drawn_from, before = _drawn_from(found), found.read_at_onset * found.sample
    missing = before * before / (2.0 * drawn_from) / found.sample
    if missing > 20.0 and found.read_at_onset - found.distinct_at_onset < missing / 4.0:
        because = (
            f"no repeats in the first {before:,} rows, where drawing from {drawn_from:,.0f} would give {missing:,.0f}"
        )
        return Cause(name, "ruled out", because)
    if pattern.growth > 0.05 and not _closed(pattern):
        return Cause(name, "likely", f"the repeat share grows by {pattern.growth:.0%} between first and last third")
    return Cause(
        name, "possible" if not _closed(pattern) else "ruled out", f"{pattern.new_share:.1%} of the rows are new"
    )


def _drawn_from(found: RowFinding) -> float:
    """How many rows there are, if those read were drawn with replacement: N of distinct = N (1 - exp(-read / N))."""
    read, distinct = float(max(found.sampled, 1)), float(max(found.distinct, 1))
    low, high = distinct, max(read * read, 2.0)
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if middle * -np.expm1(-read / middle) < distinct else (low, middle)
    return high * found.sample


def _undeclared_pass(findings: Findings, found: RowFinding, pattern: RowPattern) -> Cause | None:
    data = findings.view.data
    if not _closed(pattern):
        return None
    if data is None:
        because = (
            f"no row repeated in the first {found.read_at_onset * found.sample:,}, nearly all did after; rows not "
            f"declared"
        )
        return Cause("a further pass over the whole data set, not declared", "possible", because)
    planned, before = float(np.ceil(data.epochs)) * data.rows, found.read_at_onset * found.sample
    if abs(before / planned - 1.0) > COVERAGE_ERROR + 2.0 / float(np.sqrt(max(found.read_at_onset, 1))):
        return None
    because = f"rows repeat since {before:,} of {planned:,.0f} planned readings ({data.epochs:g} x {data.rows:,} rows)"
    return Cause("a further pass over the data set, beyond the declared ones", "likely", because)


def _natural_twins(findings: Findings, found: RowFinding, pattern: RowPattern) -> Cause:
    name = "natural twins in the corpus"
    because = f"the repeat share is {found.share / found.natural:,.0f} times the natural one"
    if found.interval[0] > 5.0 * found.natural or findings.heldout.answer == "flat":
        return Cause(name, "ruled out", because)
    return Cause(name, "possible", because)


def _meeting(findings: Findings, found: RowFinding) -> str:
    """What the train loss says about it, where a drift below the reference is open."""
    train = findings.train
    if train is None or train.open is None or train.open.side != "below":
        return ""
    latest = int(train.blocks.last_step[train.open.first])
    step = _step(found)
    if latest < step:
        return f"but the train loss sank by step {latest:,}, before rows repeated"
    held = " while held-out did not follow" if findings.heldout.answer == "flat" else ""
    return f"the train loss sinks below the reference by step {latest:,}, after rows began to repeat{held}"


def _rows_per_step(findings: Findings) -> int:
    rows = findings.view.rows
    return int(np.median(rows.seen_rows)) if rows is not None and len(rows.seen_rows) else 1


def _step(found: RowFinding) -> int:
    return found.onset[1] if found.onset is not None else 0
