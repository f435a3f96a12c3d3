"""The model has OLMo 3's shape, and its checkpoints come back as they went in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from reproduction.olmo3 import checkpoint
from reproduction.olmo3.model import Block, Config, Decoder, rope

SMALL = Config(vocab_size=32, d_model=32, n_layers=2, n_heads=4, d_hidden=48, window=4, full_attention_every=2)
LARGE_WEIGHTS = replace(SMALL, init_std=0.5)  # so that the norms' epsilon is not felt
LENGTH = 16


def logits(config: Config, tokens: jax.Array) -> np.ndarray:
    return np.asarray(jax.jit(Decoder(config, nnx.Rngs(1)))(tokens))


def changed_positions(config: Config, position: int) -> list[int]:
    """Positions whose logits move when the token at `position` is another one."""
    tokens = jnp.arange(LENGTH)[None] % config.vocab_size
    before, after = logits(config, tokens), logits(config, tokens.at[0, position].set(31))
    return np.flatnonzero((before != after).any(axis=-1)[0]).tolist()


def test_lab_model_has_the_stated_number_of_parameters() -> None:
    _, params = nnx.split(Decoder(Config(), nnx.Rngs(0)), nnx.Param)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == Config().parameters == 1_067_136


def test_olmo3_7b_sizes_give_its_published_number_of_parameters() -> None:
    full = Config(vocab_size=100_278, d_model=4096, n_layers=32, n_heads=32, d_hidden=11_008, window=4096)
    assert full.parameters == 7_298_011_136
    assert [i for i in range(32) if full.is_full_attention(i)] == list(range(3, 32, 4))


def test_no_position_sees_a_later_token() -> None:
    assert changed_positions(SMALL, 9) == list(range(9, LENGTH))


def test_sliding_windows_hide_what_lies_beyond_them() -> None:
    local = replace(SMALL, full_attention_every=0)
    reach = local.n_layers * (local.window - 1)
    assert changed_positions(local, 0) == list(range(reach + 1))


def test_a_block_norms_what_its_sublayers_put_out() -> None:
    block = Block(LARGE_WEIGHTS, None, nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (2, LENGTH, SMALL.d_model))
    added = np.asarray(block(x) - x)
    assert not np.allclose(added, 0)
    block.attention_norm.scale[...] = jnp.zeros(SMALL.d_model)
    block.feed_forward_norm.scale[...] = jnp.zeros(SMALL.d_model)
    np.testing.assert_array_equal(block(x), x)
    block.feed_forward_norm.scale[...] = jnp.ones(SMALL.d_model)
    np.testing.assert_allclose(np.square(block(x) - x).mean(axis=-1), 1.0, rtol=0.05)


def test_queries_are_normed_over_their_full_width() -> None:
    block = Block(LARGE_WEIGHTS, None, nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (1, LENGTH, SMALL.d_model))
    before = np.asarray(block(x))
    block.attention.q.kernel[...] = block.attention.q.kernel[...] * 100
    np.testing.assert_allclose(block(x), before, rtol=1e-4, atol=1e-4)
    one_head = jnp.arange(SMALL.d_model) < SMALL.d_model // SMALL.n_heads
    block.attention.q.kernel[...] = jnp.where(
        one_head, block.attention.q.kernel[...] * 100, block.attention.q.kernel[...]
    )
    assert np.abs(np.asarray(block(x)) - before).max() > 0.05  # a norm per head would have undone that


def test_rope_depends_on_the_distance_alone() -> None:
    q, k = jax.random.normal(jax.random.key(0), (2, 8))
    turned_q, turned_k = (np.asarray(rope(jnp.tile(x, (1, LENGTH, 1, 1)), 100.0))[0, :, 0] for x in (q, k))
    scores = turned_q @ turned_k.T
    for distance in range(-3, 4):
        diagonal = np.diagonal(scores, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-4, atol=1e-4)
    assert np.ptp(scores[0]) > 0.1


def test_heads_of_odd_width_are_refused() -> None:
    with pytest.raises(ValueError, match="heads of even width"):
        Config(d_model=36, n_heads=4)


def test_a_checkpoint_comes_back_bit_by_bit(tmp_path: Path) -> None:
    model = Decoder(SMALL, nnx.Rngs(5))
    checkpoint.save(tmp_path / "new" / "model.safetensors", nnx.split(model, nnx.Param)[1], SMALL)
    graph, params, config = checkpoint.load(tmp_path / "new" / "model.safetensors")
    tokens = jnp.arange(LENGTH)[None]
    assert config == SMALL
    np.testing.assert_array_equal(nnx.merge(graph, params)(tokens), model(tokens))


def test_what_is_no_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    checkpoint.save(path, nnx.split(Decoder(SMALL, nnx.Rngs(5)), nnx.Param)[1], SMALL)
    whole = path.read_bytes()
    wider = whole.replace(b'd_model\\": 32', b'd_model\\": 64')
    assert wider != whole
    for damaged in (whole[:-10], b"", b"text", wider):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            checkpoint.load(path)
    with pytest.raises(FileNotFoundError):
        checkpoint.load(tmp_path / "none.safetensors")
