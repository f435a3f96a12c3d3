"""What the lab measures beside the training loss: a held-out loss and eight small multiple-choice tasks.

All of it is cut from the held-out documents by a fixed seed (`RandomState`, whose streams NumPy has frozen), so every
run sees the same windows and items. Four domains times two kinds of task: "cont", which of four continuations is the
true one, and "order", which of four orders of the continuation's words is. A choice's score is the sum of its tokens'
log-probabilities; all choices of an item have the same number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from numpy.typing import NDArray

from reproduction.lab.corpus import DOMAINS, ROW_LENGTH, Corpus, Tokens
from reproduction.olmo3.model import Decoder, Params

HELDOUT = "heldout/lab/ce_loss"
KINDS = ("cont", "order")
ITEMS = 48
CHOICES = 4
CONTEXT, CONTINUATION = 24, 12  # tokens
WINDOWS_PER_DOMAIN = 16
SEED = 34521


@dataclass(frozen=True)
class Task:
    """`choices` (items, CHOICES, CONTEXT + CONTINUATION) int32: context and one continuation; `answers` (items,)."""

    key: str
    choices: NDArray[np.int32]
    answers: NDArray[np.int64]


@dataclass(frozen=True)
class Evals:
    """`windows` (n, ROW_LENGTH) int32 of held-out text, and the eight tasks."""

    windows: NDArray[np.int32]
    tasks: tuple[Task, ...]

    @property
    def heldout_id(self) -> str:
        """Identity of the held-out set: a hash of its tokens."""
        return blake2b(self.windows.astype("<u4").tobytes(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Result:
    """`heldout` in nats per token; `correct[task]` (items,) bool."""

    heldout: float
    correct: dict[str, NDArray[np.bool_]]

    def metrics(self) -> dict[str, float]:
        """Canonical metric names and their values."""
        return {HELDOUT: self.heldout} | {accuracy_metric(key): float(c.mean()) for key, c in self.correct.items()}


def accuracy_metric(task: str) -> str:
    """Canonical name of a task's accuracy."""
    return f"downstream/{task}/accuracy"


def build(corpus: Corpus) -> Evals:
    """The windows and items; the same on every machine."""
    random = np.random.RandomState(SEED)
    windows: list[Tokens] = []
    tasks: list[Task] = []
    for domain in DOMAINS:
        documents = corpus.documents(heldout=True, domain=domain)
        windows += [_cut(documents, ROW_LENGTH, random) for _ in range(WINDOWS_PER_DOMAIN)]
        for kind in KINDS:
            build_item = _continuation_item if kind == "cont" else _order_item
            items = [build_item(documents, corpus.starts_word, random) for _ in range(ITEMS)]
            answers = random.randint(CHOICES, size=ITEMS)
            for item, answer in zip(items, answers, strict=True):  # the true one comes first until here
                item[[0, answer]] = item[[answer, 0]]
            tasks.append(Task(f"{domain}_{kind}", np.stack(items).astype(np.int32), answers.astype(np.int64)))
    return Evals(np.stack(windows).astype(np.int32), tuple(tasks))


def _cut(documents: list[Tokens], length: int, random: np.random.RandomState) -> Tokens:
    """`length` tokens from a random place; every place that is `length` from its document's end is equally likely."""
    room = np.maximum([len(d) - length for d in documents], 0)
    place = random.randint(room.sum())
    which = int(np.searchsorted(np.cumsum(room), place, side="right"))
    start = int(place - room[:which].sum())
    return documents[which][start : start + length]


def _passage(documents: list[Tokens], starts_word: NDArray[np.bool_], random: np.random.RandomState) -> Tokens:
    """Context and continuation in one piece, the continuation beginning with a word."""
    while True:
        passage = _cut(documents, CONTEXT + CONTINUATION, random)
        if starts_word[passage[CONTEXT]]:
            return passage


def _continuation_item(
    documents: list[Tokens], starts_word: NDArray[np.bool_], random: np.random.RandomState
) -> NDArray[np.uint16]:
    """(CHOICES, length): a passage, then its context with continuations from elsewhere in the domain."""
    true = _passage(documents, starts_word, random)
    choices = {true.tobytes(): true}
    while len(choices) < CHOICES:  # a small domain may well give the same place twice
        other = np.concatenate([true[:CONTEXT], _passage(documents, starts_word, random)[CONTEXT:]])
        choices.setdefault(other.tobytes(), other)
    return np.stack(list(choices.values()))


def _order_item(
    documents: list[Tokens], starts_word: NDArray[np.bool_], random: np.random.RandomState
) -> NDArray[np.uint16]:
    """(CHOICES, length): a passage, then its context with the continuation's words in three other orders."""
    while True:
        passage = _passage(documents, starts_word, random)
        words = np.split(passage[CONTEXT:], np.flatnonzero(starts_word[passage[CONTEXT:]])[1:])
        if len(words) < CHOICES:  # too few orders
            continue
        orders = {passage.tobytes(): passage}
        for _ in range(4 * CHOICES):
            shuffled = np.concatenate([passage[:CONTEXT], *(words[i] for i in random.permutation(len(words)))])
            orders.setdefault(shuffled.tobytes(), shuffled)
            if len(orders) == CHOICES:
                return np.stack(list(orders.values()))


def log_probability(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Sum of the log-probabilities of `targets` (n, k) under `logits` (n, k, vocabulary): (n,)."""
    return -optax.softmax_cross_entropy_with_integer_labels(logits, targets).sum(axis=-1)


def is_correct(scores: jax.Array, answers: jax.Array) -> jax.Array:
    """Per item, whether its answer (items,) has the highest of the scores (items, choices)."""
    return scores.argmax(axis=-1) == answers


class Evaluator:
    """Evaluates parameters of one model; compiled once."""

    def __init__(self, graph: nnx.GraphDef[Decoder], evals: Evals) -> None:
        self.evals = evals

        @jax.jit
        def heldout(params: Params, windows: jax.Array) -> jax.Array:
            logits = nnx.merge(graph, params)(windows)[:, :-1]
            return optax.softmax_cross_entropy_with_integer_labels(logits, windows[:, 1:]).mean()

        @jax.jit
        def correct(params: Params, choices: jax.Array, answers: jax.Array) -> jax.Array:
            model = nnx.merge(graph, params)
            tokens = choices.reshape(-1, choices.shape[-1])
            logits = model.head(model.hidden(tokens)[:, CONTEXT - 1 : -1])  # those that predict the continuation
            return is_correct(log_probability(logits, tokens[:, CONTEXT:]).reshape(choices.shape[:2]), answers)

        self._heldout = heldout
        self._correct = correct

    def __call__(self, params: Params) -> Result:
        """Held-out loss and per-item results. One task at a time: its logits stay in the processor's cache."""
        loss = self._heldout(params, jnp.asarray(self.evals.windows))
        tasks: Iterable[Task] = self.evals.tasks
        correct = {t.key: self._correct(params, jnp.asarray(t.choices), jnp.asarray(t.answers)) for t in tasks}
        return Result(float(loss), {key: np.asarray(value) for key, value in correct.items()})
