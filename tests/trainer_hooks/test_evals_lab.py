"""The lab's own measures, and these, of the same weights: a Flax NNX decoder in OLMo 3's shape."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evals_fakes import RecordingRun
from flax import nnx

from reproduction import lab
from reproduction.lab import corpus, evals
from reproduction.olmo3 import checkpoint
from trainer_hooks.evals import Downstream, HeldOut, Task, next_token_loss


def test_equal_to_the_labs_own_measures() -> None:
    graph, params, _ = checkpoint.load(lab.BASE)
    built = evals.build(corpus.load())
    expected = evals.Evaluator(graph, built)(params)

    def logits_at(weights: Any, tokens: jax.Array, positions: jax.Array) -> jax.Array:
        model = nnx.merge(graph, weights)
        return model.head(jnp.take_along_axis(model.hidden(tokens), positions[..., None], axis=1))

    tasks = [Task.of_tokens(t.key, t.choices, t.answers, context=evals.CONTEXT) for t in built.tasks]
    heldout = HeldOut(
        "lab",
        [built.windows],
        next_token_loss(lambda weights, tokens: nnx.merge(graph, weights)(tokens)),
        25,
        strict=True,
    )
    downstream = Downstream(
        tasks, logits_at, None, 25, at_positions=True, length_multiple=1, batch_tokens=7000, strict=True
    )
    run = RecordingRun()
    heldout(run, 25, params)
    downstream(run, 25, params)
    for key, correct in expected.correct.items():
        np.testing.assert_array_equal(run.items[25, key], correct)
    metrics = expected.metrics()
    assert {key: value for key, value in metrics.items() if key != evals.HELDOUT} == {
        key: run.metrics[key][25] for key in metrics if key != evals.HELDOUT
    }
    # The lab adds in float32, on the device.
    assert run.metrics[evals.HELDOUT][25] == pytest.approx(expected.heldout, rel=1e-6)
