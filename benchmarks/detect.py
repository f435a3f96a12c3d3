"""How well the alert rules do: `make bench-detect`, or `python -m benchmarks detect [--quick] [--logs FOLDER]`.

Every bar as one table, beside a threshold on a moving average over 10,000 steps that is calibrated to the same false
alarms; then the causes that are named; then, with `--logs`, public training logs, one line each. Simulated runs are
those of benchmarks/detect_runs.py (block statistics of 1.41M steps) and benchmarks/detect_scenes.py (whole runs).
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import (
    detect_causes,
    detect_drift,
    detect_logs,
    detect_reference,
    detect_repeats,
    detect_rules,
    signature,
)  # fmt: skip
from benchmarks.detect_runs import CONDITIONS, HARD, OFFSETS, REPORT_SEEDS, TUNING_SEEDS, WIDE
from benchmarks.detect_scenes import FAULTS, HEALTHY
from benchmarks.detect_table import Row, console, show

PROCESSES = 2
LOGS = "PACENOTE_REALLOGS"  # the folder with public logs, where --logs is not given
Matrix = tuple[str, Counter[str], int, int, Counter[str]]


def of_signature(name: str, *given: int) -> list[Row]:
    """Rows of one part of benchmarks/signature.py."""
    signature.ROWS.clear()
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        getattr(signature, name)(*given)
    return list(signature.ROWS)


class Work:
    """Parts of the table under way in other processes, with their progress shown."""

    def __init__(self, pool: ProcessPoolExecutor, progress: Progress) -> None:
        self.pool, self.progress = pool, progress
        self.task = progress.add_task("bars", total=0)
        self.total = self.done = 0

    def start(self, make: Any, *given: object) -> Future[Any]:
        """One part, worked out as `make(*given)`."""
        self.total += 1
        self.progress.update(self.task, total=self.total)
        future = self.pool.submit(make, *given)
        future.add_done_callback(self._finished)
        return future

    def _finished(self, _: Future[Any]) -> None:
        self.progress.advance(self.task)
        self.done += 1
        if not self.progress.console.is_terminal and self.done % 10 == 0:
            print(f"{self.done} of {self.total} parts", file=sys.stderr, flush=True)


def spans(count: int, parts: int) -> Iterable[tuple[int, int]]:
    """`count` run numbers in so many parts: first and one after the last of each."""
    edges = np.linspace(0, count, min(parts, count) + 1).astype(int).tolist()
    return itertools.pairwise(edges)


def bars(work: Work, part: int) -> list[tuple[str, list[Row]]]:
    """All sections but the costs, which want the machine to themselves."""
    full, few = 1000 // part, max(100 // part, 20)
    quiet = {names: work.start(detect_drift.healthy, names, full) for names in (CONDITIONS, OFFSETS, HARD, WIDE)}
    twin_runs, resolved, thinned = 200 // part, max(20 // part, 4), max(120 // part, 12)
    later: dict[str, list[Future[Any]]] = {
        "full": [work.start(detect_reference.full_resolution, a, b) for a, b in spans(resolved, 4)],
        "twins": [work.start(detect_repeats.twins, a, b) for a, b in spans(twin_runs, 4)],
        "visible": [work.start(detect_reference.needed_gaps, a, b) for a, b in spans(thinned, 6)],
        "rules": [work.start(detect_rules.quiet, a, b) for a, b in spans(full, 6)],
        "matrix": [work.start(detect_causes.matrix, truth, 40 // part) for truth in HEALTHY]
        + [work.start(detect_causes.matrix, truth, few) for truth in FAULTS],
        "faults": [work.start(detect_rules.faults, few)],
        "repeats": [work.start(detect_repeats.repeats, share, count) for share, count in
                    ((1.0, 200 // part), (0.01, 200 // part), (0.001, 20))],
        "order": [work.start(of_signature, name, count) for name, count in
                  (("healthy_restarts", full), ("replays", 300 // part), ("loops", 60 // part),
                   ("identity", 300 // part), ("paired", 100 // part))]
        + [work.start(of_signature, "paired_reruns")],
    }  # fmt: skip
    results = {names: future.result() for names, future in quiet.items()}
    peaks = [peak for _, own in results.values() for peak in own]
    threshold = float(np.percentile(peaks, 99.5))
    drift = [
        *(work.start(detect_drift.lasting, size, few, threshold) for size in (0.01, 0.02, 0.03, 0.05, 0.10, 0.25)),
        work.start(detect_drift.lasting, 0.03, few, threshold, 0.01),
        *(work.start(detect_drift.train_only, size, few, threshold) for size in (0.03, 0.05, 0.10)),
        work.start(detect_drift.incident, few, threshold),
        work.start(detect_drift.shard_growth, few, threshold),
        work.start(detect_drift.improvement, full),
        work.start(detect_drift.memorization, full),
    ]
    beside = Row("moving average over 10,000 steps: threshold", "1 in 200 false alarms", "", f"{threshold:.4f} nats")
    done = {name: [future.result() for future in futures] for name, futures in later.items()}
    return [
        ("Healthy runs", [row for rows, _ in results.values() for row in rows] + [beside]),
        ("Drift and train-only drift", _flat(future.result() for future in drift)),
        ("Other rules of the curve", [*detect_rules.quiet_rows(done["rules"], full), *_flat(done["faults"])]),
        ("Repeated rows", [*_flat(done["repeats"]), *detect_repeats.twin_rows(done["twins"], twin_runs)]),
        ("Batches recognised by the losses", _flat(done["order"])),
        ("A thinned reference", detect_reference.visible_rows(done["visible"])),
        ("Full resolution", detect_reference.full_rows(done["full"], resolved)),
        ("Named causes, whole runs", matrix_rows(done["matrix"])),
    ]


def _flat(parts: Iterable[Sequence[Row]]) -> list[Row]:
    return [row for rows in parts for row in rows]


def matrix_rows(results: Sequence[Matrix]) -> list[Row]:
    """The confusion matrix, one line for each truth: what was named, how often."""
    rows: list[Row] = []
    for truth, said, right, among, rules in results:
        count = sum(said.values())
        named = ", ".join(f"{name} {n}" for name, n in said.most_common())
        if truth in HEALTHY:
            told = ", ".join(f"{rule} {n}" for rule, n in rules.most_common()) or "no rule"
            rows.append(Row(f"healthy: {truth}", "quiet", named, told, said["quiet"] == count))
            continue
        told = f"right {right}, unresolved {among}, wrong {count - right - among} of {count}"
        rows.append(Row(f"fault: {truth}", "≥ 99 % right or unresolved", f"{told}: {named}", "names nothing",
                        right + among >= 0.99 * count))  # fmt: skip
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks detect", description="The alert rules against their bars.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--logs", type=Path, default=os.environ.get(LOGS), help=f"public logs (or {LOGS})")
    options = parser.parse_args(argv)
    out, begun = console(), time.perf_counter()
    tuned = f"{TUNING_SEEDS.start} to {TUNING_SEEDS.stop - 1}"
    out.print(f"report seeds {', '.join(map(str, (*REPORT_SEEDS, *signature.REPORT_SEEDS)))}; tuning used {tuned}\n")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    context = multiprocessing.get_context("spawn")
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    os.environ.update(one)  # two processes on two cores
    with (
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
        ProcessPoolExecutor(PROCESSES, mp_context=context) as pool,
    ):
        sections = bars(Work(pool, progress), 10 if options.quick else 1)
    sections.append(("Cost (CPU time of one process)", detect_reference.cost()))
    if options.logs:
        sections.append(("Public logs", detect_logs.by_index(Path(options.logs))))
    for title, rows in sections:
        show(out, title, rows)
    barred = [row for _, rows in sections for row in rows if row.met is not None]
    missed = [row for row in barred if not row.met]
    for row in missed:
        out.print(f"MISSED: {row.what}: {row.measured} (bar: {row.bar})")
    out.print(f"{len(barred) - len(missed)} of {len(barred)} bars met, {time.perf_counter() - begun:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
