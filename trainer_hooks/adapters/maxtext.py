"""MaxText, unchanged: `python -m trainer_hooks.adapters.maxtext --project P -- <maxtext arguments>`, or `attach()`."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from trainer_hooks.adapters.attached import around
from trainer_hooks.adapters.launcher import first_of, parse
from trainer_hooks.adapters.maxtext_launch import Launch

LOGGERS = ("maxtext.common.metric_logger", "MaxText.metric_logger")
LOADERS = ("maxtext.input_pipeline.multihost_dataloading", "MaxText.multihost_dataloading")
CHECKPOINTS = ("maxtext.common.checkpointing", "MaxText.checkpointing")
SETUPS = ("maxtext.utils.train_utils", "MaxText.train_utils")  # older ones do not check how many steps are done
TRAINERS = ("maxtext.trainers.pre_train.train", "MaxText.train")


def attach(**arguments: Any) -> None:
    """Call it on every process before `train.main`. `arguments` are those of `trainer_hooks.start`, with `name`."""
    launch = Launch(arguments)
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


def main(argv: list[str]) -> None:
    """Attaches the hook, then runs MaxText's own training with its own arguments."""
    from absl import app

    options, rest = parse("maxtext", argv)
    attach(**options)
    app.run(first_of(*TRAINERS).main, argv=["maxtext", *rest])


if __name__ == "__main__":
    main(sys.argv[1:])
