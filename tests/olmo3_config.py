"""OLMo 3 7B as MaxText's configuration names it, for tests of hardware use."""

from __future__ import annotations

OLMO3_7B: dict[str, object] = {
    "decoder_block": "olmo3",
    "emb_dim": 4096,
    "mlp_dim": 11008,
    "mlp_activations": ["silu", "linear"],
    "num_decoder_layers": 32,
    "num_query_heads": 32,
    "num_kv_heads": 32,
    "head_dim": 128,
    "vocab_size": 100_278,
    "max_target_length": 8192,
    "sliding_window_size": 4096,
}
