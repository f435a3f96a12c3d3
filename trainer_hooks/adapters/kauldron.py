"""kauldron: a writer, one for the trainer and, by kauldron's own doing, one for each evaluator.

cfg.writer = PacenoteWriter(name="my-run", project="olmo3-7b", tokens_per_step=4_194_304)
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kauldron.train import metric_writer
from kauldron.utils.status_utils import status

from trainer_hooks.adapters.attached import Attached, harmless, shared

FIELDS = ("name", "project", "reference", "stage", "tokens_per_step")


@dataclasses.dataclass(frozen=True, eq=True, kw_only=True)
class PacenoteWriter(metric_writer.NoopWriter):
    """Takes scalars of the lead host. The fields are arguments of `trainer_hooks.start`."""

    name: str = "kauldron"
    project: str | None = None
    reference: str | None = None
    stage: str = "stage1"
    tokens_per_step: int | None = None

    # NoopWriter leaves this one out; the base class computes the metrics and hands them to `write_scalars`.
    write_step_metrics = metric_writer.WriterBase.write_step_metrics

    @harmless
    def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
        if not status.is_lead_host:
            return
        evaluates = self.collection != "train"
        prefix = f"eval/{self.collection}/" if evaluates else ""
        self._attached().log(step, {f"{prefix}{name}": value for name, value in scalars.items()}, evaluates)

    def close(self) -> None:
        if self.collection == "train":
            self._attached().finish()

    def _attached(self) -> Attached:
        return shared("kauldron", {field: getattr(self, field) for field in FIELDS})
