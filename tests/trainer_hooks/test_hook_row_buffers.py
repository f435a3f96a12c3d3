"""Row copies are made in memory that was hashed before, and never in memory that still waits to be hashed."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from adapter_spool import recorded
from hypothesis import given
from hypothesis import strategies as st

import trainer_hooks
from trainer_hooks import row_buffers
from trainer_hooks.fingerprints import Fingerprints, row_hashes, snapshot
from trainer_hooks.row_buffers import RowBuffers

SHAPES = [(2, 64), (1, 64), (2, 33)]


def batch(step: int, shape: tuple[int, int], kind: str = "<i4") -> np.ndarray:
    return np.random.default_rng(step).integers(0, 60_000, shape).astype(kind)


def told(folder: Path) -> Counter[tuple[int, str]]:
    (segment,) = recorded(folder)
    bodies = [body for body in segment.fingerprints if body["kind"] == "rows"]
    return Counter(pair for body in bodies for pair in zip(body["steps"], body["hashes"], strict=True))


def test_every_row_is_hashed_as_it_was_though_the_caller_writes_into_its_memory_again(environment: Path) -> None:
    expected: Counter[tuple[int, str]] = Counter()
    memory = {(shape, kind): np.empty(shape, kind) for shape in SHAPES for kind in ("<i4", ">i4", "<i8", "<u2")}
    with trainer_hooks.start("rows", project="p", sample_rows=1, strict=True) as run:
        writer = run._pipeline.writer
        for step in range(400):
            shape = SHAPES[step // 100 % 3 if step < 300 else step % 3]
            kind = ("<i4", ">i4", "<i8", "<u2")[step // 40 % 4]
            rows = memory[shape, kind]
            rows[:] = batch(step, shape)
            run.log_rows(step, rows)
            expected.update((step, f"{int(h):016x}") for h in row_hashes(snapshot(rows)))
            rows[:] = 7
            if step % 25 == 24:  # what was hashed is free now
                while writer.rows:
                    threading.Event().wait(0.001)
    assert told(environment) == expected


def test_the_next_copy_is_made_in_the_memory_of_rows_that_were_hashed(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, int]] = []
    give, add = RowBuffers.give, Fingerprints.add

    def given(self: RowBuffers, copy: np.ndarray) -> None:
        done.append(("given back", copy.ctypes.data))
        give(self, copy)

    def hashed(self: Fingerprints, step: int, rows: np.ndarray, host: int) -> None:
        add(self, step, rows, host)
        done.append(("hashed", rows.ctypes.data))

    monkeypatch.setattr(RowBuffers, "give", given)
    monkeypatch.setattr(Fingerprints, "add", hashed)
    with trainer_hooks.start("rows", project="p", strict=True) as run:
        for step in range(5):
            run.log_rows(step, batch(step, (8, 512)))
            while len(done) < 2 * (step + 1):
                threading.Event().wait(0.001)
    assert [what for what, _ in done] == ["hashed", "given back"] * 5
    assert len({memory for _, memory in done}) == 1


@given(st.lists(st.one_of(st.tuples(st.just("copy"), st.sampled_from(SHAPES)), st.tuples(st.just("give")))))
def test_a_copy_that_was_not_given_back_is_never_written_again(calls: list[tuple[object, ...]]) -> None:
    buffers, held = RowBuffers(), list[tuple[int, np.ndarray]]()
    for number, call in enumerate(calls):
        if call[0] == "give" and held:
            buffers.give(held.pop(0)[1])
        elif call[0] == "copy":
            rows = np.full(call[1], number, np.int64)
            made = buffers.copy(rows)
            if made is None:
                made = snapshot(rows)
                buffers.expect(rows)
            held.append((number, made))
        assert all((copy == made_at).all() for made_at, copy in held)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_buffers, "MOST_BYTES", 4096)
    buffers = RowBuffers()
    rows = np.zeros((2, 256), np.int32)  # 2,048 bytes
    buffers.expect(rows)
    for _ in range(5):
        buffers.give(snapshot(rows))
    copies = [buffers.copy(rows) for _ in range(3)]
    assert [copy is None for copy in copies] == [False, False, True]


def test_what_is_like_the_rows_before_but_wrong_is_refused_as_ever() -> None:
    buffers = RowBuffers()
    buffers.expect(np.zeros((2, 3), np.int32))
    buffers.give(np.zeros((2, 3), "<u4"))
    for rows in ([[1, 2, 3], [4, 5, 6]], np.zeros((2, 3)), np.zeros((2, 3), np.int64), np.zeros((1, 3), np.int32)):
        buffers.give(np.zeros((2, 3), "<u4"))
        assert buffers.copy(rows) is None


def test_the_memory_of_a_big_batch_is_taken_from_nobody() -> None:
    """An array that is handed out is the caller's alone, also between two threads."""
    buffers, rows = RowBuffers(), np.zeros((4, 8), np.int32)
    buffers.expect(rows)
    sys.setswitchinterval(1e-6)
    wrong: list[int] = []

    def use(mark: int) -> None:
        mine = np.full((4, 8), mark, np.int32)
        for _ in range(2_000):
            made = buffers.copy(mine)
            made = snapshot(mine) if made is None else made
            if not (made == mark).all():
                wrong.append(mark)
            buffers.give(made)

    threads = [threading.Thread(target=use, args=(mark,)) for mark in range(3)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(0.005)
    assert not wrong
