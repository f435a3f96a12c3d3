"""The "olmo_core" convention, against OLMo-core's own data set, labels and LMEvaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from icl import fakes
from olmo_core.data import DataCollator, NumpyPaddedFSLDataset
from olmo_core.data.utils import get_labels
from olmo_core.eval.lm_evaluator import LMEvaluator

from trainer_hooks.evals import HeldOut, documents, next_token_loss

VOCABULARY, END, PAD, LENGTH = 60, 0, 1, 64


@pytest.fixture
def stream() -> np.ndarray:
    """Documents of 2 to 90 tokens, some longer than a row, and a last one that does not end."""
    random = np.random.RandomState(0)
    pieces = [np.append(random.randint(2, VOCABULARY, size=random.randint(1, 90)), END) for _ in range(50)]
    return np.concatenate([*pieces, [5, 6, 7]]).astype(np.uint32)


def of_olmo_core(path: Path, work: Path, weights: Any) -> float:
    """OLMo-core's mean loss over all documents of a file."""
    data = NumpyPaddedFSLDataset(
        path,
        sequence_length=LENGTH,
        pad_token_id=PAD,
        eos_token_id=END,
        vocab_size=VOCABULARY,
        dtype=np.uint32,
        metadata=[{"label": "set"}],
        include_instance_metadata=True,
    )
    data.work_dir = work
    data.prepare()
    evaluator = LMEvaluator(name="lm", batches=[], labels=["set"], device=torch.device("cpu"))
    collate = DataCollator(pad_token_id=PAD)
    forward = jax.jit(fakes.logits)
    for start in range(0, len(data), 8):
        batch = collate([data[i] for i in range(start, min(start + 8, len(data)))])
        logits = torch.from_numpy(np.array(forward(weights, batch["input_ids"].numpy())))
        losses = F.cross_entropy(logits.transpose(1, 2), get_labels(batch), ignore_index=-100, reduction="none")
        evaluator.update_metrics(batch, losses, None)
    return float(evaluator.compute_metrics()["set/CE loss"])


def test_equal_to_olmo_cores_evaluator(tmp_path: Path, stream: np.ndarray) -> None:
    weights = fakes.weights(vocabulary=VOCABULARY)
    stream.tofile(tmp_path / "part-0-00000.npy")  # headerless, as OLMo's files are
    theirs = of_olmo_core(tmp_path / "part-0-00000.npy", tmp_path / "work", weights)
    batches = documents(np.fromfile(tmp_path / "part-0-00000.npy", np.uint32), end=END, length=LENGTH)
    loss_fn = next_token_loss(fakes.logits)
    found = {
        convention: HeldOut("set", batches, loss_fn, 1, convention=convention, strict=True)(
            fakes.RecordingRun(), 1, weights
        )
        for convention in ("exact", "olmo_core")
    }
    assert found["olmo_core"].loss == pytest.approx(theirs, rel=1e-6)
    assert found["olmo_core"].tokens == found["exact"].tokens + found["exact"].rows
    assert found["exact"].rows == 50
