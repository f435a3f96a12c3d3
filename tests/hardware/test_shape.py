"""Shapes out of trainers' own configurations, and why there is none."""

from __future__ import annotations

from typing import Any

import olmo3_config
import pytest

from service.hardware.flops import NotCountedError, Shape, exact
from service.hardware.shape import shape_of

WINDOWS = tuple(None if layer % 4 == 3 else 4096 for layer in range(32))
OLMO3_7B = Shape(4096, 11008, 32, 32, 32, 128, 100_278, 3, 8192, WINDOWS)

MAXTEXT: dict[str, Any] = {
    "model_name": "olmo3-7b",
    **olmo3_config.OLMO3_7B,
    "decoder_block": "DecoderBlockType.OLMO3",
    "base_emb_dim": 4096,
    "attention_type": "global",
    "num_experts": 1,
    "mtp_num_layers": 0,
    "use_multimodal": False,
    "trainer_hooks": {"raw": "maxtext/", "vocab_size": 1},
}
OLMO_CORE: dict[str, Any] = {
    "model": {
        "name": "default",
        "d_model": 4096,
        "vocab_size": 100_278,
        "n_layers": 32,
        "block": {
            "attention": {
                "n_heads": 32,
                "n_kv_heads": None,
                "sliding_window": {
                    "pattern": [4096, 4096, 4096, -1],
                    "force_full_attention_on_first_layer": False,
                    "force_full_attention_on_last_layer": True,
                },
            },
            "feed_forward": {"hidden_size": 11008, "bias": False},
        },
    },
    "dataset": {"sequence_length": 8192},
}
LEVANTER: dict[str, Any] = {
    "model": {
        "type": "olmo3",
        "hidden_dim": 4096,
        "intermediate_dim": 11008,
        "num_layers": 32,
        "num_heads": 32,
        "num_kv_heads": 32,
        "sliding_window": 4096,
        "max_seq_len": 8192,
    },
    "vocab_size": 100_278,
    "trainer": {"train_batch_size": 512},
}
HUGGING_FACE: dict[str, Any] = {
    "model_type": "olmo3",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 100_278,
    "max_position_embeddings": 65536,
    "sliding_window": 4096,
    "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 8,
}


@pytest.mark.parametrize("config", [MAXTEXT, OLMO_CORE, LEVANTER], ids=["maxtext", "olmo-core", "levanter"])
def test_the_same_model_in_every_spelling(config: dict[str, Any]) -> None:
    assert shape_of(config) == OLMO3_7B


def test_hugging_face_says_no_row_length() -> None:
    with pytest.raises(NotCountedError, match="length of a row is not known: start the run with batch_shape"):
        shape_of(HUGGING_FACE)
    assert shape_of(HUGGING_FACE, [512, 8192]) == OLMO3_7B


def test_the_batch_says_how_long_rows_are() -> None:
    assert shape_of(MAXTEXT, [512, 4096]).row_length == 4096
    assert shape_of(MAXTEXT, [512]).row_length == 8192


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"sliding_window_size": 0}, (None,) * 32),
        ({"decoder_block": "llama2"}, (None,) * 32),
        ({"decoder_block": "llama2", "attention_type": "local_sliding"}, (4096,) * 32),
        ({"decoder_block": "gpt3"}, None),
    ],
)
def test_windows_of_maxtext(changes: dict[str, Any], windows: tuple[int | None, ...] | None) -> None:
    shape = shape_of(MAXTEXT | changes)
    assert shape.windows == windows
    if windows is None:
        with pytest.raises(NotCountedError, match="does not say which layers"):
            exact(shape)


def test_olmo_core_forces_its_ends() -> None:
    config: dict[str, Any] = {"model": {"name": "default", "d_model": 8, "d_hidden": 8, "n_layers": 6, "n_heads": 2}}
    config |= {"vocab_size": 10, "sliding_window": {"pattern": [4, -1]}}
    assert shape_of(config, [1, 16]).windows == (None, 4, None, 4, None, None)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({}, "sent no configuration"),
        ({"trainer_hooks": {"steps": "x"}}, "sent no configuration"),
        ({"emb_dim": 4096}, r"lacks d_hidden \(mlp_dim, base_mlp_dim, d_hidden\); n_layers"),
        (MAXTEXT | {"num_experts": 8}, "num_experts = 8: only dense decoders"),
        (MAXTEXT | {"attention_type": "mla"}, "mla"),
        (MAXTEXT | {"use_dpo": True}, "use_dpo"),
        (MAXTEXT | {"emb_dim": 0}, "d_model is 0"),
        (MAXTEXT | {"emb_dim": "wide"}, "d_model is 'wide'"),
        (MAXTEXT | {"num_decoder_layers": 10**9}, "more than any model has"),
        (MAXTEXT | {"head_dim": None, "num_query_heads": 33}, "no multiple of 33 heads"),
        (HUGGING_FACE | {"model_type": "gemma3"}, "'gemma3' is not known here"),
        ({"model": {**LEVANTER["model"], "type": None}, "vocab_size": 8}, "names no model kind"),
        ({"a": HUGGING_FACE, "b": HUGGING_FACE | {"hidden_size": 8}}, "hidden_size has several values"),
        ({**OLMO_CORE, "block": {"feed_forward_moe": {"num": 4}}}, "feed_forward_moe.num: only dense"),
    ],
)
def test_no_shape_and_why(config: dict[str, Any], why: str) -> None:
    with pytest.raises(NotCountedError, match=why):
        shape_of(config, [8, 8192])
