"""The callback in a real training of OLMo-core's Trainer, with a restart from its checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from adapter_spool import recorded
from olmo_core.data.data_loader import DataLoaderBase
from olmo_core.train import Duration, TrainerConfig
from olmo_core.train.callbacks import Callback, CheckpointerCallback
from olmo_core.train.train_module import BasicTrainModule

from trainer_hooks.adapters.olmo_core import PacenoteCallback
from trainer_hooks.fingerprints import row_hashes, snapshot

ROWS, LENGTH, BATCH = 64, 16, 4


def rows() -> torch.Tensor:
    return torch.randint(0, 64, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))


class Loader(DataLoaderBase):
    """Rows in order, as many a batch as OLMo-core's own loaders give, with their `index`."""

    @property
    def total_batches(self) -> int:
        return ROWS // BATCH

    def state_dict(self) -> dict[str, Any]:
        return {"batches_processed": self.batches_processed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.batches_processed = state_dict["batches_processed"]

    def reshuffle(self, epoch: int | None = None, **named: Any) -> None:
        self._epoch = epoch

    def _iter_batches(self) -> Iterable[dict[str, Any]]:
        for start in range(self.batches_processed * BATCH, ROWS, BATCH):
            index = torch.arange(start, start + BATCH)
            yield {"input_ids": rows()[index], "index": index}

    def get_mock_batch(self) -> dict[str, Any]:
        return {"input_ids": rows()[:BATCH]}

    def global_num_tokens_in_batch(self, batch: dict[str, Any]) -> int:
        return batch["input_ids"].numel()


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(64, 16), torch.nn.Linear(16, 64)

    def forward(self, input_ids: torch.Tensor, **named: Any) -> torch.Tensor:
        return self.head(self.embed(input_ids))


class Module(BasicTrainModule):
    def global_num_flops_in_batch(self, batch: dict[str, Any]) -> None:
        """Not estimated."""


class Collected(Callback):
    """What OLMo-core gives to every callback."""

    metrics: dict[int, dict[str, float]]

    def log_metrics(self, step: int, metrics: dict[str, float]) -> None:
        self.metrics.setdefault(step, {}).update(metrics)  # a checkpoint adds to a step that was given before


def train(folder: Path, steps: int) -> dict[int, dict[str, float]]:
    model, collected = Model(), Collected()
    collected.metrics = {}
    module = Module(model, torch.optim.AdamW(model.parameters()), rank_microbatch_size=BATCH * LENGTH)
    loader = Loader(work_dir=folder, global_batch_size=BATCH * LENGTH)
    config = TrainerConfig(
        save_folder=str(folder / "checkpoints"),
        work_dir=str(folder),
        device="cpu",
        max_duration=Duration.steps(steps),
        metrics_collect_interval=3,
        save_overwrite=True,
        callbacks={
            "checkpointer": CheckpointerCallback(save_interval=4, save_async=False, pre_train_checkpoint=False),
            "collected": collected,
            "pacenote": PacenoteCallback(name="olmo", project="p", arguments={"sample_rows": 1}),
        },
    )
    config.build(module, loader).fit()
    return collected.metrics


def test_a_training_and_its_restart(spool: Path, tmp_path: Path) -> None:
    before = train(tmp_path, 4)
    after = train(tmp_path, 7)
    first, second = recorded(spool)
    assert (first.finished, second.finished) == (True, True)
    assert (first.body["start_step"], second.body["start_step"]) == (0, 4)
    assert second.body["start_tokens"] == 4 * BATCH * LENGTH
    assert second.body["tokens_per_step"] == BATCH * LENGTH
    assert list(second.series("train/ce_loss")) == [5, 6, 7]
    logged = {
        step: metrics["train/CE loss"]
        for step, metrics in [*before.items(), *after.items()]
        if "train/CE loss" in metrics
    }
    assert first.series("train/ce_loss") | second.series("train/ce_loss") == pytest.approx(logged)
    assert [event["step"] for event in first.events if event["kind"] == "checkpoint"] == [4]
    assert Path(first.events[0]["value"]).is_dir()
    hashes = [f"{int(h):016x}" for h in row_hashes(snapshot(rows()[: 7 * BATCH].numpy()))]
    read = [h for segment in (first, second) for body in segment.fingerprints for h in body["hashes"]]
    assert read == hashes
    assert second.seen() == {5: BATCH, 6: BATCH, 7: BATCH}
