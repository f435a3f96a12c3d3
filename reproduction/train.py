"""Train the lab's model live: `python -m reproduction.train --sharding double --run demo`.

Reports through `trainer_hooks`, as any trainer would: `PACENOTE_URL` and the other variables say where to. SIGINT and
SIGTERM end the training between two steps, after what was logged has been sent; the exit status is then 128 + signal.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

STAGE = "stage1"


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a whole number of 1 or more")
    return number


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.train", description="Train the lab's model live.")
    parser.add_argument("--sharding", choices=["correct", "double"], default="correct", help="how rows reach hosts")
    parser.add_argument("--steps", type=_count, default=400)
    parser.add_argument("--rows", type=int, default=3200, help="rows in the data set; 8 are read per step")
    parser.add_argument("--hosts", type=_count, default=4, help="data shards; this process plays all of them")
    parser.add_argument("--seed", type=int, default=17, help="of the data order")
    parser.add_argument("--eval-every", type=_count, default=25, metavar="STEPS")
    parser.add_argument("--project", default="lab")
    parser.add_argument("--run", help="the run's name (default: SHARDING-seedSEED)")
    parser.add_argument("--reference", default="lab")
    parser.add_argument("--base", type=Path, help="checkpoint to start from (default: the shipped one)")
    parser.add_argument("--progress", choices=["text", "json"], default="text", help="what is printed as it goes")
    return parser.parse_args(argv)


class Stop:
    """Turns SIGINT and SIGTERM into a flag that the loop reads between steps. A second one takes effect at once."""

    def __init__(self) -> None:
        self.signal: int | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(number, signal.SIG_DFL)

    def __call__(self) -> bool:
        return self.signal is not None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one training; 0, or 128 + the signal that ended it early, or 2 for input that cannot be used."""
    arguments = parse(argv)
    stop = Stop()  # before JAX and Grain are imported, which takes seconds
    try:
        return run(arguments, stop)
    except (FileNotFoundError, ValueError) as error:
        print(f"reproduction.train: {error}", file=sys.stderr)
        return 2


def run(arguments: argparse.Namespace, stop: Stop) -> int:
    """Load what is shipped, start the hook, train, finish the hook."""
    import trainer_hooks
    from reproduction import lab
    from reproduction.data import loaders
    from reproduction.lab import corpus, evals
    from reproduction.loop import Plan, Progress, train
    from reproduction.olmo3 import checkpoint

    plan = Plan(
        steps=arguments.steps,
        hosts=arguments.hosts,
        seed=arguments.seed,
        sharding=arguments.sharding,
        eval_every=arguments.eval_every,
    )
    base = arguments.base or lab.BASE
    graph, params, config = checkpoint.load(base)
    texts = corpus.load()
    rows = lab.run_rows(texts, arguments.rows)
    loaders.check(len(rows), hosts=plan.hosts, batch=plan.batch, sharding=plan.sharding)
    heldout = evals.build(texts)

    def report(progress: Progress) -> None:
        if arguments.progress == "json":
            print(json.dumps(asdict(progress)), flush=True)
        elif progress.step % 50 == 0 or progress.step == progress.steps:
            print(f"step {progress.step:4d} of {progress.steps}   train loss {progress.loss:.4f}", flush=True)

    with trainer_hooks.start(
        arguments.run or f"{plan.sharding}-seed{plan.seed}",
        project=arguments.project,
        reference=arguments.reference,
        stage=STAGE,
        tokens_per_step=plan.batch * rows.shape[1],
        config=describe(asdict(config), asdict(plan), base, heldout.heldout_id),
        data={"rows": len(rows), "epochs": max(1.0, plan.steps * plan.batch / len(rows))},
        sample_rows=1,
    ) as hook:
        _, made = train(hook, plan, rows, graph, params, evals.Evaluator(graph, heldout), report, stop)
        finished = hook.finish(timeout=30.0)
    last = {"updates": made, "sent": finished.sent, "left_in_spool": finished.left_in_spool}
    if arguments.progress == "json":
        print(json.dumps(last), flush=True)
    else:
        print(f"{made} updates made; {finished.sent} records sent, {finished.left_in_spool} left in the spool")
    return 0 if stop.signal is None else 128 + stop.signal


def describe(model: dict[str, Any], plan: dict[str, Any], base: Path, heldout_id: str) -> dict[str, Any]:
    """The configuration that goes with the run. How the rows are shared out is what the trainer *believes*: once."""
    data = {"shards": plan["hosts"], "rows_per_step": plan["batch"], "order_seed": plan["seed"]}
    training = {"steps": plan["steps"], "eval_every": plan["eval_every"], "initial_checkpoint": base.name}
    return {
        "model": model,
        "data": data,
        "schedule": plan["schedule"],
        "training": training,
        "heldout": {"lab": heldout_id},
    }


if __name__ == "__main__":
    sys.exit(main())
