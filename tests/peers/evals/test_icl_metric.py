"""Every item of the eight tasks, against ai2-olmo-eval itself; and that the golden files still say what it says."""

from __future__ import annotations

import json
from typing import Any

import icl
import numpy as np
import pytest
from icl import fakes

from trainer_hooks.evals import EIGHT_TASKS, Downstream, load_task

GOLDEN = json.loads((icl.GOLDEN / "icl_metric.json").read_text())
SAMPLES = json.loads((icl.GOLDEN / "samples.json").read_text())
KEYS = sorted({key for key, _ in icl.SCORED})


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    return fakes.weights()


@pytest.mark.parametrize("key", EIGHT_TASKS)
@pytest.mark.parametrize("context_length", [2048, 60])
def test_every_item_of_the_eight(key: str, context_length: int, weights: Any) -> None:
    """Also with requests cut on the left."""
    theirs = icl.score(icl.dataset(key, context_length), "acc", weights)
    task = load_task(key, fakes.tokenizer())
    options: dict[str, Any] = {"at_positions": True, "context_length": context_length, "strict": True}
    result = Downstream([task], fakes.logits_at, None, 1, **options)(fakes.RecordingRun(), 1, weights)
    assert result is not None
    ours = result.tasks[key]
    assert ours.correct is not None
    assert theirs.correct is not None
    np.testing.assert_array_equal(ours.correct, theirs.correct)
    np.testing.assert_allclose(
        ours.log_probabilities[np.isfinite(ours.log_probabilities)], theirs.choices, rtol=1e-4, atol=1e-4
    )
    assert ours.value == pytest.approx(theirs.metrics["acc_v1"], abs=1e-6)
    assert ours.bits_per_byte.mean() == pytest.approx(theirs.metrics["bpb_v1"], rel=1e-4)
    assert ours.ce_loss.mean() == pytest.approx(theirs.metrics["ce_loss_v1"], rel=1e-4)
    assert ours.bits_per_byte_v2.mean() == pytest.approx(theirs.metrics["bpb_v2"], rel=1e-4)


@pytest.mark.parametrize(("key", "kind"), icl.SCORED)
def test_the_golden_metrics_are_what_the_package_says(key: str, kind: str, weights: Any) -> None:
    result, golden = icl.score(icl.dataset(key), kind, weights, fakes.EVERY), GOLDEN[f"{key} {kind}"]
    assert result.metrics == pytest.approx(golden["metrics"], rel=1e-4)
    if result.correct is not None:
        assert "".join("01"[int(c)] for c in result.correct) == golden["correct"]


@pytest.mark.parametrize("key", KEYS)
def test_the_golden_samples_are_the_packages(key: str) -> None:
    theirs, ours = icl.task_of(key, icl.dataset(key)), load_task(key, fakes.tokenizer())
    assert theirs.eval_set_id == SAMPLES[key] == ours.eval_set_id
    np.testing.assert_array_equal(theirs.answers, ours.answers)
    for mine, other in zip(ours.choices, theirs.choices, strict=True):
        assert mine.context.tolist() == other.context.tolist()
        assert mine.continuation.tolist() == other.continuation.tolist()
