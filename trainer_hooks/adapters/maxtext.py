"""MaxText, unchanged: `python -m trainer_hooks.adapters.maxtext --project P -- <maxtext arguments>`, or `attach()`."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from trainer_hooks.adapters.attached import Attached, around
from trainer_hooks.adapters.launcher import first_of, parse
from trainer_hooks.adapters.maxtext_ramp import ramp

LOGGERS = ("maxtext.common.metric_logger", "MaxText.metric_logger")
LOADERS = ("maxtext.input_pipeline.multihost_dataloading", "MaxText.multihost_dataloading")
CHECKPOINTS = ("maxtext.common.checkpointing", "MaxText.checkpointing")
SETUPS = ("maxtext.utils.train_utils", "MaxText.train_utils")  # older ones do not check how many steps are done
TRAINERS = ("maxtext.trainers.pre_train.train", "MaxText.train")


def attach(**arguments: Any) -> None:
    """Call it on every process before `train.main`. `arguments` are those of `trainer_hooks.start`, with `name`."""
    launch = _Launch(arguments)
    logger, loader = first_of(*LOGGERS).MetricLogger, first_of(*LOADERS).MultiHostDataLoadIterator
    around(logger, "write_setup_info_to_tensorboard", before=launch.begin)
    around(logger, "write_metrics", before=launch.write)  # before, for it may end the process over a NaN
    around(logger, "flush_metrics_and_cleanup", after=launch.end)
    around(loader, "__init__", after=launch.made)
    around(loader, "reset", before=launch.evaluates)
    around(loader, "_get_next_batch_sharded", after=launch.read)
    for modules, function, call in (
        (CHECKPOINTS, "print_save_message", launch.saved),
        (SETUPS, "validate_completed_steps", launch.starts),
    ):
        with contextlib.suppress(ImportError):
            module = first_of(*modules)
            if hasattr(module, function):
                around(module, function, after=call)


class _Launch:
    """What MaxText says from one setup of its training loop to the next: an elastic restart sets up again."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.attached = Attached("maxtext", arguments)
        self.mesh: Any = None
        self.completed: int | None = None
        self.begin(None)

    def starts(self, completed: Any, *_: Any) -> None:
        self.completed = int(completed)  # updates, checked right before the setup is written

    def begin(self, logger: Any, *_: Any) -> None:
        self.attached.finish(failed=True)
        self.config = logger and logger.config
        self.start_step: int | None = None
        self.batches: list[
            Any
        ] = []  # and checkpoints: of before the first record, which tells where an older tree starts
        self.saves: list[int] = []
        self.reads = 0
        completed, self.completed = self.completed, None
        if completed is not None and logger is not None:
            self._open(logger.config, completed)

    def write(self, logger: Any, metrics: Any, step: Any, kind: Any = "train", **named: Any) -> None:
        kind = named.get("metric_type", named.get("is_training", kind))  # older: a bool
        if not metrics or kind == "running_eval":  # numbered by the evaluation's batches, not by steps
            return
        if self.start_step is None:
            self._open(logger.config, int(step))
        self.attached.log(step, {**metrics["scalar"], **metrics.get("scalars", {})}, evaluation=kind in ("eval", False))

    def _open(self, config: Any, step: int) -> None:
        self.start_step, rows = step, config.global_batch_size_to_train_on
        self.attached = Attached("maxtext", self.arguments, accumulation=config.gradient_accumulation_steps)
        self.attached.open(
            name=config.run_name,
            start_step=step,
            config=config.get_keys() if hasattr(config, "get_keys") else vars(config),
            tokens_per_step=ramp(config) or rows * config.max_target_length,
            batch_shape=(rows, config.max_target_length),
            mesh=self.mesh,
        )
        for number, batch in enumerate(self.batches, 1):
            self.attached.call("log_rows", step + number, batch)
        for number in self.saves:
            self.saved(number)
        self.batches.clear()

    def made(self, loader: Any, *_: Any, **__: Any) -> None:
        self.mesh = getattr(loader, "global_mesh", None)

    def saved(self, step: Any, *_: Any, **__: Any) -> None:
        """A save has begun, or ended where saves are not asynchronous: directory `step` holds step + 1 updates."""
        if self.start_step is None:
            self.saves.append(int(step))
        else:
            folder = getattr(self.config, "checkpoint_dir", "")
            self.attached.call("event", int(step) + 1, "checkpoint", f"{str(folder).rstrip('/')}/{int(step)}")

    def evaluates(self, loader: Any) -> None:
        loader.pacenote_evaluates = True  # MaxText begins every evaluation with a reset, and never resets training

    def read(self, loader: Any) -> None:
        """The batch just read is the n-th since the start: inputs, int (rows of this process, length)."""
        padding = getattr(loader, "out_of_data", False)
        if getattr(loader, "pacenote_evaluates", False) or padding or ramp(self.config):  # which cuts batches anew
            return
        self.reads += 1
        rows = loader.last_local_data["inputs"]
        if self.start_step is not None:
            self.attached.call("log_rows", self.start_step + self.reads, rows)
        elif len(self.batches) < 100:
            self.batches.append(rows)

    def end(self, logger: Any, *_: Any) -> None:
        self.attached.finish(failed=sys.exc_info()[0] is not None)  # called in a `finally`


def main(argv: list[str]) -> None:
    """Attaches the hook, then runs MaxText's own training with its own arguments."""
    from absl import app

    options, rest = parse("maxtext", argv)
    attach(**options)
    app.run(first_of(*TRAINERS).main, argv=["maxtext", *rest])


if __name__ == "__main__":
    main(sys.argv[1:])
