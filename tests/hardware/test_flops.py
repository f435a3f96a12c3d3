"""FLOPs per token against figures worked out by hand, and the peaks they are divided by."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.hardware.flops import FORMULAS, NotCountedError, Shape, exact, maxtext, palm
from service.hardware.peaks import peak

WINDOWS = tuple(None if layer % 4 == 3 else 4096 for layer in range(32))
OLMO3_7B = Shape(4096, 11008, 32, 32, 32, 128, 100_278, 3, 8192, WINDOWS)


def maxtext_by_its_own_steps(shape: Shape, rows: int) -> float:
    """TFLOP of a step per device as `calculate_tflops_training_per_device` goes about it, for a dense decoder."""
    tokens = rows * shape.row_length
    ffn1 = 2 * tokens * shape.d_hidden * shape.d_model * (shape.mlp_matrices - 1)
    ffn2 = 2 * tokens * shape.d_hidden * shape.d_model
    qkv = 2 * tokens * shape.d_model * (shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim
    projection = 2 * tokens * shape.d_model * shape.n_heads * shape.head_dim
    attention = 4 * rows * shape.row_length**2 * shape.n_heads * shape.head_dim / 2
    head = 2 * tokens * shape.d_model * shape.vocab_size
    learnable = ((ffn1 + ffn2 + qkv + projection) * shape.n_layers + head) * 3 / 10**12
    return learnable + attention * shape.n_layers * 3 / 10**12


def test_olmo3_7b() -> None:
    # N = 32 · (4 · 4096² + 3 · 4096 · 11008) + 4096 · 100278; 6 N = 41.320 GFLOP a token.
    assert OLMO3_7B.matrix_parameters == 6_886_744_064
    assert 6 * OLMO3_7B.matrix_parameters == 41_320_464_384
    # 6 · 32 · 4096 · 8192 = 6.442 GFLOP of attention as MaxText counts it: 47.763 in all.
    assert maxtext(OLMO3_7B) == 47_762_915_328
    # Pairs a token attends to: 4096.5 in each of 8 full layers, 4096 − 4096 · 4095 / 2 / 8192 = 3072.25 in 24 with the
    # window; 12 · 4096 · (8 · 4096.5 + 24 · 3072.25) = 5.235 GFLOP.
    assert exact(OLMO3_7B) == 41_320_464_384 + 12 * 4096 * (8 * 4096.5 + 24 * 3072.25)
    assert maxtext(OLMO3_7B) / exact(OLMO3_7B) == pytest.approx(1.0259, abs=1e-4)
    # 12 · 32 · 4096 · 8192 = 12.885 GFLOP.
    assert palm(OLMO3_7B) == 41_320_464_384 + 12_884_901_888


def test_a_model_with_fewer_heads_for_keys_and_values() -> None:
    # Llama 3.1 8B at 8192: 4096 wide, 14336, 32 layers, 32 and 8 heads, 128256 tokens; 45.0 + 6.4 GFLOP a token.
    llama = Shape(4096, 14336, 32, 32, 8, 128, 128_256, 3, 8192, (None,) * 32)
    assert llama.matrix_parameters == 32 * (4096 * 128 * 80 + 3 * 4096 * 14336) + 4096 * 128_256 == 7_504_658_432
    assert maxtext(llama) == 6 * 7_504_658_432 + 6_442_450_944


shapes = st.builds(
    Shape,
    *[st.integers(1, 4096)] * 2,
    st.just(6),
    *[st.integers(1, 64)] * 3,
    st.integers(1, 100_000),
    st.sampled_from([2, 3]),
    st.integers(1, 512),
    st.lists(st.one_of(st.none(), st.integers(1, 600)), min_size=6, max_size=6).map(tuple),
)


@given(shapes, st.integers(1, 8))
def test_maxtext_is_maxtext(shape: Shape, rows: int) -> None:
    per_step = maxtext_by_its_own_steps(shape, rows) * 1e12
    assert maxtext(shape) * rows * shape.row_length == pytest.approx(per_step, rel=1e-9)


@given(shapes)
def test_exact_counts_every_pair_of_the_mask(shape: Shape) -> None:
    assert shape.windows is not None
    pairs = sum(
        min(position + 1, window or shape.row_length)
        for window in shape.windows
        for position in range(shape.row_length)
    )
    attention = 12 * shape.n_heads * shape.head_dim * pairs / shape.row_length
    assert exact(shape) == pytest.approx(6 * shape.matrix_parameters + attention, rel=1e-12)
    assert exact(shape) <= exact(replace(shape, windows=(None,) * 6)) <= palm(shape) * (1 + 1e-12)


def test_unknown_windows_leave_the_other_formulas() -> None:
    shape = replace(OLMO3_7B, windows=None)
    with pytest.raises(NotCountedError, match="which layers"):
        exact(shape)
    assert [formula.name for formula in FORMULAS] == ["exact", "maxtext", "palm"]
    assert maxtext(shape) == maxtext(OLMO3_7B)


@pytest.mark.parametrize(
    ("kind", "name", "tflops"),
    [
        ("TPU v4", "TPU v4", 275),
        ("TPU v5 lite", "TPU v5e", 197),
        ("TPU v5e", "TPU v5e", 197),
        ("TPU v5", "TPU v5p", 459),
        ("TPU v5p", "TPU v5p", 459),
        ("TPU v6 lite", "TPU v6e (Trillium)", 918),
        ("TPU7x", "TPU v7x (Ironwood)", 1153.5),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100", 312),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100", 312),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM", 989.4),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", "NVIDIA H100 NVL", 835.5),
        ("NVIDIA H200", "NVIDIA H200 SXM", 989.4),
        ("NVIDIA B200", "NVIDIA B200", 2250),
        ("AMD Instinct MI300X", "AMD Instinct MI300X", 1307.4),
    ],
)
def test_peaks(kind: str, name: str, tflops: float) -> None:
    found = peak(kind)
    assert found is not None
    assert (found.name, found.tflops) == (name, tflops)
    assert found.source


@pytest.mark.parametrize(
    "kind", [None, "", "cpu", "TPU v4 lite", "TPU v9", "NVIDIA H100 PCIe MIG 1g.10gb", "NVIDIA L4"]
)
def test_an_unknown_device_has_no_peak(kind: str | None) -> None:
    assert peak(kind) is None
