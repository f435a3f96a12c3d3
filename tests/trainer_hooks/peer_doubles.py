"""Doubles of the classes that adapters are subclasses of, for where the real ones are not installed.

tests/peers/adapters holds the adapters to the real ones. What each double stands for, as read there:

- clu (google/CommonLoopUtils 04ad2f9e, clu/metric_writers/interface.py: MetricWriter): abstract write_* methods, flush,
  close; write_scalars(step, scalars).
- Levanter (marin-community/levanter 9263f81e, src/levanter/tracker/tracker.py: Tracker, TrackerConfig): log(metrics, *,
  step, commit), log_hyperparameters, log_summary, log_artifact, finish; draccus' register_subclass(name); init(run_id).
  src/levanter/callbacks/_core.py: StepInfo.step = updates − 1, for evaluations too.
- axlearn (apple/axlearn 34aed43c, axlearn/common/summary_writer.py: BaseWriter): __call__(step, values) with nested
  values, Summary.value(); log_config, log_checkpoint(ckpt_dir, *, state, action, step), log_average_step_time.
  axlearn/common/trainer.py: the trainer writes {"num_model_params"} at step 0 whatever step it restarts from.
- kauldron (google-research/kauldron c9b3ec86, kauldron/train/metric_writer.py: WriterBase, NoopWriter): frozen
  dataclass with `collection`, replaced for each evaluator; write_scalars(step, scalars).
- OLMo-core (allenai/OLMo-core fa6c5014, src/olmo_core/train/callbacks/callback.py: Callback): hooks in the order of
  train/trainer.py (fit, _fit_epoch, _check_and_pass_on_metrics).
- transformers 5.24 (trainer_callback.py: TrainerCallback): on_train_begin, on_log(args, state, control, logs),
  on_save, on_train_end.
"""

from __future__ import annotations

import abc
import dataclasses
import sys
import types
from typing import Any, ClassVar

import pytest


class MetricWriter(abc.ABC):
    """clu's."""

    @abc.abstractmethod
    def write_scalars(self, step: int, scalars: Any) -> None: ...

    @abc.abstractmethod
    def write_summaries(self, step: int, values: Any, metadata: Any = None) -> None: ...

    @abc.abstractmethod
    def write_images(self, step: int, images: Any) -> None: ...

    @abc.abstractmethod
    def write_videos(self, step: int, videos: Any) -> None: ...

    @abc.abstractmethod
    def write_audios(self, step: int, audios: Any, *, sample_rate: int) -> None: ...

    @abc.abstractmethod
    def write_texts(self, step: int, texts: Any) -> None: ...

    @abc.abstractmethod
    def write_histograms(self, step: int, arrays: Any, num_buckets: Any = None) -> None: ...

    @abc.abstractmethod
    def write_hparams(self, hparams: Any) -> None: ...

    @abc.abstractmethod
    def flush(self) -> None: ...

    @abc.abstractmethod
    def close(self) -> None: ...


class Tracker(abc.ABC):
    name: str

    @abc.abstractmethod
    def log_hyperparameters(self, hparams: Any) -> None: ...

    @abc.abstractmethod
    def log(self, metrics: Any, *, step: int | None, commit: bool | None = None) -> None: ...

    @abc.abstractmethod
    def log_summary(self, metrics: Any) -> None: ...

    @abc.abstractmethod
    def log_artifact(self, artifact_path: Any, *, name: str | None = None, type: str | None = None) -> None: ...

    @abc.abstractmethod
    def finish(self) -> None: ...


class TrackerConfig(abc.ABC):
    choices: ClassVar[dict[str, type]] = {}

    @classmethod
    def register_subclass(cls, name: str) -> Any:
        return lambda subclass: cls.choices.setdefault(name, subclass)

    @abc.abstractmethod
    def init(self, run_id: str | None) -> Tracker: ...


class Summary:
    """axlearn's; `value` is what is logged."""

    def __init__(self, logged: Any) -> None:
        self.logged = logged

    def value(self) -> Any:
        return self.logged


class BaseWriter:
    class Config:
        dir: str = ""

        def set(self, **fields: Any) -> Any:
            for name, value in fields.items():
                setattr(self, name, value)
            return self

        def debug_string(self) -> str:
            return "config"

    @classmethod
    def default_config(cls) -> Any:
        return cls.Config()

    def __init__(self, cfg: Any, *, parent: Any) -> None:
        self.config = cfg

    def log_average_step_time(self, step: int, step_times: Any) -> None:
        if step % 100 == 0 and step_times:
            self(step, {"average_step_time": sum(step_times) / len(step_times)})


@dataclasses.dataclass(frozen=True, eq=True, kw_only=True)
class NoopWriter:
    """kauldron's."""

    workdir: str = ""
    collection: str = "$not_set$"

    def write_scalars(self, step: int, scalars: Any) -> None: ...

    def write_step_metrics(self, *, step: int, aux: Any) -> None: ...


class WriterBase:
    def write_step_metrics(self, *, step: int, aux: Any) -> None:
        self.write_scalars(step=step, scalars=aux)


class Callback:
    """OLMo-core's; `trainer` is set when it is attached."""

    trainer: Any = None

    @property
    def step(self) -> int:
        return self.trainer.global_step


class TrainerCallback:
    """transformers'."""


def install(monkeypatch: pytest.MonkeyPatch, **modules: dict[str, Any]) -> None:
    """Puts modules under their names (dots written as double underscores), and the adapters of them out of mind."""
    for name, attributes in modules.items():
        path = name.split("__")
        for end in range(1, len(path) + 1):
            part = ".".join(path[:end])
            if end == len(path) or part not in sys.modules:
                monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
            if end > 1:
                setattr(sys.modules[".".join(path[: end - 1])], path[end - 1], sys.modules[part])
        for attribute, value in attributes.items():
            setattr(sys.modules[".".join(path)], attribute, value)
    for adapter in ("clu", "levanter", "axlearn", "kauldron", "olmo_core", "transformers"):
        monkeypatch.delitem(sys.modules, f"trainer_hooks.adapters.{adapter}", raising=False)
