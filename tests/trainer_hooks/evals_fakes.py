"""A language model whose logits depend on every token before, without a single matrix of layers; and parts of tasks."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from trainer_hooks.evals.olmo_eval import package
from trainer_hooks.evals.tasks import Task

VOCABULARY = 50_304
WIDTH = 16
TOKENIZER = "tokenizers/allenai_gpt-neox-olmo-dolma-v1_5.json"  # a real one, in ai2-olmo-eval
EVERY = 64  # one in so many items is in the golden files


def weights(seed: int = 0, vocabulary: int = VOCABULARY) -> dict[str, np.ndarray]:
    """Random embeddings and head, the same on every machine."""
    random = np.random.RandomState(seed)
    return {
        "embedding": random.standard_normal((vocabulary, WIDTH)).astype(np.float32),
        "head": (0.3 * random.standard_normal((WIDTH, vocabulary))).astype(np.float32),
    }


def hidden(weights: Any, tokens: Any) -> Any:
    """(rows, length, WIDTH): a decaying sum of the embeddings of all tokens up to each position."""
    import jax
    import jax.numpy as jnp

    def mixed(state: Any, x: Any) -> Any:
        state = 0.9 * state + x
        return state, state

    embedded = jnp.swapaxes(weights["embedding"][tokens], 0, 1)
    return jnp.swapaxes(jax.lax.scan(mixed, jnp.zeros_like(embedded[0]), embedded)[1], 0, 1)


def logits(weights: Any, tokens: Any) -> Any:
    """(rows, length, vocabulary)."""
    return hidden(weights, tokens) @ weights["head"]


def logits_at(weights: Any, tokens: Any, positions: Any) -> Any:
    """(rows, k, vocabulary), at the positions alone."""
    import jax.numpy as jnp

    return jnp.take_along_axis(hidden(weights, tokens), positions[..., None], axis=1) @ weights["head"]


@cache
def tokenizer() -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(package() / TOKENIZER))


def part_of(task: Task, every: int = EVERY) -> Task:
    """The items 0, every, 2 · every, … of a task."""
    choices = tuple(c._replace(item=c.item // every) for c in task.choices if c.item % every == 0)
    return replace(task, choices=choices, answers=task.answers[::every])


class RecordingRun:
    """Takes what an evaluation says to a run."""

    def __init__(self) -> None:
        self.metrics: dict[str, dict[int, float]] = {}
        self.eval_sets: dict[str, str] = {}
        self.items: dict[tuple[int, str], np.ndarray] = {}
        self.events: list[tuple[int, str, Any]] = []

    def log(
        self, step: int, metrics: Any, tokens: Any = None, weights_segment: Any = None, eval_sets: Any = None
    ) -> None:
        for name, value in metrics.items():
            self.metrics.setdefault(name, {})[step] = value
        self.eval_sets |= eval_sets or {}

    def log_items(self, step: int, task: str, correct: Any) -> None:
        self.items[step, task] = np.array(correct)

    def event(self, step: int, kind: str, value: Any = None) -> None:
        self.events.append((step, kind, value))
