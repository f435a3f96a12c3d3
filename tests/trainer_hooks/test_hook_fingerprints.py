from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trainer_hooks.fingerprints import Fingerprints, row_hashes, sampled_rows, snapshot


def test_the_examples_of_the_wire_description() -> None:
    rows = snapshot(np.array([[1, 2, 3, 4], [0, 0, 0, 0], [-1, 70000, 5, 6]]))
    assert [f"{int(h):016x}" for h in row_hashes(rows)] == ["c87a38f318fafe9d", "5250a507f994740e", "80f87a3bab6a418c"]


@given(hnp.arrays(st.sampled_from(["<i4", ">i4", "<u2", "<i8"]), hnp.array_shapes(min_dims=2, max_dims=2, max_side=9)))
def test_a_hash_is_of_the_tokens_not_of_their_storage(rows: np.ndarray) -> None:
    expected = [
        int.from_bytes(hashlib.blake2b(row.astype("<u4").tobytes(), digest_size=8).digest(), "big") for row in rows
    ]
    assert row_hashes(snapshot(rows)).tolist() == expected
    assert row_hashes(snapshot(np.asfortranarray(rows))).tolist() == expected
    assert row_hashes(snapshot(rows[::-1])).tolist() == expected[::-1]


def test_equal_rows_are_sampled_together_and_one_in_n_is() -> None:
    rows = snapshot(np.arange(40_000).reshape(20_000, 2))
    kept = sampled_rows(rows, 16)
    assert all(number % 16 == 0 for number in kept)
    assert abs(len(kept) - 20_000 / 16) < 5 * (20_000 / 16) ** 0.5
    assert sampled_rows(rows, 16) == kept
    assert len(sampled_rows(rows, 1)) == 20_000


def test_padding_rows_are_left_out_and_still_seen() -> None:
    rows = np.stack([np.arange(512), np.zeros(512, int), np.arange(512) % 31])
    hook = Fingerprints(1)
    hook.add(1, snapshot(rows), 0)
    body = next(body for body in hook.due(0.0) if body["kind"] == "rows")
    assert body["hashes"] == [f"{int(row_hashes(snapshot(rows))[0]):016x}"]
    assert body["seen"] == [[1, 1, 3]]


def test_the_snapshot_is_a_copy() -> None:
    rows = np.zeros((2, 3), "<u4")
    copy = snapshot(rows)
    rows[:] = 1
    assert not copy.any()


@pytest.mark.parametrize("rows", [np.zeros(3, int), np.zeros((2, 2, 2), int), np.zeros((2, 3)), [["a"]]])
def test_other_shapes_and_types_are_refused(rows: object) -> None:
    with pytest.raises(ValueError, match="rows must"):
        snapshot(rows)


def test_seen_runs_cover_what_was_reported_and_nothing_else() -> None:
    hook = Fingerprints(sample=1)
    for step, count in ((5, 2), (6, 2), (8, 2), (9, 1), (9, 1), (10, 1)):
        hook.add(step, snapshot(np.full((count, 4), step)), 2)
    (body,) = hook.due(0.0)
    assert body["seen"] == [[5, 6, 2], [8, 9, 2], [10, 10, 1]]
    assert body["steps"] == [5, 5, 6, 6, 8, 8, 9, 9, 10]
    assert body["hashes"][0] == body["hashes"][1] != body["hashes"][2]
    assert (body["kind"], body["host"], body["sample"]) == ("rows", 2, 1)
    assert hook.due(0.0) == []


def text(rows: int, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 100_352, (rows, length))


def test_that_nothing_was_met_is_told_more_rarely() -> None:
    hook = Fingerprints(2**40)
    assert [body["kind"] for body in kinds_after(hook, 1, 100.0)] == ["rows", "windows"]  # the first
    assert [body["kind"] for body in kinds_after(hook, 2, 129.0)] == ["rows"]
    assert [body["seen"] for body in kinds_after(hook, 3, 130.0)] == [[[3, 3, 1]], [[2, 3, 1]]]
    hook = Fingerprints(1)
    hook.due(100.0)
    hook.add(1, snapshot(text(64, 256)), 0)
    assert [body["kind"] for body in hook.due(100.5)] == ["rows", "windows"]  # windows were met


def kinds_after(hook: Fingerprints, step: int, now: float) -> list[dict[str, Any]]:
    hook.add(step, snapshot(text(1, 64, step)), 0)
    return hook.due(now)


def test_going_back_ends_the_records() -> None:
    """What one record says twice of a step is two readings; what two say is one."""
    hook = Fingerprints(1)
    assert [hook.full(step, 0) for step in (1, 2, 2, 3, 1, 2)] == [False, False, False, False, True, False]
    assert not hook.full(0, 1)
