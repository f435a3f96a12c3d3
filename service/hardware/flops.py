"""Training FLOPs per token of a dense decoder, by the conventions that MFU is quoted in.

All count two FLOPs for a multiplication with its addition, three passes (forward, and twice that backward), no
recomputation, no embedding look-up, and rows that are one causal sequence, whatever documents are packed in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Shape:
    """What FLOPs follow from. `mlp_matrices` is 3 for a gated MLP, 2 for a plain one. `windows` has one entry for each
    layer, the positions that a token attends to, its own included (None: all before it), or is None where the
    configuration does not say which layers attend so."""

    d_model: int
    d_hidden: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int
    mlp_matrices: int
    row_length: int
    windows: tuple[int | None, ...] | None

    @property
    def matrix_parameters(self) -> int:
        """Weights that every token is multiplied with: attention, MLP and the output head, not the input embedding."""
        attention = self.d_model * self.head_dim * (2 * self.n_heads + 2 * self.n_kv_heads)
        mlp = self.mlp_matrices * self.d_model * self.d_hidden
        return self.n_layers * (attention + mlp) + self.d_model * self.vocab_size


class NotCountedError(ValueError):
    """A formula does not hold for a model; the message says why."""


def exact(shape: Shape) -> float:
    """Every multiplication of the mask counted, none else: 6 N + 12 H d P / T per token, summed over layers.

    P = pairs of positions a layer attends to: T (T + 1) / 2 in a full causal layer, T W − W (W − 1) / 2 with a window
    of W positions. Raises NotCountedError where the layers' windows are not known.
    """
    if shape.windows is None:
        raise NotCountedError("the configuration has a sliding window, but does not say which layers use it")
    length = shape.row_length
    pairs = 0.0
    for window in shape.windows:
        seen = length if window is None else min(window, length)
        pairs += length * seen - seen * (seen - 1) / 2
    return 6 * shape.matrix_parameters + 12 * shape.n_heads * shape.head_dim * pairs / length


def maxtext(shape: Shape) -> float:
    """What MaxText's `calculate_tflops_training_per_device` counts for a dense decoder, per token: 6 N + 6 L H d T.

    Half of the square in every layer, so a sliding window changes nothing (its branches for Gemma and GPT-OSS are
    refused where the shape is read). AI-Hypercomputer/maxtext, src/maxtext/utils/maxtext_utils.py.
    """
    return 6 * shape.matrix_parameters + 6 * shape.n_layers * shape.n_heads * shape.head_dim * shape.row_length


def palm(shape: Shape) -> float:
    """PaLM, appendix B (arXiv 2204.02311): 6 N + 12 L H Q T, the whole square in every layer, causal or not.

    N here leaves out the input embedding, which multiplies nothing.
    """
    return 6 * shape.matrix_parameters + 12 * shape.n_layers * shape.n_heads * shape.head_dim * shape.row_length


@dataclass(frozen=True, slots=True)
class Formula:
    """A way of counting, with what it is called."""

    name: Literal["exact", "maxtext", "palm"]
    title: str
    count: Callable[[Shape], float]


FORMULAS = (
    Formula("exact", "Exact, sliding windows counted", exact),
    Formula("maxtext", "As MaxText counts", maxtext),
    Formula("palm", "As in PaLM, appendix B", palm),
)
