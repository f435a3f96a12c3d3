"""A trainer for the crash tests: `crash_trainer.py STEPS` logs, reads eight rows a step, prints each step."""

from __future__ import annotations

import math
import sys
import time

import numpy as np

import trainer_hooks

ROWS = 8


def loss_at(step: int) -> float:
    """A value that is different and not round at every step."""
    return math.sin(step) * 1.1 + 3


def rows_at(step: int) -> np.ndarray:
    """Eight rows of 64 tokens that no other step has."""
    return np.random.default_rng(step).integers(0, 50_000, (ROWS, 64), dtype=np.int32)


def main() -> None:
    steps = int(sys.argv[1])
    run = trainer_hooks.start("crash", project="e2e", stage="stage1", tokens_per_step=512, sample_rows=1)
    for step in range(1, steps + 1):
        run.log(step, {"train/ce_loss": loss_at(step), "optim/learning_rate": 1 / step})
        run.log_rows(step, rows_at(step))
        print(step, time.monotonic(), flush=True)
        time.sleep(0.002)
    report = run.finish(timeout=60)
    print("finished", report.left_in_spool, flush=True)


if __name__ == "__main__":
    main()
