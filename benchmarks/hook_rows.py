"""What fingerprints of rows cost one host: CPU per step of 8 rows × 8,192 tokens, by part, and the time of `log_rows`.

Everything is measured on one thread by its CPU clock. The batches take turns so that none stays in the cache, as a
loader's do not. The held-out sets hold two million tokens.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

STEP_SECONDS = 0.76
SHAPE = (8, 8192)
SAMPLE = 1024
BATCHES = 64  # 16 MB
STEPS = 256
ROUNDS = 5  # the lowest counts: what the machine does besides is no cost of the hook
HELDOUT = (500, 4096)
MOST_SHARE = 0.001  # of a step
MOST_CALL_MS = 0.1


def batches() -> list[NDArray[np.int32]]:
    """Rows of one host, int32 (8, 8192), for some steps."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, 100_352, SHAPE, np.int32) for _ in range(BATCHES)]


def _cpu_ms(call: Callable[[int], object]) -> float:
    """CPU milliseconds of this thread per call, the best of some rounds; `call` gets the step."""
    times: list[float] = []
    for _ in range(ROUNDS):
        started = time.thread_time()
        for step in range(STEPS):
            call(step)
        times.append((time.thread_time() - started) / STEPS * 1000)
    return min(times)


def _parts() -> dict[str, float]:
    """CPU ms per step of each part, and of all of it as the writing thread does it."""
    from trainer_hooks.fingerprints import Fingerprints, row_hashes, snapshot
    from trainer_hooks.heldout_windows import HeldoutWindows, windows_of
    from trainer_hooks.windows import Rolling, chosen

    given = batches()
    copies = [snapshot(batch) for batch in given]
    heldout = HeldoutWindows()
    heldout.add("c4", windows_of(np.random.default_rng(1).integers(0, 100_352, HELDOUT)))
    rolling = Rolling()
    hashes = [rolling(copy.reshape(-1)).copy() for copy in copies]
    hook = Fingerprints(SAMPLE, heldout)

    def everything(step: int) -> None:
        hook.add(step, copies[step % BATCHES], 0)
        if step % 8 == 7:
            hook.due(step * STEP_SECONDS)

    return {
        "copy, on the calling thread": _cpu_ms(lambda step: snapshot(given[step % BATCHES])),
        "rows: BLAKE2b": _cpu_ms(lambda step: row_hashes(copies[step % BATCHES])),
        "windows: rolling hash": _cpu_ms(lambda step: rolling(copies[step % BATCHES].reshape(-1))),
        "windows: choice": _cpu_ms(
            lambda step: chosen(copies[step % BATCHES], hashes[step % BATCHES], SAMPLE * SHAPE[1])
        ),
        "held-out: look": _cpu_ms(lambda step: heldout.met(copies[step % BATCHES], hashes[step % BATCHES])),
        "all in the background": _cpu_ms(everything),
    }


def _calls() -> tuple[float, float, float, float]:
    """Milliseconds of `log_rows` in a live run that only spools: wall, mean and p99, and CPU; and of a bare copy of the
    same memory at the same pace, the least that keeps the rows."""
    import trainer_hooks

    given = batches()
    times: list[float] = []
    floor: list[float] = []
    cpu = 0.0
    kept = [np.empty(SHAPE, np.int32) for _ in range(BATCHES)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(PACENOTE_SPOOL_DIR=folder, PACENOTE_MODE="offline")
        with trainer_hooks.start("rows", project="benchmark", strict=True) as run:
            for step in range(200):
                started, own = time.perf_counter(), time.thread_time()
                run.log_rows(step, given[step % BATCHES])
                cpu += time.thread_time() - own
                times.append((time.perf_counter() - started) * 1000)
                time.sleep(0.01)
                started = time.perf_counter()
                np.copyto(kept[step % BATCHES], given[(step + 1) % BATCHES])
                floor.append((time.perf_counter() - started) * 1000)
                time.sleep(0.01)
    return (
        float(np.mean(times[10:])),
        float(np.percentile(times[10:], 99)),
        cpu / 200 * 1000,
        float(np.mean(floor[10:])),
    )


def table() -> tuple[Table, dict[str, bool]]:
    """The table, and which aims are met."""
    parts = _parts()
    mean, p99, cpu, floor = _calls()
    shown = Table(
        title=f"fingerprints of {SHAPE[0]} rows × {SHAPE[1]:,} tokens, CPU per step of {STEP_SECONDS} s",
        title_justify="left",
    )
    for column in ("part", "CPU ms", "% of a step"):
        shown.add_column(column, justify="left" if column == "part" else "right")
    total = parts["copy, on the calling thread"] + parts["all in the background"]
    for part, ms in {**parts, "copy and background": total}.items():
        shown.add_row(part, f"{ms:.3f}", f"{ms / STEP_SECONDS / 10:.4f}")
    shown.add_row("log_rows, wall: mean", f"{mean:.3f}", "")
    shown.add_row("log_rows, wall: p99", f"{p99:.3f}", "")
    shown.add_row("log_rows, CPU", f"{cpu:.3f}", "")
    shown.add_row("a bare copy of the rows, wall: mean", f"{floor:.3f}", "")
    shown.add_row("log_rows, times the bare copy", f"{mean / floor:.2f}", "")
    limit = MOST_SHARE * STEP_SECONDS * 1000
    return shown, {
        f"fingerprints ≤ {limit:.2f} ms CPU a step": total <= limit,
        f"log_rows ≤ {MOST_CALL_MS} ms": mean <= MOST_CALL_MS,
    }
