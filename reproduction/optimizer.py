"""AdamW as OLMo 3 uses it, and the schedules of the lab."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from reproduction.olmo3.model import Params

Rate = Callable[[Any], jax.Array]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Learning rate of the S-th update.

    A linear rise over `warmup` updates to `peak`; after that constant, or half a cosine down to `final`.
    """

    peak: float = 2e-3
    final: float = 2e-4
    warmup: int = 20
    kind: Literal["cosine", "constant"] = "cosine"

    def __call__(self, steps: int) -> Rate:
        """The rate as a function of S (1 … `steps`)."""
        rise = optax.linear_schedule(0.0, self.peak, self.warmup)
        length = max(1, steps - self.warmup)
        after = (
            optax.constant_schedule(self.peak)
            if self.kind == "constant"
            else optax.cosine_decay_schedule(self.peak, length, alpha=self.final / self.peak)
        )
        joined = optax.join_schedules([rise, after], [self.warmup])
        return lambda update: jnp.asarray(joined(update))


def adamw(rate: Rate) -> optax.GradientTransformation:
    """AdamW(0.9, 0.95, 1e-8), weight decay 0.1 on all but the embeddings, gradients clipped to norm 1.

    `rate` takes S counted from 1; Optax counts updates already made.
    """

    def decays(params: Params) -> Params:
        return jax.tree.map_with_path(lambda path, _: "embeddings" not in jax.tree_util.keystr(path), params)

    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(lambda count: rate(count + 1), b1=0.9, b2=0.95, eps=1e-8, weight_decay=0.1, mask=decays),
    )
