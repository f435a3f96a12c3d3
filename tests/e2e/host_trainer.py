"""One process of a training job: `host_trainer.py COORDINATOR PROCESSES RANK START_STEP STEPS`, each step printed.

Every step all processes together read the same sixteen rows, each its share, and reduce a loss over them.
"""

from __future__ import annotations

import sys
import time

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import trainer_hooks

ROWS = 16
LENGTH = 64
CHECKPOINT = 100  # the only step that is saved


def rows_at(step: int) -> np.ndarray:
    """Sixteen rows that no other step has."""
    return np.random.default_rng(step).integers(0, 50_000, (ROWS, LENGTH), dtype=np.int32)


def loss_at(step: int) -> float:
    """What the reduction gives: exact in float32, as whole numbers below 2**24 are."""
    return float(rows_at(step)[:, 0].sum())


def main() -> None:
    coordinator, processes, rank, start, steps = sys.argv[1], *map(int, sys.argv[2:])
    jax.distributed.initialize(coordinator, processes, rank)
    sharded, replicated = (
        NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec(*axes)) for axes in (("data",), ())
    )
    total = jax.jit(lambda rows: rows[:, 0].astype("float32").sum(), out_shardings=replicated)
    run = trainer_hooks.start(
        "hosts",
        project="e2e",
        reference="lab",  # what its losses are far from; the rows are judged all the same
        tokens_per_step=ROWS * LENGTH,
        start_step=start,
        sample_rows=1,
        strict=True,
    )
    with run:
        for step in range(start + 1, steps + 1):
            mine = rows_at(step)[rank::processes]
            loss = total(jax.make_array_from_process_local_data(sharded, mine))
            run.log(step, {"train/ce_loss": loss})
            run.log_rows(step, mine)
            if step == CHECKPOINT:
                run.event(step, "checkpoint", f"step_{step}")
            loss.block_until_ready()
            print(step, time.monotonic(), flush=True)
            time.sleep(0.004)
    print("finished", run.finish().left_in_spool, flush=True)


if __name__ == "__main__":
    main()
