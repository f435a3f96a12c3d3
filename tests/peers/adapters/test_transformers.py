"""The callback in a real training of the Hugging Face Trainer, with a restart from its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from adapter_spool import recorded
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from trainer_hooks.adapters.transformers import PacenoteCallback


class Rows(torch.utils.data.Dataset):
    def __init__(self, seed: int) -> None:
        self.rows = torch.randint(0, 64, (64, 16), generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def train(folder: Path, steps: int, resume: bool) -> list[dict]:
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    arguments = TrainingArguments(
        output_dir=str(folder / "out"),
        run_name="hf",
        max_steps=steps,
        per_device_train_batch_size=4,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=2,
        save_steps=4,
        lr_scheduler_type="constant",
        include_num_input_tokens_seen="all",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        GPT2LMHeadModel(config),
        arguments,
        train_dataset=Rows(0),
        eval_dataset={"c4": Rows(1)},
        callbacks=[PacenoteCallback(project="p", tokens_per_step=64)],
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer.state.log_history


def test_a_training_and_its_restart(spool: Path, tmp_path: Path) -> None:
    train(tmp_path, 4, resume=False)
    history = train(tmp_path, 6, resume=True)
    first, second = recorded(spool)
    assert (first.finished, second.finished) == (True, True)
    assert (first.body["start_step"], second.body["start_step"]) == (0, 4)
    assert second.body["run"] == "hf"
    assert second.body["config"]["model"]["n_embd"] == 16
    logged = {entry["step"]: entry["loss"] for entry in history if "loss" in entry}
    assert first.series("train/ce_loss") | second.series("train/ce_loss") == pytest.approx(logged)
    assert list(second.series("train/ce_loss")) == [5, 6]
    assert second.tokens[6] == 6 * 64
    held_out = {entry["step"]: entry["eval_c4_loss"] for entry in history if "eval_c4_loss" in entry}
    assert second.series("heldout/c4/ce_loss") == pytest.approx({6: held_out[6]})
    assert [(e["step"], e["kind"]) for e in first.events] == [(4, "checkpoint")]
    assert Path(first.events[0]["value"]).is_dir()
