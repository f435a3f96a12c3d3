"""The copy of a spool at an fsspec address: complete, cheap for training, and readable wherever the machine dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hook_service import HookService

import trainer_hooks
from trainer_hooks import remote
from trainer_hooks.journal import Journal
from trainer_hooks.remote import PartName, RemoteCopy, launch_folder, part_number, segment_of
from trainer_hooks.spool import Record, Spool, read_record
from trainer_hooks.stores import LocalStore, Store, open_store
from trainer_hooks.sync import sync
from trainer_hooks.tally import Tally

SPOOL = Spool("6f9619ff-8b86-4d01-b42d-00c04fc964ff", 0)
SEGMENT = b'{"process":0,"seq":0,"started_at":1796004025.2}'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of milliseconds instead of seconds."""
    monkeypatch.setattr(remote, "COPY_SECONDS", 0.05)
    monkeypatch.setattr(remote, "FIRST_WAIT", 0.005)


class Faulty:
    """A store whose `put` does what it is told first."""

    def __init__(self, store: Store, fault: Callable[[], None]) -> None:
        self.store = store
        self.fault = fault
        self.called = threading.Event()
        self.put_names: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def put(self, name: str, data: bytes) -> None:
        self.called.set()
        self.put_names.append(name)
        self.fault()
        self.store.put(name, data)


def records_of(folder: Path) -> list[Record]:
    """What all parts below a folder hold, in the order of their names."""
    found: list[Record] = []
    for path in sorted(folder.rglob("*.part")):
        data, offset = path.read_bytes(), 0
        while offset < len(data):
            record, offset, damaged = read_record(lambda at, size, d=data: d[at : at + size], offset, len(data))
            assert record is not None
            assert not damaged
            found.append(record)
    return found


def copying(tmp_path: Path, store: Store | Faulty) -> tuple[Journal, RemoteCopy]:
    """A journal on disk and its copy, which is not started."""
    local = LocalStore(tmp_path / "local")
    copy = RemoteCopy(lambda: store, "x://y", SPOOL, SEGMENT, local, lambda: journal.ends(), Tally())
    journal = Journal(local, SPOOL, SEGMENT, Tally(), also=copy.add)
    return journal, copy


def fill(journal: Journal, count: int) -> None:
    for number in range(count):
        journal.append("events", json.dumps({"process": 0, "seq": number, "value": "x" * 50}).encode())
        journal.flush()


def end(journal: Journal, copy: RemoteCopy) -> None:
    journal.close()
    copy.close()
    assert copy.done.wait(20)


def test_names_sort_by_time_and_are_read_back() -> None:
    launch = launch_folder(SPOOL.segment, 1796004025.2)
    assert launch == f"20261130T020025Z-{SPOOL.segment}"
    assert segment_of(launch) == SPOOL.segment
    assert segment_of("logs") is None
    name = PartName(launch, 3, 1002)
    assert name.path == f"{launch}/00003/00001/00001002.part"
    assert part_number("00001002.part") == 1002
    assert part_number("00001002.part.12.new") is part_number("x.part") is None
    assert PartName(launch, 3, 999).path < name.path < PartName(launch, 11, 0).path


def test_everything_is_in_the_copy_in_order_and_in_the_local_spool(tmp_path: Path) -> None:
    journal, copy = copying(tmp_path, LocalStore(tmp_path / "far"))
    copy.start()
    fill(journal, 50)
    end(journal, copy)
    assert [record.number for record in records_of(tmp_path / "far")] == list(range(51))
    assert copy.left() == 0
    assert journal.left() == 51


def test_every_block_begins_with_the_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "BLOCK_PARTS", 3)
    monkeypatch.setattr(remote, "PART_BYTES", 1)  # a part for each record
    journal, copy = copying(tmp_path, LocalStore(tmp_path / "far"))
    copy.start()
    fill(journal, 7)
    end(journal, copy)
    found = [(path.parent.name, [r.number for r in records_of_one(path)]) for path in parts_below(tmp_path / "far")]
    assert found == [
        ("00000", [0]),
        ("00000", [1]),
        ("00000", [2]),
        ("00001", [0, 3]),
        ("00001", [4]),
        ("00001", [5]),
        ("00002", [0, 6]),
        ("00002", [7]),
    ]


def test_what_cannot_wait_is_written_before_a_part_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "COPY_SECONDS", 300.0)
    monkeypatch.setattr(remote, "PART_BYTES", 1_000)
    journal, copy = copying(tmp_path, LocalStore(tmp_path / "far"))
    copy.start()
    fill(journal, 30)  # more than a part
    wait_until(lambda: len(parts_below(tmp_path / "far")) > 0)
    assert copy.left() < 31
    monkeypatch.setattr(remote, "PART_BYTES", 2**20)
    fill(journal, 1)
    copy.drain(20)
    assert copy.left() == 0
    fill(journal, 1)
    end(journal, copy)
    assert copy.left() == 0


def test_what_comes_while_everything_is_to_be_written_waits_for_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "COPY_SECONDS", 300.0)
    journal, copy = copying(tmp_path, LocalStore(tmp_path / "far"))
    copy.start()
    copy._hurry.set()  # as while `drain` waits
    copy._wake.set()
    for _ in range(3):
        wait_until(lambda: copy.left() == 0)
        wait_until(lambda: not copy._wake.is_set())
        fill(journal, 1)
    end(journal, copy)
    assert copy.left() == 0


def wait_until(told: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not told():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


def parts_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.part"))


def records_of_one(path: Path) -> list[Record]:
    data, offset, found = path.read_bytes(), 0, []
    while offset < len(data):
        record, offset, _ = read_record(lambda at, size: data[at : at + size], offset, len(data))
        found.append(record)
    return [record for record in found if record is not None]


def test_what_memory_has_no_room_for_comes_from_the_local_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(remote, "MEMORY_BYTES", 1000)
    monkeypatch.setattr(remote, "PART_BYTES", 3000)
    refusing = True

    def fault() -> None:
        if refusing:
            raise PermissionError("403 Forbidden")

    store = Faulty(LocalStore(tmp_path / "far"), fault)
    journal, copy = copying(tmp_path, store)
    copy.start()
    fill(journal, 20)
    assert store.called.wait(10)
    fill(journal, 200)
    assert copy._waiting_bytes <= 1000
    refusing = False
    end(journal, copy)
    assert [record.number for record in records_of(tmp_path / "far")] == list(range(221))
    assert copy.left() == 0
    assert caplog.text.count("cannot copy the spool to x://y (PermissionError: 403 Forbidden)") == 1


def test_what_is_nowhere_any_more_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MEMORY_BYTES", 1000)
    (tmp_path / "local").write_text("a file where the folder should be")
    journal, copy = copying(tmp_path, LocalStore(tmp_path / "far"))
    fill(journal, 100)
    copy.start()
    end(journal, copy)
    numbers = [record.number for record in records_of(tmp_path / "far")]
    assert numbers == list(range(101 - len(numbers), 101))
    assert copy.lost == copy.left() == 101 - len(numbers) > 50


def test_a_store_that_hangs_holds_up_neither_training_nor_the_end(
    tmp_path: Path, service: HookService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    released = threading.Event()
    store = Faulty(LocalStore(tmp_path / "far"), lambda: released.wait(60) and None)
    monkeypatch.setattr("trainer_hooks.pipeline.open_store", lambda address: store)
    monkeypatch.setattr("trainer_hooks.pipeline.check_address", lambda address: None)
    monkeypatch.setattr(remote, "CALL_SECONDS", 0.02)
    monkeypatch.setattr(remote, "LONGEST_WAIT", 0.01)
    before = set(threading.enumerate())
    run = trainer_hooks.start("run", project="p", spool="slow://far")
    for step in range(1, 101):
        run.log(step, {"loss": 1.0 / step})
    assert store.called.wait(10)
    report = run.finish(timeout=1.0)
    assert report.left_in_spool == 0  # the service has everything
    assert len(service.points()) == 100
    assert report.not_copied == report.sent
    assert caplog.text.count("cannot copy the spool") == 1
    assert f"{report.not_copied} records are not in the copy in slow://far" in caplog.text
    hanging = [thread for thread in set(threading.enumerate()) - before if thread.name == "pacenote-store"]
    assert 1 <= len(hanging) <= remote.HANGING_CALLS
    released.set()
    for thread in hanging:
        thread.join(10)
    assert len(set(store.put_names)) == 1  # the same part, tried again
    assert records_of(tmp_path / "far")[0].kind == "segment"


@pytest.mark.parametrize("error", [OSError("no route"), RuntimeError("odd"), SystemExit(3)])
def test_a_store_that_cannot_even_be_opened(
    service: HookService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def refuse(address: str) -> Store:
        raise error

    monkeypatch.setattr("trainer_hooks.pipeline.open_store", refuse)
    run = trainer_hooks.start("run", project="p", spool="memory://far")
    run.log(1, {"loss": 1.0})
    report = run.finish(timeout=0.5)
    assert service.points() == [(1, "loss", 1.0)]
    assert (report.left_in_spool, report.not_copied) == (0, 3)
    assert caplog.text.count("cannot copy the spool") == 1


@pytest.mark.parametrize("address", ["memory://{id}", "file://{tmp}/{id}"])
def test_the_copy_says_the_same_as_the_run_did(
    service: HookService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    address = address.format(id=uuid.uuid4().hex, tmp=tmp_path)
    with trainer_hooks.start("run", project="p", spool=address, sample_rows=1) as run:
        for step in range(1, 51):
            run.log(step, {"loss": 1.0 / step, "spike": float("nan")})
        run.log_rows(50, [[1, 2, 3]])
        run.log_items(50, "arc_easy", [True, False])
        run.event(50, "checkpoint", "gs://x/50")
    other = HookService()
    try:
        report = sync(other.url, address)
        assert report.complete
        assert report.sent == report.accepted == len(other.taken)
        assert sorted(map(repr, other.taken)) == sorted(map(repr, service.taken))
        assert sync(other.url, address).sent == 0
        again = sync(other.url, address, again=True)
        assert (again.accepted, again.already_there) == (0, report.sent)
        # A service that was sent everything directly takes nothing twice.
        directly = sync(service.url, address)
        assert (directly.accepted, directly.already_there) == (0, report.sent)
    finally:
        other.close()
    assert len(open_store(os.environ["PACENOTE_SPOOL_DIR"]).names("")) == 0
    assert len(list((Path(os.environ["XDG_DATA_HOME"]) / "pacenote" / "spool").glob("*.spool"))) == 1


@pytest.mark.parametrize(
    ("address", "missing", "why"), [("gs://b/x", "fsspec", "ModuleNotFoundError"), ("nosuch://b", "", "ValueError")]
)
def test_without_the_package_there_is_a_local_spool_and_one_line(
    service: HookService,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    address: str,
    missing: str,
    why: str,
) -> None:
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
    run = trainer_hooks.start("run", project="p", spool=address)
    run.log(1, {"loss": 1.0})
    report = run.finish()
    assert (report.left_in_spool, report.not_copied) == (0, 0)
    assert service.points() == [(1, "loss", 1.0)]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert f"no spool in {address} ({why}: " in said[0]
    assert "pacenote-hooks[remote]" in said[0]


def test_the_hook_alone_imports_numpy_and_nothing_else() -> None:
    code = """
import sys, sysconfig
before = set(sys.modules)
import trainer_hooks
own = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(own - set(sys.stdlib_module_names) - {"trainer_hooks"}))
"""
    result = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['numpy']"
