"""Makes the lab's reference again: base checkpoint, reference run, three healthy siblings, and the bundle of them.

What is exact: the same versions on the same machine give the same bits (two recordings here were compared), since
XLA's CPU kernels add in a fixed order for a given number of cores. On another processor, core count or XLA version
float32 sums round differently, and after some hundred updates losses differ in the third decimal; that is far inside
the tolerance, which the siblings measure. The corpus, the rows, their order and the evaluation items are the same
everywhere. Throughput is not recorded: it says nothing about the model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flax import nnx
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from reproduction import lab
from reproduction.lab import corpus, evals
from reproduction.lab.bundle import Measure, Series, write_bundle
from reproduction.loop import Plan, train
from reproduction.olmo3 import checkpoint
from reproduction.olmo3.model import Config, Decoder, Params
from reproduction.optimizer import Schedule

INIT_SEED = 12536  # OLMo 3's
BASE_ORDER_SEED = 1
REFERENCE_SEED = 0
SIBLING_SEEDS = (1, 2, 3)
STEPS = 400
NOT_RECORDED = ("throughput/",)


class Recorder:
    """Stands where a `trainer_hooks` run stands and keeps the scalars: `series[metric]` is a list of (step, value)."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = defaultdict(list)

    def log(self, step: int, metrics: dict[str, Any], /) -> None:
        """Keep the metrics of one step. Device arrays are read here: a recording may wait for the device."""
        for name, value in metrics.items():
            if not name.startswith(NOT_RECORDED):
                self.series[name].append((step, float(value)))

    def log_rows(self, step: int, rows: Any, host: int | None = None, /) -> None:
        """Rows are not part of the bundle: all its runs read the rows that any live run of the lab reads."""

    def log_items(self, step: int, task: str, correct: Any, /) -> None:
        """Per-item results are not part of the bundle; their mean, the accuracy, is."""


def record(
    out: Path,
    measure: Measure,
    *,
    base: Path = lab.BASE,
    keep_base: bool = False,
    base_steps: int = lab.BASE_STEPS,
    steps: int = STEPS,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Record the lab's reference into the bundle folder `out`; about six minutes on two cores.

    Args:
        measure: gives the tolerance of one metric from its values in the reference and its siblings.
        base: where the base checkpoint is written, or read with `keep_base`.
        keep_base: use the base checkpoint that is there instead of training it again.
        base_steps, steps: updates of the base checkpoint and of each run.

    Raises:
        InterruptedError: `should_stop()` said so; nothing is written then but the base checkpoint, if it was complete.
        FileNotFoundError, ValueError: the base checkpoint to keep is missing or not one.
    """
    texts = corpus.load()
    heldout = evals.build(texts)
    rows = lab.run_rows(texts, steps * lab.ROWS_PER_STEP)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[loss]}")) as bars:

        def run(title: str, plan: Plan, *arguments: Any) -> tuple[Params, dict[str, Series]]:
            bar = bars.add_task(title, total=plan.steps, loss="")
            recorder = Recorder()
            params, made = train(
                recorder,
                plan,
                *arguments,
                on_progress=lambda p: bars.update(bar, completed=p.step, loss=f"{p.loss:.3f} nats"),
                should_stop=should_stop,
            )
            if made < plan.steps:
                raise InterruptedError(f"stopped while recording the {title} at step {made} of {plan.steps}")
            return params, dict(recorder.series)

        if not keep_base:
            config = Config(vocab_size=corpus.VOCAB_SIZE)
            graph, params = nnx.split(Decoder(config, nnx.Rngs(INIT_SEED)), nnx.Param)
            constant = Schedule(peak=3e-3, kind="constant")
            plan = Plan(steps=base_steps, seed=BASE_ORDER_SEED, eval_every=0, schedule=constant)
            params, _ = run("base checkpoint", plan, lab.base_rows(texts), graph, params)
            checkpoint.save(base, params, config)
        graph, params, config = checkpoint.load(base)
        evaluate = evals.Evaluator(graph, heldout)
        plans = {"reference": Plan(steps=steps, seed=REFERENCE_SEED)}
        plans |= {f"order-seed-{seed}": Plan(steps=steps, seed=seed) for seed in SIBLING_SEEDS}
        recorded = {title: run(title, plan, rows, graph, params, evaluate)[1] for title, plan in plans.items()}
    reference = recorded.pop("reference")
    write_bundle(out, plans["reference"], config, heldout, reference, recorded, measure, base)
