"""OLMo-core: a callback.

TrainerConfig(…).with_callback("pacenote", PacenoteCallback(name="my-run", project="olmo3-7b", reference="olmo3-7b"))
"""
# pyright: basic, reportMissingImports=false
# ruff: noqa: UP045

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass, field
from typing import Any, Optional

import torch.distributed as dist
from olmo_core.train.callbacks import Callback

from trainer_hooks.adapters.attached import Attached, harmless


@dataclass
class PacenoteCallback(Callback):
    """Metrics from rank 0, row fingerprints from every rank, checkpoints as events.

    `rows` says what a row is: "tokens" (its content, comparable with other trainers), "index" (its number in the data
    set, cheaper, and comparable only within OLMo-core) or "" (none). `arguments`: more of `trainer_hooks.start`.
    """

    name: str = "olmo-core"
    project: Optional[str] = None
    reference: Optional[str] = None
    stage: str = "stage1"
    config: Optional[dict[str, Any]] = None
    rows: str = "tokens"
    arguments: dict[str, Any] = field(default_factory=dict)

    _attached = None

    @harmless
    def pre_train(self) -> None:
        given = {key: getattr(self, key) for key in ("name", "project", "reference", "stage", "config")}
        self._attached = Attached("olmo_core", {**given, **self.arguments})
        lone = not dist.is_available() or not dist.is_initialized() or "PACENOTE_LAUNCH_ID" in os.environ
        if not lone:  # every rank comes here, at the same point of its program
            shared = [str(uuid.uuid4())]
            dist.broadcast_object_list(shared, src=0)
            os.environ["PACENOTE_LAUNCH_ID"] = shared[0]
        try:
            tokens = self.trainer.global_train_tokens_seen
            batch = getattr(self.trainer.data_loader, "global_batch_size", None)  # in tokens
            self._attached.open(start_step=self.step, start_tokens=tokens, tokens_per_step=batch)
        finally:
            if not lone:
                del os.environ["PACENOTE_LAUNCH_ID"]

    @harmless
    def pre_step(self, batch: dict[str, Any]) -> None:
        if self.rows and self._attached is not None:
            found = batch["index"].reshape(-1, 1) if self.rows == "index" else batch["input_ids"]
            self._attached.call("log_rows", self.step, found.numpy())  # still on the host

    def log_metrics(self, step: int, metrics: dict[str, float]) -> None:
        if self._attached is not None:
            self._attached.log(step, metrics)

    @harmless
    def post_checkpoint_saved(self, path: Any) -> None:
        found = re.search(r"step(\d+)/*$", str(path))  # an asynchronous save ends steps later
        if self._attached is not None:
            self._attached.call("event", int(found[1]) if found else self.step, "checkpoint", str(path))

    def on_error(self, exc: BaseException) -> None:
        if self._attached is not None:
            self._attached.finish(failed=True)

    def close(self) -> None:
        if self._attached is not None:
            self._attached.finish()
