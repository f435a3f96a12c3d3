"""A decoder in OLMo 3's shape, in Flax NNX, of any size.

The block is OLMo's "reordered norm" (the norm is applied to what a sublayer puts out, nothing is normed on its way in);
queries and keys are normed over their full width before RoPE; three sliding-window layers are followed by one with full
attention; SwiGLU, no biases, untied embeddings. Source: OLMo-core, src/olmo_core/nn/transformer/config.py (`olmo3_7B`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

Params = Any  # a pytree: the `nnx.State` of a Decoder's `nnx.Param`s


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of a model. The defaults are the lab's: 1.07 M parameters."""

    vocab_size: int = 1024
    d_model: int = 128
    n_layers: int = 4
    n_heads: int = 4
    d_hidden: int = 352
    window: int = 32  # positions a sliding-window layer sees, its own included
    full_attention_every: int = 4  # layers 3, 7, … (0-based) see everything before them; 0: none does
    rope_theta: float = 500_000.0
    norm_eps: float = 1e-6
    init_std: float = 0.02

    def __post_init__(self) -> None:
        if self.d_model % self.n_heads or (self.d_model // self.n_heads) % 2:
            raise ValueError(f"d_model {self.d_model} must split into {self.n_heads} heads of even width")

    def is_full_attention(self, layer: int) -> bool:
        """Whether `layer` (0-based) attends to the whole past."""
        return self.full_attention_every > 0 and (layer + 1) % self.full_attention_every == 0

    @property
    def parameters(self) -> int:
        """Number of parameters, embeddings included."""
        layer = 4 * self.d_model**2 + 3 * self.d_model * self.d_hidden + 4 * self.d_model
        return 2 * self.vocab_size * self.d_model + self.n_layers * layer + self.d_model


def rope(x: jax.Array, theta: float) -> jax.Array:
    """Rotary position embedding of `x` (batch, positions, heads, width): a head's first half against its second."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] * frequencies
    cos, sin = jnp.cos(angles)[:, None, :], jnp.sin(angles)[:, None, :]
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _linear(config: Config, n_in: int, n_out: int, rngs: nnx.Rngs) -> nnx.Linear:
    return nnx.Linear(n_in, n_out, use_bias=False, kernel_init=nnx.initializers.normal(config.init_std), rngs=rngs)


def _norm(config: Config, rngs: nnx.Rngs) -> nnx.RMSNorm:
    return nnx.RMSNorm(config.d_model, epsilon=config.norm_eps, rngs=rngs)


class Attention(nnx.Module):
    """Causal self-attention with QK-norm and RoPE; `window` positions wide, or unbounded where `window` is None."""

    def __init__(self, config: Config, window: int | None, rngs: nnx.Rngs) -> None:
        d = config.d_model
        self.config = config
        self.window = window
        self.q, self.k, self.v, self.out = (_linear(config, d, d, rngs) for _ in range(4))
        self.q_norm, self.k_norm = (_norm(config, rngs) for _ in range(2))

    def __call__(self, x: jax.Array) -> jax.Array:
        split = (*x.shape[:2], self.config.n_heads, -1)
        q = rope(self.q_norm(self.q(x)).reshape(split), self.config.rope_theta)
        k = rope(self.k_norm(self.k(x)).reshape(split), self.config.rope_theta)
        v = self.v(x).reshape(split)
        past = None if self.window is None else (self.window - 1, 0)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True, local_window_size=past)
        return self.out(mixed.reshape(x.shape))


class FeedForward(nnx.Module):
    """SwiGLU."""

    def __init__(self, config: Config, rngs: nnx.Rngs) -> None:
        self.gate = _linear(config, config.d_model, config.d_hidden, rngs)
        self.up = _linear(config, config.d_model, config.d_hidden, rngs)
        self.down = _linear(config, config.d_hidden, config.d_model, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.down(jax.nn.silu(self.gate(x)) * self.up(x))


class Block(nnx.Module):
    """h = x + norm(attention(x)); y = h + norm(feed_forward(h))."""

    def __init__(self, config: Config, window: int | None, rngs: nnx.Rngs) -> None:
        self.attention = Attention(config, window, rngs)
        self.attention_norm = _norm(config, rngs)
        self.feed_forward = FeedForward(config, rngs)
        self.feed_forward_norm = _norm(config, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        h = x + self.attention_norm(self.attention(x))
        return h + self.feed_forward_norm(self.feed_forward(h))


class Decoder(nnx.Module):
    """The language model: token ids (batch, positions) to logits (batch, positions, vocabulary), float32."""

    def __init__(self, config: Config, rngs: nnx.Rngs) -> None:
        self.config = config
        init = nnx.initializers.normal(config.init_std)
        self.embeddings = nnx.Embed(config.vocab_size, config.d_model, embedding_init=init, rngs=rngs)
        self.blocks = nnx.List(
            Block(config, None if config.is_full_attention(i) else config.window, rngs) for i in range(config.n_layers)
        )
        self.norm = _norm(config, rngs)
        self.head = _linear(config, config.d_model, config.vocab_size, rngs)

    def hidden(self, tokens: jax.Array) -> jax.Array:
        """What the last block puts out, normed: (batch, positions, d_model). `head` of it are the logits."""
        x = self.embeddings(tokens)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        return self.head(self.hidden(tokens))
