"""A double of MaxText's metric logger, loader and training loop: the parts the adapter touches, and their order.

The contract, read at AI-Hypercomputer/maxtext e591f30cbbf217ed67ef71263ec0538239f9c3b8:
- src/maxtext/common/metric_logger.py: MetricLogger.write_metrics(metrics, step, metric_type="train"), called by
  buffer_and_write_metrics one call late, with "running_eval" numbered by the evaluation's batches, and by
  _finalize_eval_metrics with "eval" at the train step, before the train record of that step;
  write_setup_info_to_tensorboard(params) once a setup; flush_metrics_and_cleanup() writes what is buffered. A NaN loss
  ends the process in write_metrics.
- src/maxtext/input_pipeline/multihost_dataloading.py: MultiHostDataLoadIterator.__next__ calls _get_next_batch_sharded,
  which leaves the NumPy batch in last_local_data; __iter__ and evaluations call reset(); after the data's end,
  out_of_data is set and padding is given out.
- src/maxtext/trainers/pre_train/train.py: train_loop makes the logger and calls write_setup_info_to_tensorboard, then
  loads a batch, steps, evaluates and buffers; flush_metrics_and_cleanup stands in a `finally`.
  Before the setup is written, train_utils.validate_completed_steps(start_step, config.steps) is called (not in older
  trees); after each step checkpointing.maybe_save_checkpoint, whose save_checkpoint saves, and which then calls
  print_save_message(step, async_checkpointing). All are looked up in their modules at the call.
- src/maxtext/utils/gradient_accumulation.py: aux is summed over microbatches, so learning/z_loss is too large.
Older trees (f2afa8658^, src/MaxText): module MaxText.metric_logger, write_metrics(metrics, step, is_training=True).
"""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np


class Config:
    """What the adapter reads of pyconfig.HyperParameters."""

    run_name = "maxtext-run"
    checkpoint_dir = "gs://bucket/maxtext-run/checkpoints/"
    max_target_length = 16
    global_batch_size_to_train_on = 4
    gradient_accumulation_steps = 1
    enable_rampup_batch_size = False
    abort_on_nan_loss = True

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def get_keys(self) -> dict[str, Any]:
        return {"run_name": self.run_name, "max_target_length": self.max_target_length, **self.__dict__}


def make_logger() -> type:
    class MetricLogger:
        def __init__(self, config: Config) -> None:
            self.config = config
            self.buffered: list[Any] = []
            self.pending_evals = 0
            self.written: list[tuple[int, str]] = []

        def write_metrics(self, metrics: Any, step: int, metric_type: str = "train") -> None:
            if metrics:
                self.written.append((step, metric_type))
                if metric_type == "train" and np.isnan(metrics["scalar"]["learning/loss"]):
                    sys.exit(1)

        def write_setup_info_to_tensorboard(self, params: Any) -> None:
            pass

        def buffer_and_write_metrics(self, metrics: Any, step: int, is_training: bool = True) -> None:
            if self.buffered:
                self._flush(*self.buffered.pop(0))
            if is_training:
                self.buffered.append(("train", step, metrics))
                if self.pending_evals:
                    self.write_metrics(self.evaluation, step, metric_type="eval")
                    self.pending_evals = 0
            else:
                self.pending_evals += 1
                self.evaluation = {"scalar": dict(metrics["scalar"])}
                self.buffered.append(("eval", step, metrics))

        def _flush(self, kind: str, step: int, metrics: Any) -> None:
            self.write_metrics(metrics, step, "running_eval" if kind == "eval" else "train")

        def flush_metrics_and_cleanup(self) -> None:
            for entry in self.buffered:
                self._flush(*entry)
            self.buffered = []

    return MetricLogger


def make_old_logger() -> type:
    """The logger of older trees, whose write_metrics takes is_training."""

    class MetricLogger(make_logger()):
        def write_metrics(self, metrics: Any, step: int, is_training: bool = True) -> None:
            self.written.append((step, "train" if is_training else "eval"))

        def _flush(self, kind: str, step: int, metrics: Any) -> None:
            if kind == "train":
                self.write_metrics(metrics, step)

        def buffer_and_write_metrics(self, metrics: Any, step: int, is_training: bool = True) -> None:
            if is_training:
                self.write_metrics(metrics, step)
            else:
                self.write_metrics(metrics, self.train_step, is_training=False)

    return MetricLogger


def make_loader() -> type:
    class MultiHostDataLoadIterator:
        def __init__(self, dataloader: Any, global_mesh: Any, generate_padding_batch: bool = False) -> None:
            self.global_mesh = global_mesh
            self.dataloader = dataloader
            self.generate_padding_batch = generate_padding_batch
            self.reset_without_hook()

        def reset_without_hook(self) -> None:
            self.local_iterator = iter(self.dataloader)
            self.out_of_data = False
            self.last_local_data = None

        def reset(self) -> None:
            self.reset_without_hook()

        def __iter__(self) -> Any:
            self.reset()
            return self

        def __next__(self) -> Any:
            return self._get_next_batch_sharded()

        def _get_next_batch_sharded(self) -> Any:
            if self.out_of_data and self.generate_padding_batch:
                return {name: np.zeros_like(value) for name, value in self.last_local_data.items()}
            try:
                data = next(self.local_iterator)
            except StopIteration:
                if not self.generate_padding_batch:
                    raise
                self.out_of_data = True
                data = {name: np.zeros_like(value) for name, value in self.last_local_data.items()}
            self.last_local_data = data
            return data

    return MultiHostDataLoadIterator


def install(monkeypatch: Any, old: bool = False) -> tuple[type, type]:
    """Puts the double where the adapter looks for MaxText; (MetricLogger, MultiHostDataLoadIterator)."""
    logger, loader = make_old_logger() if old else make_logger(), make_loader()
    new_names = ("maxtext.common.metric_logger", "maxtext.input_pipeline.multihost_dataloading")
    old_names = ("MaxText.metric_logger", "MaxText.multihost_dataloading")
    for name, attribute in zip(old_names if old else new_names, (logger, loader), strict=True):
        pieces = name.split(".")
        for end in range(1, len(pieces) + 1):
            part = ".".join(pieces[:end])
            if part not in sys.modules:
                monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
        setattr(sys.modules[name], attribute.__name__, attribute)
    checkpointing = "MaxText.checkpointing" if old else "maxtext.common.checkpointing"
    monkeypatch.setitem(sys.modules, checkpointing, types.ModuleType(checkpointing))
    sys.modules[checkpointing].print_save_message = lambda step, async_checkpointing: None
    if not old:
        for part in ("maxtext.utils", "maxtext.utils.train_utils"):
            monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
        sys.modules[part].validate_completed_steps = lambda completed, steps: None
    return logger, loader


def _told(modules: tuple[str, str], function: str, *arguments: Any) -> None:
    """Calls a function of whichever tree is installed."""
    for name in modules:
        if name in sys.modules:
            getattr(sys.modules[name], function)(*arguments)


def metrics(step: int, z: float = 0.25, accumulation: int = 1) -> dict[str, Any]:
    """What train_step returns and record_train_metrics adds: CE 3 + step / 100, z-loss `z`."""
    return {
        "scalar": {
            "learning/loss": 3 + step / 100 + z,
            "learning/lm_loss": 3 + step / 100 + z,
            "learning/z_loss": z * accumulation,
            "learning/total_weights": np.int32(60),
            "learning/raw_grad_norm": 1.5,
            "learning/grad_norm": 1.0,
            "learning/current_learning_rate": 1e-3,
            "optim/step_skipped": 0.0,
            "perf/step_time_seconds": 0.5,
            "perf/per_device_tokens_per_sec": 128.0,
            "perf/per_device_tflops": 12.0,
        },
        "scalars": {},
    }


def batches(seed: int, count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [{"inputs": rng.integers(0, 1000, (4, 16), dtype=np.int32)} for _ in range(count)]


def train(
    logger: Any,
    training: Any,
    evaluation: Any,
    start: int,
    stop: int,
    every: int = 2,
    accumulation: int = 1,
    replaced: dict[int, Any] | None = None,
    save_every: int = 0,
) -> None:
    """train_loop, for steps start … stop − 1; `replaced` are the metrics of some of them."""
    _told(("maxtext.utils.train_utils",), "validate_completed_steps", start, stop)
    logger.write_setup_info_to_tensorboard(None)
    step = start
    try:
        while step < stop:
            next(training)
            if save_every and step % save_every == 0:
                _told(("maxtext.common.checkpointing", "MaxText.checkpointing"), "print_save_message", step, True)
            if every and step % every == 0:
                evaluation.reset()
                logger.train_step = step
                for number, _ in enumerate(evaluation):
                    scalars = {"eval/avg_loss": 3.5, "eval/avg_z_loss": 0.5, "eval/avg_perplexity": float(np.exp(3.5))}
                    logger.buffer_and_write_metrics({"scalar": scalars}, number, is_training=False)
            logger.buffer_and_write_metrics(
                (replaced or {}).get(step) or metrics(step, accumulation=accumulation), step
            )
            step += 1
    finally:
        logger.flush_metrics_and_cleanup()
