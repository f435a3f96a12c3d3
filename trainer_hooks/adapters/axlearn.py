"""axlearn: a summary writer, to be combined with others.

cfg.summary_writer = CompositeWriter.default_config().set(writers={"tf": …, "pacenote": PacenoteWriter.default_config()
    .set(name="my-run", project="olmo3-7b", tokens_per_step=4_194_304)})
cfg.evalers["validation"].summary_writer = PacenoteWriter.default_config().set(evaluation="validation", …)
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from typing import Any

from axlearn.common.config import config_class
from axlearn.common.summary import Summary
from axlearn.common.summary_writer import BaseWriter

from trainer_hooks.adapters.attached import harmless, shared

FIELDS = ("name", "project", "reference", "stage", "tokens_per_step")


class PacenoteWriter(BaseWriter):
    """Takes scalars, the configuration, and checkpoints."""

    @config_class
    class Config(BaseWriter.Config):
        """Arguments of `trainer_hooks.start`; `evaluation` is the held-out set's name in an evaluator's writer."""

        name: str = "axlearn"
        project: str | None = None
        reference: str | None = None
        stage: str = "stage1"
        tokens_per_step: int | None = None
        evaluation: str | None = None
        z_loss_scale: float = 0.0

    def __init__(self, cfg: Any, *, parent: Any) -> None:
        super().__init__(cfg, parent=parent)
        arguments = {field: getattr(cfg, field) for field in FIELDS}
        self._attached = shared("axlearn", arguments, z_loss_scale=cfg.z_loss_scale)
        self._prefix = f"eval/{cfg.evaluation}/" if cfg.evaluation else ""

    def log_config(self, config: Any, step: int = 0) -> None:
        self._attached.arguments.setdefault("config", {"axlearn": config.debug_string()})

    @harmless
    def log_checkpoint(self, ckpt_dir: str, *, state: Any, action: Any, step: int = 0) -> None:
        if action == "SAVE":
            self._attached.call("event", step, "checkpoint", str(ckpt_dir))

    @harmless
    def __call__(self, step: int, values: Any) -> None:
        self._attached.log(step, _unwrapped(values, self._prefix), evaluation=bool(self._prefix))


def _unwrapped(values: Any, prefix: str) -> dict[str, Any]:
    """Summaries hold their value behind a method; those of images and sound are left out by their size."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _unwrapped(value, f"{prefix}{key}/")
        else:
            found[f"{prefix}{key}"] = value.value() if isinstance(value, Summary) else value
    return found
