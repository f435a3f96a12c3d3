"""From log-probabilities of choices to accuracies, bits per byte and losses, as AI2's `ICLMetric` counts them.

Source of the formulas: ai2-olmo-eval 0.9.0, olmo_eval/metrics.py. Its "v1" leaves the first character of a continuation
(usually a space) out of the length, its "v2" counts it; the keys without a suffix in AI2's logs are v1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer_hooks.evals.tasks import Task

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TaskResult:
    """One task at one step. Arrays are in the task's own item order.

    Attributes:
        log_probabilities: (items, choices) nats; −inf where an item has fewer choices.
        correct: (items,) whether the choice with the highest score is the true one, by the task's own metric; None for
            a task that ranks nothing.
        accuracy, length_normalized_accuracy: share of right items, ranked by log-probability, and by log-probability
            per character; None for a task that ranks nothing.
        bits_per_byte, ce_loss: (items,) of the true continuation: −log2 p per byte, −ln p per character, v1.
        bits_per_byte_v2, ce_loss_v2: (items,) the same by v2.
    """

    key: str
    metric: str
    log_probabilities: Floats
    correct: NDArray[np.bool_] | None
    accuracy: float | None
    length_normalized_accuracy: float | None
    bits_per_byte: Floats
    ce_loss: Floats
    bits_per_byte_v2: Floats
    ce_loss_v2: Floats

    @property
    def value(self) -> float:
        """The task's own number: the accuracy it is ranked by, or its mean bits per byte or loss."""
        if self.correct is not None:
            return float(self.correct.mean())
        return float((self.bits_per_byte if self.metric == "bpb" else self.ce_loss).mean())

    @property
    def standard_error(self) -> float:
        """Sampling error of `value`, as if the items were drawn at random: binomial, or sd / √n.

        Two runs see the same items, so their difference varies less: the items themselves are there to pair them.
        """
        if self.correct is not None:
            return math.sqrt(self.value * (1.0 - self.value) / self.correct.size)
        items = self.bits_per_byte if self.metric == "bpb" else self.ce_loss
        return float(items.std(ddof=1)) / math.sqrt(items.size) if items.size > 1 else math.nan

    def metrics(self) -> dict[str, float]:
        """Canonical names and values, those that AI2's in-loop evaluation logs for a task of this kind."""
        found: dict[str, float] = {}
        if self.correct is not None:
            found[f"downstream/{self.key}/accuracy"] = self.value
        if self.metric != "ce_loss":
            found[f"downstream/{self.key}/bpb"] = float(self.bits_per_byte.mean())
        if self.metric != "bpb":
            found[f"downstream/{self.key}/ce_loss"] = float(self.ce_loss.mean())
        return found


def score(task: Task, log_probabilities: Floats) -> TaskResult:
    """The result of a task from the summed log-probability of each of its choices, in their order."""
    items = np.array([c.item for c in task.choices])
    places = np.array([c.choice for c in task.choices])
    sizes = np.array([c.sizes for c in task.choices], np.float64)
    if task.one_pass:  # AI2 divides all choices of an item by the length of its first
        first = np.searchsorted(items, items, side="left")
        sizes = sizes[first]
    shape = (len(task.answers), int(places.max()) + 1)
    table = np.full(shape, -np.inf)
    table[items, places] = log_probabilities
    with np.errstate(divide="ignore", invalid="ignore"):  # a continuation of one character has length 0 by v1
        per_character = np.full(shape, -np.inf)
        per_character[items, places] = log_probabilities / sizes[:, 2]
        gold = np.flatnonzero(places == task.answers[items])
        true = -log_probabilities[gold]
        chars_v1, bytes_v1, chars_v2, bytes_v2 = sizes[gold].T
        bits = true * math.log2(math.e)
        by_sum = table.argmax(axis=1) == task.answers
        by_length = per_character.argmax(axis=1) == task.answers
        return TaskResult(
            task.key,
            task.metric,
            table,
            (by_sum if task.metric == "acc" else by_length) if task.ranked else None,
            float(by_sum.mean()) if task.ranked else None,
            float(by_length.mean()) if task.ranked else None,
            bits / bytes_v1,
            true / chars_v1,
            bits / bytes_v2,
            true / chars_v2,
        )
