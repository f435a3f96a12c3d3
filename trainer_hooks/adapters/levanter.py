"""Levanter and Marin: a tracker with its config. Importing this module registers it as `pacenote`.

trainer:
  tracker:
    - type: wandb
    - {type: pacenote, project: olmo3-7b, reference: olmo3-7b, tokens_per_step: 4194304}
"""
# pyright: basic, reportMissingImports=false
# ruff: noqa: UP045

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any, Optional

from levanter.tracker.tracker import Tracker, TrackerConfig

from trainer_hooks.adapters.attached import Attached


class PacenoteTracker(Tracker):
    """Takes metrics; what Levanter logs of its configuration before the first step is the segment's."""

    name: str = "pacenote"

    def __init__(self, **arguments: Any) -> None:
        jax = sys.modules.get("jax")
        self.attached = Attached("levanter", arguments, devices=jax.device_count() if jax is not None else 1)

    def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None:
        self.attached.arguments.setdefault("config", {}).update(hparams)

    def log(self, metrics: Mapping[str, Any], *, step: Optional[int], commit: Optional[bool] = None) -> None:
        if step is not None:
            self.attached.log(step, metrics, evaluation=all(str(name).startswith("eval/") for name in metrics))

    def log_summary(self, metrics: Mapping[str, Any]) -> None:
        self.attached.arguments.setdefault("config", {}).update(metrics)

    def log_artifact(self, artifact_path: Any, *, name: Optional[str] = None, type: Optional[str] = None) -> None:
        """Left out: files stay where the trainer keeps them."""

    def finish(self) -> None:
        self.attached.finish()


@TrackerConfig.register_subclass("pacenote")
@dataclasses.dataclass
class PacenoteConfig(TrackerConfig):
    """The fields are arguments of `trainer_hooks.start`; `name` is Levanter's run id unless given."""

    project: Optional[str] = None
    name: Optional[str] = None
    reference: Optional[str] = None
    stage: str = "stage1"
    tokens_per_step: Optional[int] = None
    start_step: Optional[int] = None
    sample_rows: int = 1024

    def init(self, run_id: Optional[str]) -> Tracker:
        given = {key: value for key, value in dataclasses.asdict(self).items() if value is not None}
        return PacenoteTracker(**{"name": run_id or "levanter", **given})
