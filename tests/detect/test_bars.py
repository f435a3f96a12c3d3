"""The bars of the detection benchmark, with few runs and the seeds of its report: a bar that was met stays met.

`make bench-detect` does the same at full size (docs/detection.md).
"""

import os
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from benchmarks import (
    detect_causes,
    detect_drift,
    detect_reference,
    detect_repeats,
    detect_rules,
    signature,
)  # fmt: skip
from benchmarks.detect import matrix_rows
from benchmarks.detect_runs import CONDITIONS, HARD, OFFSETS
from benchmarks.detect_scenes import FAULTS, HEALTHY

AVERAGE = 0.021  # nats: the moving average's threshold at 1 false alarm in 200 runs


def of_signature(name: str, *count: int):
    signature.ROWS.clear()
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        getattr(signature, name)(*count)
    return list(signature.ROWS)


BELOW = "drift of 0.003 nats within 200 steps"
BARS = {
    "healthy runs": lambda: detect_drift.healthy(CONDITIONS, 200)[0],
    "healthy runs with an offset": lambda: detect_drift.healthy(OFFSETS, 200)[0],
    "heavy tails": lambda: detect_drift.healthy(HARD, 100)[0],
    "drift of 0.03": lambda: detect_drift.lasting(0.03, 40, AVERAGE),
    "drift of 0.03 beside an offset": lambda: detect_drift.lasting(0.03, 40, AVERAGE, 0.01),
    "drift of 0.25": lambda: detect_drift.lasting(0.25, 20, AVERAGE),
    "train-only drift of 0.05": lambda: detect_drift.train_only(0.05, 40, AVERAGE),
    "the incident": lambda: detect_drift.incident(20, AVERAGE),
    "improvement": lambda: detect_drift.improvement(30),
    "memorization": lambda: detect_drift.memorization(40),
    "other rules, healthy": lambda: detect_rules.quiet_rows([detect_rules.quiet(0, 36)], 36),
    "other rules, faults": lambda: detect_rules.faults(4),
    "repeats, every row": lambda: detect_repeats.repeats(1.0, 40),
    "repeats, 1 %": lambda: detect_repeats.repeats(0.01, 100),
    "natural twins": lambda: detect_repeats.twin_rows([detect_repeats.twins(0, 4)], 4),
    "thinned reference": lambda: detect_reference.visible_rows([detect_reference.needed_gaps(0, 18)]),
    "replays by losses": lambda: of_signature("replays", 15),
    "restarts that replay nothing": lambda: of_signature("healthy_restarts", 30),
    "data order": lambda: of_signature("identity", 15),
    "drift by pairs": lambda: of_signature("paired", 6),
    # 0.003 nats are less than what healthy reruns do there (docs/detection.md, section 9).
    "pairs of real reruns": lambda: [r for r in of_signature("paired_reruns") if not r.what.startswith(BELOW)],
}


@pytest.mark.parametrize("bar", BARS)
def test_a_bar_stays_met(bar):
    rows = BARS[bar]()
    assert any(row.met is not None for row in rows)
    assert [f"{row.what}: {row.measured} (bar: {row.bar})" for row in rows if row.met is False] == []


@pytest.mark.parametrize("truth", [*HEALTHY, *FAULTS])
def test_a_run_of_this_kind_is_called_what_it_is(truth):
    (row,) = matrix_rows([detect_causes.matrix(truth, 2)])
    assert row.met, f"{row.what}: {row.measured} {row.beside}"
