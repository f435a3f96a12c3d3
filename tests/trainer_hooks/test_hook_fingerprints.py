from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trainer_hooks.fingerprints import RowsRecord, row_hashes, sampled, snapshot


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
    hashes = row_hashes(rows)
    kept = sampled(hashes, 16)
    assert all(int(text, 16) % 16 == 0 and len(text) == 16 for text in kept)
    assert abs(len(kept) - 20_000 / 16) < 5 * (20_000 / 16) ** 0.5
    assert sampled(row_hashes(rows), 16) == kept
    assert len(sampled(hashes, 1)) == 20_000


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
    record = RowsRecord(host=2, sample=1)
    for step, count in ((5, 2), (6, 2), (8, 2), (9, 1), (9, 1), (10, 1)):
        record.add(step, snapshot(np.full((count, 4), step)))
    body = record.body()
    assert body["seen"] == [[5, 6, 2], [8, 9, 2], [10, 10, 1]]
    assert body["steps"] == [5, 5, 6, 6, 8, 8, 9, 9, 10]
    assert body["hashes"][0] == body["hashes"][1] != body["hashes"][2]
    assert (body["kind"], body["host"], body["sample"]) == ("rows", 2, 1)
