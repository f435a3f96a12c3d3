from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_hooks import journal as journals
from trainer_hooks.journal import Journal
from trainer_hooks.spool import Cursor, Position, Record, Spool, load_position, part_ends, read_record
from trainer_hooks.stores import LocalStore, RemoteStore, Store, open_store
from trainer_hooks.tally import Tally

SPOOL = Spool("6f9619ff-8b86-4d01-b42d-00c04fc964ff", 0)
SEGMENT = b'{"process":0,"seq":0}'


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda offset, size: data[offset : offset + size]


def all_records(data: bytes) -> tuple[list[Record], int]:
    found: list[Record] = []
    offset = damaged = 0
    while offset < len(data):
        record, offset, lost = read_record(reader(data), offset, len(data))
        damaged += lost
        if record is not None:
            found.append(record)
    return found, damaged


def record(number: int, text: str = "x") -> Record:
    body = json.dumps({"process": 0, "seq": number, "value": text}, separators=(",", ":")).encode()
    return Record(number, "events", SPOOL.segment, 0, body)


def drain(journal: Journal) -> list[int]:
    numbers: list[int] = []
    while (next_record := journal.peek()) is not None:
        numbers.append(next_record.number)
        journal.acknowledge(next_record)
    return numbers


def stored_numbers(store: Store) -> list[int]:
    cursor = Cursor(store, SPOOL, Position(), part_ends(store)[SPOOL])
    numbers: list[int] = []
    while (found := cursor.peek()) is not None:
        numbers.append(found.number)
        cursor.acknowledge(found.number)
    return numbers


def test_the_example_of_the_wire_description() -> None:
    body = b'{"process":0,"seq":0,"step":5,"kind":"note","value":"x","at":1.5}'
    frame = Record(3, "events", SPOOL.segment, 0, body).frame()
    assert len(frame) == 165
    assert frame[:8].hex() == "9d000000e7d0ee6e"
    assert json.loads(frame[8:])["body"] == json.loads(body)
    assert all_records(frame) == ([Record(3, "events", SPOOL.segment, 0, body)], 0)


@given(st.lists(st.text(max_size=60), max_size=8), st.data())
def test_whole_records_survive_any_damage(texts: list[str], data: st.DataObject) -> None:
    """Whatever bytes are overwritten or cut off: every record they do not touch is read, in order, and nothing else."""
    records = [record(i, text) for i, text in enumerate(texts)]
    frames = [one.frame() for one in records]
    stream = b"".join(frames)
    start = data.draw(st.integers(0, len(stream)))
    if data.draw(st.booleans(), "torn off"):
        damaged = stream[:start]
    else:
        junk = data.draw(st.binary(max_size=40))[: len(stream) - start]
        damaged = stream[:start] + junk + stream[start + len(junk) :]
    found, lost = all_records(damaged)
    offset, whole = 0, []
    for one, frame in zip(records, frames, strict=True):
        if damaged[offset : offset + len(frame)] == frame:
            whole.append(one)
        offset += len(frame)
    assert found == whole
    assert lost + sum(len(one.frame()) for one in found) == len(damaged)


def test_a_journal_returns_what_it_was_given_in_order(tmp_path: Path) -> None:
    journal = Journal(LocalStore(tmp_path), SPOOL, SEGMENT, Tally(), "http://a")
    for number in range(1, 4):
        journal.append("events", record(number).body)
    assert journal.peek() is None  # not on the disk yet
    journal.flush()
    assert drain(journal) == [0, 1, 2, 3]
    journal.append("events", record(4).body)
    journal.close()
    assert drain(journal) == [4]
    journal.save()
    assert journal.left() == journal.dropped == 0
    assert stored_numbers(LocalStore(tmp_path)) == [0, 1, 2, 3, 4]
    saved = load_position(LocalStore(tmp_path), SPOOL, "http://a")
    assert Cursor(LocalStore(tmp_path), SPOOL, saved, part_ends(LocalStore(tmp_path))[SPOOL]).peek() is None
    assert load_position(LocalStore(tmp_path), SPOOL, "http://b") == Position()


def test_parts_roll_and_each_can_be_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "PART_BYTES", 1000)
    journal = Journal(LocalStore(tmp_path), SPOOL, SEGMENT, Tally())
    for number in range(1, 40):
        journal.append("events", record(number).body)
        journal.flush()
    parts = sorted(tmp_path.glob("*.spool"))
    assert len(parts) > 3
    for part in parts:
        assert all_records(part.read_bytes())[0][0] == journal.segment
    assert drain(journal) == list(range(40))
    journal.close()


def test_the_cap_removes_the_oldest_and_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "CAP_CHECK_SECONDS", 0.0)
    stranger = tmp_path / Spool("00000000-0000-4000-8000-000000000000", 0).part(0)
    stranger.write_bytes(record(1).frame() * 20)
    os.utime(stranger, (1, 1))
    tally = Tally()
    journal = Journal(LocalStore(tmp_path), SPOOL, SEGMENT, tally, cap_bytes=8000)
    for number in range(1, 201):
        journal.append("events", record(number).body)
        journal.flush()
    assert not stranger.exists()
    assert sum(path.stat().st_size for path in tmp_path.glob("*.spool")) <= 8000 + 2 * 1000
    kept = drain(journal)
    assert kept == [0, *range(202 - len(kept), 201)]  # the description of the segment is in every part
    assert journal.dropped == 201 - len(kept) > 0
    assert journal.left() == 0
    assert tally.counts["parts over cap"] > 1
    journal.close()


@pytest.mark.parametrize("fault", ["unwritable", "disk full"])
def test_without_a_disk_the_newest_records_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    folder = tmp_path / "spool"
    if fault == "unwritable":
        folder.write_text("a file where the folder should be")
    else:
        whole = os.write

        def write(descriptor: int, data: Any) -> int:
            whole(descriptor, bytes(data)[:10])  # the disk takes a piece, then is full
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", write)
    journal = Journal(LocalStore(folder), SPOOL, SEGMENT, Tally(), memory_records=10)
    for number in range(1, 31):
        journal.append("events", record(number).body)
        journal.flush()
    assert (journal.left(), journal.dropped) == (10, 21)
    assert caplog.text.count("cannot write the spool") == 1
    assert caplog.text.count("the oldest are dropped") == 1
    first = journal.peek()
    assert first is not None
    assert first.number == 21
    journal.acknowledge(first)

    # The disk is back: what is left goes there, behind a description of the segment.
    monkeypatch.undo()
    if fault == "unwritable":
        folder.unlink()
    journal.append("events", record(31).body)
    journal.close()
    assert stored_numbers(LocalStore(folder)) == [0, *range(22, 32)]
    assert drain(journal) == list(range(22, 32))
    assert journal.left() == 0


def test_a_disk_that_fills_up_half_way_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(LocalStore(tmp_path), SPOOL, SEGMENT, Tally())
    whole = os.write

    def full(descriptor: int, data: Any) -> int:
        whole(descriptor, bytes(data)[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    for number in range(1, 20):
        monkeypatch.setattr(os, "write", full if 5 <= number < 10 else whole)
        if number == 10:
            monkeypatch.setattr(journal, "_retry_at", 0.0)
        journal.append("events", record(number).body)
        journal.flush()
    assert drain(journal) == list(range(20))
    journal.close()
    assert [n for n in stored_numbers(LocalStore(tmp_path)) if n] == list(range(1, 20))


def test_a_store_behind_fsspec() -> None:
    store = open_store("memory://pacenote-test/spool")
    assert isinstance(store, RemoteStore)
    assert (store.names(""), store.list(), store.get("a/b")) == ([], [], None)
    store.put("a/b", b"12")
    store.put("c", b"3")
    assert sorted(store.names("")) == ["a", "c"]
    assert store.names("a") == ["b"]
    assert store.reader("a/b")(1, 5) == b"2"
    store.append("c", b"4")
    assert store.get("c") == b"34"
    store.remove("a/b")
    store.remove("c")
    store.remove("c")
    assert (store.get("a/b"), store.get("c")) == (None, None)
