"""Windows chosen by content, and held-out text looked for by them."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_hooks.fingerprints import Fingerprints, snapshot
from trainer_hooks.heldout_windows import HeldoutWindows, windows_of
from trainer_hooks.windows import LENGTH, Rolling, chosen, is_text, number, starts

MULTIPLIERS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)


def text(rows: int, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 100_352, (rows, length)).astype("<u4")


def rolling_by_the_book(window: list[int]) -> int:
    """docs/wire.md, read out loud."""
    hashes = window
    for multiplier in MULTIPLIERS:
        size = LENGTH // len(hashes)
        assert size * len(hashes) == LENGTH
        hashes = [(multiplier * a + b) % 2**32 for a, b in zip(hashes[::2], hashes[1::2], strict=True)]
    return hashes[0] * 0x2C1B3C6D % 2**32


def all_chosen(rows: np.ndarray, sample: int) -> list[int]:
    rows = snapshot(rows)
    return chosen(rows, Rolling()(rows.reshape(-1)), sample)


def test_the_example_of_the_wire_description() -> None:
    window = np.arange(1, 33, dtype="<u4")
    rolling = rolling_by_the_book(window.tolist())
    assert f"{number(rolling, window):016x}" == "e5a615005028e463"
    assert Rolling()(window).tolist() == [rolling]


@given(st.integers(0, 200), st.integers(0, 2**32 - 1), st.booleans())
def test_the_rolling_hash_is_that_of_each_window_alone(length: int, seed: int, again: bool) -> None:
    tokens = np.random.default_rng(seed).integers(0, 2**32, length).astype("<u4")
    rolling = Rolling()
    if again:
        rolling(text(1, 300).reshape(-1))  # buffers that were used before
    expected = [rolling_by_the_book(tokens[i : i + LENGTH].tolist()) for i in range(length - LENGTH + 1)]
    assert rolling(tokens).tolist() == expected


def test_one_window_in_so_many_is_chosen_and_none_lies_across_rows() -> None:
    rows = text(40, 500)
    for sample in (1, 7, 64, 500):
        found = all_chosen(rows, sample)
        expected = 40 * (500 - LENGTH + 1) / sample
        assert abs(len(found) - expected) <= 5 * expected**0.5 * (sample > 1)
        assert all(made * sample < 2**64 for made in found)
    assert set(all_chosen(rows, 500)) <= set(all_chosen(rows, 64))
    hashes = Rolling()(rows.reshape(-1))
    inside = starts(hashes, 2**32, 500)
    assert len(inside) == 40 * (500 - LENGTH + 1)
    assert all_chosen(text(5, LENGTH - 1), 1) == []


@given(st.integers(32, 400), st.integers(0, 1000), st.integers(0, 2**32 - 1))
def test_a_text_is_recognised_at_any_place(length: int, before: int, seed: int) -> None:
    piece = text(1, length, seed)
    row = np.concatenate([text(1, before, seed + 1), piece, text(1, 50, seed + 2)], axis=1)
    assert set(all_chosen(piece, 4)) <= set(all_chosen(row, 4))


def test_what_stands_twice_in_a_row_is_sent_once() -> None:
    piece = text(1, 300)
    twice = np.concatenate([piece, text(1, 40, 1), piece], axis=1)
    found = all_chosen(twice, 4)
    assert len(found) == len(set(found))
    assert len(all_chosen(np.concatenate([piece, piece]), 4)) == 2 * len(all_chosen(piece, 4))


def test_padding_and_lists_are_no_text() -> None:
    word = text(1, LENGTH).reshape(-1)
    assert is_text(word)
    for size, expected in ((3, True), (4, False)):
        padded = word.copy()
        padded[:size] = 0
        assert is_text(padded) is expected
    assert not is_text(np.arange(LENGTH, dtype="<u4") % 15)
    assert is_text(np.arange(LENGTH, dtype="<u4") % 16)
    assert all_chosen(np.zeros((8, 500), "<u4"), 1) == []


def heldout(documents: list[np.ndarray], name: str = "c4") -> HeldoutWindows:
    known = HeldoutWindows()
    known.add(name, windows_of(documents))
    return known


def met(known: HeldoutWindows, rows: np.ndarray) -> list[tuple[str, int, int]]:
    return [(hit.set_name, hit.row, hit.count) for hit in known.met(rows, Rolling()(rows.reshape(-1)))]


def test_a_heldout_document_is_found_in_a_longer_row() -> None:
    documents = list(text(200, 600, seed=1))
    known = heldout(documents)
    assert abs(known.sizes()["c4"] - 200 * 569 / 64) < 5 * (200 * 569 / 64) ** 0.5
    rows = text(8, 8192)
    assert met(known, rows) == []
    rows[3, 1000:1600] = documents[7]
    rows[5, 7000:] = np.concatenate([documents[9], documents[10]])[:1192]
    assert [(name, row) for name, row, _ in met(known, rows)] == [("c4", 3), ("c4", 5)]
    both = heldout(documents)
    both.add("pile", windows_of(documents[7]))
    assert sorted((name, row) for name, row, _ in met(both, rows)) == [("c4", 3), ("c4", 5), ("pile", 3)]


@given(st.integers(1, 3), st.integers(32, 900), st.integers(0, 2**32 - 1), st.integers(0, 300))
def test_what_is_looked_for_is_what_is_met(rows: int, length: int, seed: int, before: int) -> None:
    batch = text(rows, length, seed)
    known = heldout([batch], "set")
    read = np.concatenate([text(rows, before, seed + 1), batch], axis=1)
    found = met(known, read)
    assert sum(count for _, _, count in found) >= known.sizes()["set"]
    assert (
        known.sizes()["set"] == len(windows_of({"tokens": batch.reshape(-1), "mask": np.ones(batch.size, bool)}))
        or rows > 1
    )


def test_every_way_to_give_a_set() -> None:
    rows = text(6, 700).astype(np.int64)
    expected = windows_of(rows).tolist()
    assert expected
    assert windows_of(list(rows)).tolist() == expected
    assert windows_of(lambda: iter([rows[:2], {"tokens": rows[2:]}])).tolist() == expected
    padded = np.concatenate([rows, text(6, 100, 5)], axis=1)
    mask = np.arange(800) < np.full((6, 1), 700)
    assert windows_of({"tokens": padded, "mask": mask}).tolist() == expected

    class Evaluation:
        def rows(self) -> list[dict[str, np.ndarray]]:
            return [{"tokens": padded, "mask": mask}]

    assert windows_of(Evaluation()).tolist() == expected


@pytest.mark.parametrize("convention", ["exact", "olmo_core"])
def test_an_evaluation_gives_its_text(convention: Any) -> None:
    from trainer_hooks.evals import HeldOut

    rows = text(6, 700).astype(np.int64)
    padded = np.concatenate([rows, np.zeros((6, 100), np.int64)], axis=1)
    mask = np.arange(800) < np.full((6, 1), 700)
    batches = [{"tokens": padded, "mask": mask}]
    evaluation = HeldOut("c4", batches, lambda weights, tokens: tokens, every=10, convention=convention, strict=True)
    assert windows_of(evaluation).tolist() == windows_of(rows).tolist()


@pytest.mark.parametrize(
    ("source", "why"),
    [("text", "token arrays"), (3, "token arrays"), ([np.zeros(50)], "integers"), ([np.zeros((2, 2, 2), int)], "rows"),
     ([{"input": 1}], "no tokens, only input"), ([{"tokens": np.zeros(9, int), "mask": np.zeros(8)}], "shape")],
)  # fmt: skip
def test_what_is_no_set_is_named(source: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        windows_of(source)


def test_the_bodies() -> None:
    documents = list(text(50, 600, seed=1))
    known = heldout(documents)
    hook = Fingerprints(4, known)
    rows = text(8, 512)
    rows[2, 100:400] = documents[3][:300]
    hook.add(7, snapshot(rows), 3)
    _, windows, hits = hook.due(0.0, everything=True)
    assert {key: windows[key] for key in ("kind", "host", "sample", "seen")} == {
        "kind": "windows", "host": 3, "sample": 4 * 512, "seen": [[7, 7, 8]]
    }  # fmt: skip
    assert [int(text_, 16) for text_ in windows["hashes"]] == all_chosen(rows, 2048)
    assert windows["steps"] == [7] * len(windows["hashes"])
    ((_, _, count),) = met(known, rows)
    assert hits == {
        "kind": "heldout_hits", "host": 3, "sample": 64, "set": "c4", "windows": known.sizes()["c4"], "steps": [7],
        "hashes": [hits["hashes"][0]], "seen": [[7, 7, 8]], "counts": [count],
    }  # fmt: skip
    assert int(hits["hashes"][0], 16) in windows_of(documents[3]).tolist()


def test_the_second_part_of_a_number_is_blake2b() -> None:
    window = text(1, LENGTH).reshape(-1)
    digest = hashlib.blake2b(window.astype("<u4").tobytes(), digest_size=4).hexdigest()
    assert f"{number(5, window):016x}" == f"00000005{digest}"


def test_a_window_is_chosen_up_to_the_very_rate_that_its_number_allows() -> None:
    rows = text(1, 2**20, seed=3)
    hashes = Rolling()(rows.reshape(-1)).copy()
    places = np.flatnonzero(hashes < 2**16).tolist()
    assert len(places) >= 5
    for place in places:
        made = number(int(hashes[place]), rows[0, place : place + LENGTH])
        most = (2**64 - 1) // made  # number x rate < 2**64
        assert made in chosen(rows, hashes, most)
        assert made not in chosen(rows, hashes, most + 1)


def test_the_very_largest_number_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = text(1, 2_000)
    for sample in (64, 1000):
        most = (2**64 - 1) // sample
        monkeypatch.setattr("trainer_hooks.windows.number", lambda *_, most=most: most)
        assert all_chosen(rows, sample) == [most]
        monkeypatch.setattr("trainer_hooks.windows.number", lambda *_, most=most: most + 1)
        assert all_chosen(rows, sample) == []


def test_a_masked_token_at_either_end_takes_the_window_out() -> None:
    tokens = text(1, 4_000, seed=4)
    hashes = Rolling()(tokens.reshape(-1)).copy()
    places = starts(hashes, 2**32 // 64, 4_000).tolist()
    place = next(at for at, after in itertools.pairwise(places) if after - at > LENGTH)
    made = number(int(hashes[place]), tokens[0, place : place + LENGTH])
    for off, there in ((-1, True), (0, False), (LENGTH - 1, False), (LENGTH, True)):
        mask = np.ones(tokens.shape, np.bool_)
        mask[0, place + off] = False
        assert (made in windows_of({"tokens": tokens, "mask": mask})) == there


def test_a_set_may_hold_so_many_windows_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = text(1, 4_000, seed=4)
    size = len(windows_of(tokens))
    monkeypatch.setattr("trainer_hooks.heldout_windows.MOST_WINDOWS", size)
    assert len(windows_of(tokens)) == size
    monkeypatch.setattr("trainer_hooks.heldout_windows.MOST_WINDOWS", size - 1)
    with pytest.raises(ValueError, match=f"more than {size - 1} windows"):
        windows_of(tokens)


@pytest.mark.parametrize("piece", [1, 31, 32, 33, 1_000])
def test_a_long_text_is_hashed_in_pieces_without_a_seam(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = text(1, 3_000, seed=5)
    whole = windows_of(tokens)
    monkeypatch.setattr("trainer_hooks.heldout_windows.PIECE", piece)
    assert windows_of(tokens).tolist() == whole.tolist()


def test_a_hit_is_told_by_its_lowest_window() -> None:
    tokens = text(1, 4_000, seed=6)
    known = windows_of(tokens)
    looked = HeldoutWindows()
    looked.add("set", known)
    for row in (tokens, tokens.reshape(2, -1)[::-1].reshape(1, -1).copy()):  # ascending or descending as they lie
        (hit,) = looked.met(row, Rolling()(row.reshape(-1)))
        met = set(windows_of(row).tolist()) & set(known.tolist())
        assert (hit.number, hit.count) == (min(met), len(met))
