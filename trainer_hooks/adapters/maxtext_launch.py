"""What MaxText says from one setup of its training loop to the next: an elastic restart sets up again."""

from __future__ import annotations

import sys
from typing import Any

from trainer_hooks.adapters.attached import Attached
from trainer_hooks.adapters.maxtext_ramp import ramp


class Launch:
    """Methods to be called around MaxText's own, with the same arguments. `arguments` are those of `start`."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.attached = Attached("maxtext", arguments)
        self.config: Any = None
        self.mesh: Any = None
        self.completed: int | None = None
        self.reads = 0

    def made(self, loader: Any, *_: Any, **__: Any) -> None:
        """A loader, of training or of an evaluation."""
        self.mesh = getattr(loader, "global_mesh", None)

    def starts(self, completed: Any, *_: Any) -> None:
        """So many updates are done; checked right before the setup is written, by trees that do."""
        self.completed = int(completed)

    def begin(self, logger: Any, *_: Any) -> None:
        """The setup is written: what comes now belongs to a new segment."""
        self.attached.finish(failed=True)
        self.config, self.reads = logger.config, 0
        completed, self.completed = self.completed, None
        self.attached = Attached("maxtext", self.arguments, accumulation=self.config.gradient_accumulation_steps)
        if completed is not None:
            self._open(completed)

    def _open(self, step: int) -> None:
        config = self.config
        rows, length = config.global_batch_size_to_train_on, config.max_target_length
        self.attached.open(
            name=config.run_name,
            start_step=step,
            config=config.get_keys() if hasattr(config, "get_keys") else vars(config),
            tokens_per_step=ramp(config) or rows * length,
            batch_shape=(rows, length),
            mesh=self.mesh,
        )

    def write(self, logger: Any, metrics: Any, step: Any, kind: Any = "train", **named: Any) -> None:
        """A record; the first tells where an older tree starts."""
        kind = named.get("metric_type", named.get("is_training", kind))  # older: a bool
        if not metrics or kind == "running_eval":  # numbered by the evaluation's batches, not by steps
            return
        if self.config is None:
            self.begin(logger)
        if self.attached.run is None:
            self._open(int(step))
        self.attached.log(step, {**metrics["scalar"], **metrics.get("scalars", {})}, evaluation=kind in ("eval", False))

    def evaluates(self, loader: Any) -> None:
        """MaxText begins every evaluation with a reset of its loader, and never resets that of training."""
        loader.pacenote_evaluates = True

    def read(self, loader: Any) -> None:
        """The batch just read is the n-th since the start: inputs, int (rows of this process, length)."""
        padding = getattr(loader, "out_of_data", False)
        if getattr(loader, "pacenote_evaluates", False) or padding or ramp(self.config):  # which cuts batches anew
            return
        self.reads += 1
        self.attached.call("log_rows", self.reads, loader.last_local_data["inputs"], since_start=True)

    def saved(self, step: Any, *_: Any, **__: Any) -> None:
        """A save has begun, or ended where saves are not asynchronous: directory `step` holds step + 1 updates."""
        folder = str(getattr(self.config, "checkpoint_dir", "")).rstrip("/")
        self.attached.call("event", int(step) + 1, "checkpoint", f"{folder}/{int(step)}")

    def end(self, logger: Any, *_: Any) -> None:
        """Called in a `finally`."""
        self.attached.finish(failed=sys.exc_info()[0] is not None)
