"""MaxText, unchanged: `python -m trainer_hooks.adapters.maxtext --project P -- <maxtext arguments>`, or `attach()`."""

from __future__ import annotations

import sys
from typing import Any

from trainer_hooks.adapters.attached import Attached, around
from trainer_hooks.adapters.launcher import first_of, parse
from trainer_hooks.adapters.maxtext_ramp import ramp

LOGGERS = ("maxtext.common.metric_logger", "MaxText.metric_logger")
LOADERS = ("maxtext.input_pipeline.multihost_dataloading", "MaxText.multihost_dataloading")
TRAINERS = ("maxtext.trainers.pre_train.train", "MaxText.train")


def attach(**arguments: Any) -> None:
    """Call it on every process before `train.main`. `arguments` are those of `trainer_hooks.start`, with `name`."""
    launch = _Launch(arguments)
    logger, loader = first_of(*LOGGERS).MetricLogger, first_of(*LOADERS).MultiHostDataLoadIterator
    around(logger, "write_setup_info_to_tensorboard", before=launch.begin)
    around(logger, "write_metrics", before=launch.write)  # before, for it may end the process over a NaN
    around(logger, "flush_metrics_and_cleanup", after=launch.end)
    around(loader, "reset", before=launch.evaluates)
    around(loader, "_get_next_batch_sharded", after=launch.read)


class _Launch:
    """What MaxText says from one setup of its training loop to the next: an elastic restart sets up again."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.attached = Attached("maxtext", arguments)
        self.begin(None)

    def begin(self, logger: Any, *_: Any) -> None:
        self.attached.finish(failed=True)
        self.config = logger and logger.config
        self.start_step: int | None = None  # the setup does not tell: it is the step of the first record
        self.batches: list[Any] = []  # read before that
        self.reads, self.mesh = 0, None

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
        self.batches.clear()

    def evaluates(self, loader: Any) -> None:
        loader.pacenote_evaluates = True  # MaxText begins every evaluation with a reset, and never resets training

    def read(self, loader: Any) -> None:
        """The batch just read is the n-th since the start: inputs, int (rows of this process, length)."""
        padding = getattr(loader, "out_of_data", False)
        if getattr(loader, "pacenote_evaluates", False) or padding or ramp(self.config):  # which cuts batches anew
            return
        self.reads, self.mesh = self.reads + 1, getattr(loader, "global_mesh", None)
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
