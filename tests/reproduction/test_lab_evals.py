"""Tasks are what they say, and their accuracy is computed right."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from reproduction.lab import corpus, evals
from reproduction.lab.evals import CHOICES, CONTEXT, CONTINUATION, Evals, Evaluator, Task
from reproduction.olmo3.model import Config, Decoder


@pytest.fixture(scope="module")
def built() -> Evals:
    return evals.build(corpus.load())


def test_there_are_eight_tasks_of_48_items_and_64_windows(built: Evals) -> None:
    assert len(built.tasks) == len({t.key for t in built.tasks}) == 8
    assert built.windows.shape == (64, 128)
    for task in built.tasks:
        assert task.choices.shape == (48, CHOICES, CONTEXT + CONTINUATION)
        assert set(np.unique(task.answers)) == set(range(CHOICES))


def test_they_are_the_same_each_time(built: Evals) -> None:
    again = evals.build(corpus.load())
    assert again.heldout_id == built.heldout_id == "77bcf27f30a06c6b"
    assert all((a.choices == b.choices).all() for a, b in zip(again.tasks, built.tasks, strict=True))


def test_the_answer_is_held_out_text_and_the_others_are_not(built: Evals) -> None:
    texts = corpus.load()
    for task in built.tasks:
        documents = texts.documents(heldout=True, domain=task.key.rsplit("_", 1)[0])
        text = np.concatenate([np.append(d, corpus.END_OF_TEXT_ID) for d in documents]).astype("<u2").tobytes()
        for choices, answer in zip(task.choices, task.answers, strict=True):
            found = [c.astype("<u2").tobytes() in text for c in choices]
            assert found == [i == answer for i in range(CHOICES)], task.key
            assert (choices[:, :CONTEXT] == choices[0, :CONTEXT]).all()
            assert len(np.unique(choices, axis=0)) == CHOICES
            if task.key.endswith("_order"):
                assert (np.sort(choices, axis=1) == np.sort(choices[0])).all()


def test_scores_of_hand_made_logits() -> None:
    probabilities = np.array([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]], [[0.2, 0.2, 0.6], [1 / 3, 1 / 3, 1 / 3]]])
    scores = evals.log_probability(jnp.log(probabilities) + 7.0, jnp.array([[0, 2], [1, 1]]))
    np.testing.assert_allclose(scores, np.log([0.5 * 0.8, 0.2 / 3]), rtol=1e-5)
    items = jnp.array([[-1.0, -2.0, -3.0, -4.0], [-9.0, -8.0, -7.0, -1.0], [-5.0, -4.0, -6.0, -7.0]])
    np.testing.assert_array_equal(evals.is_correct(items, jnp.array([0, 3, 0])), [True, True, False])
    result = evals.Result(2.5, {"x": np.array([True, True, False, False])})
    assert result.metrics() == {"heldout/lab/ce_loss": 2.5, "downstream/x/accuracy": 0.5}


def test_the_evaluator_scores_the_continuation_given_the_context() -> None:
    config = Config(vocab_size=16, d_model=16, n_layers=1, n_heads=2, d_hidden=24, init_std=0.5)
    model = Decoder(config, nnx.Rngs(0))
    graph, params = nnx.split(model, nnx.Param)
    random = np.random.default_rng(0)
    windows = random.integers(16, size=(3, 20)).astype(np.int32)
    choices = random.integers(16, size=(6, CHOICES, CONTEXT + CONTINUATION)).astype(np.int32)
    answers = random.integers(CHOICES, size=6)
    result = Evaluator(graph, Evals(windows, (Task("t", choices, answers),)))(params)

    def log_probabilities(tokens: np.ndarray) -> np.ndarray:
        predicted = np.asarray(jax.jit(lambda x: jax.nn.log_softmax(model(x)))(tokens))[:, :-1]
        return np.take_along_axis(predicted, tokens[:, 1:, None], axis=2)[..., 0]

    scores = log_probabilities(choices.reshape(-1, CONTEXT + CONTINUATION))[:, CONTEXT - 1 :].sum(axis=1)
    np.testing.assert_array_equal(result.correct["t"], scores.reshape(6, CHOICES).argmax(axis=1) == answers)
    assert result.heldout == pytest.approx(-log_probabilities(windows).mean(), rel=1e-5)
