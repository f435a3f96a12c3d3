"""AI2's schedule, to the printed digits, and what holds for every formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.references.bundle import load_bundle
from service.references.schedule import FORMULAS, Piece, learning_rate
from service.references.shipped import BUNDLES

PRINTED = {
    10_000: "2.99970e-04",
    100_000: "2.95508e-04",
    300_000: "2.60339e-04",
    500_000: "1.99208e-04",
    597_046: "1.65000e-04",
    700_000: "1.44709e-04",
    800_000: "1.25438e-04",
    900_000: "1.07014e-04",
    1_000_000: "8.9834e-05",
    1_100_000: "7.4265e-05",
    1_200_000: "6.0641e-05",
    1_300_000: "4.9255e-05",
    1_400_000: "4.0349e-05",
    1_413_814: "3.9325e-05",
}


@pytest.fixture(scope="module")
def pieces() -> list[Piece]:
    return load_bundle(BUNDLES / "olmo3-7b").description.schedule


@pytest.mark.parametrize(("step", "printed"), PRINTED.items())
def test_stage1_values(pieces: list[Piece], step: int, printed: str) -> None:
    values = learning_rate(pieces, "stage1", [step])
    assert values is not None
    digits = len(printed.split("e")[0].split(".")[1])
    assert f"{values[0]:.{digits}e}" == printed


def test_the_two_cosines_meet(pieces: list[Piece]) -> None:
    values = learning_rate(pieces, "stage1", [597_045, 597_046, 597_047])
    assert values is not None
    assert values[0] > values[1] > values[2]
    assert values[0] - values[2] < 1e-9


def test_warm_up_and_linear_stage(pieces: list[Piece]) -> None:
    first = learning_rate(pieces, "stage1", [0, 1000, 2000])
    second = learning_rate(pieces, "stage2", [0, 23_842, 47_684, 50_000])
    third = learning_rate(pieces, "stage3", [100, 200])
    assert first is not None
    assert second is not None
    assert third is not None
    np.testing.assert_allclose(first, [0, 1.5e-4, 3e-4])
    np.testing.assert_allclose(second, [2.0712352850360292e-4, 1.0356176425180146e-4, 0, 0], atol=1e-20)
    np.testing.assert_allclose(third, [1.0356176425180146e-4, 2.0712352850360292e-4])


def test_a_stage_without_schedule(pieces: list[Piece]) -> None:
    assert learning_rate(pieces, "another", [0]) is None


@given(
    kind=st.sampled_from(sorted(FORMULAS)),
    peak=st.floats(1e-6, 1.0),
    warmup=st.integers(0, 500),
    length=st.integers(1, 5000),
    fraction=st.floats(0, 1),
    steps=st.lists(st.integers(0, 10_000), min_size=1, max_size=50),
)
def test_every_formula_stays_within_its_peak(
    kind: str, peak: float, warmup: int, length: int, fraction: float, steps: list[int]
) -> None:
    piece = Piece.model_validate(
        {
            "stage": "s",
            "from_step": 0,
            "kind": kind,
            "peak": peak,
            "warmup_steps": warmup,
            "final_fraction": fraction,
            "total_steps": warmup + length,
        }
    )
    values = learning_rate([piece], "s", steps)
    assert values is not None
    assert np.all(values <= peak * (1 + 1e-12))
    assert np.all(values >= -1e-15 * peak)
    after = values[np.asarray(steps) >= warmup]
    assert np.all(after >= peak * (fraction - 1e-12)), "never below the floor once warm"
