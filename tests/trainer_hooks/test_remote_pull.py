"""Reading remote copies: in order, once, whatever order and state parts appear in, and without reading them again."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hook_service import HookService
from hypothesis import given, settings
from hypothesis import strategies as st

import trainer_hooks
from trainer_hooks import pull
from trainer_hooks.connection import Connection
from trainer_hooks.pull import NoSegmentError, Parts, Place, ProcessParts, Puller, StoreError
from trainer_hooks.remote import PartName, launch_folder
from trainer_hooks.spool import Record
from trainer_hooks.stores import LocalStore
from trainer_hooks.sync import main, sync, watch

BLOCK = 4  # parts in a folder, in these tests


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer_hooks.remote.BLOCK_PARTS", BLOCK)
    monkeypatch.setattr(pull, "BLOCK_PARTS", BLOCK)


def segment_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


class Launch:
    """A launch written by hand: one record in each part."""

    def __init__(self, store: LocalStore, number: int = 1, process: int = 0) -> None:
        self.store = store
        self.segment = segment_id(number)
        self.name = PartName(launch_folder(self.segment, 1796004025.0 + number), process, 0)
        self.body = json.dumps({"process": 0, "seq": 0, "started_at": 1796004025.0 + number}).encode()

    def frames(self, part: int) -> bytes:
        segment = Record(0, "segment", self.segment, self.name.process, self.body).frame()
        if part == 0:
            return segment
        body = json.dumps({"process": self.name.process, "seq": part, "value": part}).encode()
        record = Record(part, "events", self.segment, self.name.process, body).frame()
        return segment + record if part % BLOCK == 0 else record

    def path(self, part: int) -> str:
        return self.name._replace(part=part).path

    def write(self, *parts: int, cut: int | None = None) -> None:
        for part in parts:
            self.store.put(self.path(part), self.frames(part)[:cut])


def numbers(source: ProcessParts, last: bool = False) -> list[int]:
    """What a look at the parts brings."""
    source.look(last)
    found: list[int] = []
    while (record := source.peek()) is not None:
        found.append(record.number)
        source.acknowledge(record)
    return found


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "far")


@pytest.fixture
def launch(store: LocalStore) -> Launch:
    return Launch(store)


@pytest.fixture
def source(launch: Launch) -> ProcessParts:
    return ProcessParts(Parts(launch.store), launch.name.launch, 0, Place())


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(11)), st.data())
def test_parts_that_appear_in_any_order_are_sent_in_theirs_and_once(order: list[int], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        launch = Launch(LocalStore(Path(folder)))
        source = ProcessParts(Parts(launch.store), launch.name.launch, 0, Place())
        found: list[int] = []
        written: set[int] = set()
        for part in order:
            launch.write(part)
            written.add(part)
            if data.draw(st.booleans(), "look now"):
                found += numbers(source)
                if data.draw(st.booleans(), "begin again from what was remembered"):
                    source = ProcessParts(Parts(launch.store), launch.name.launch, 0, source.place)
            assert found == list(range(len(found)))
            assert set(found) <= written
        found += numbers(source)
        assert found == list(range(11))
        assert source.skipped == source.damaged == 0


def test_a_part_that_is_sent_in_half_is_read_again(launch: Launch, source: ProcessParts) -> None:
    launch.write(0, 1, 2, 3, 4)
    source.look(last=False)
    for _ in range(4):
        record = source.peek()
        assert record is not None
        source.acknowledge(record)
    assert source.peek() is not None  # of part 4, where the segment comes first
    assert source.place == Place(4, 3)
    assert numbers(ProcessParts(source.parts, launch.name.launch, 0, source.place)) == [4]


def test_a_missing_part_is_waited_for_and_passed_over_in_the_end(
    launch: Launch, source: ProcessParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch.write(0, 1, 3)
    assert numbers(source) == [0, 1]
    assert numbers(source) == []
    monkeypatch.setattr(pull, "GAP_SECONDS", 0.0)
    assert numbers(source) == [3]
    assert source.skipped == 1
    launch.write(9)  # and over the border of two blocks
    launch.write(5)
    assert numbers(source) == [5, 9]
    assert source.skipped == 1 + 1 + 3


def test_the_last_turn_waits_for_nothing(launch: Launch, source: ProcessParts) -> None:
    launch.write(0, 2)
    launch.write(3, cut=-1)
    assert numbers(source, last=True) == [0, 2]
    assert (source.skipped, source.damaged) == (1, 1)


@given(cut=st.integers(0, 400))
@settings(max_examples=30, deadline=None)
def test_a_last_part_cut_off_anywhere_is_read_again_until_it_is_whole(cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        launch = Launch(LocalStore(Path(folder)))
        source = ProcessParts(Parts(launch.store), launch.name.launch, 0, Place())
        launch.write(0, 1, 2, 3)
        launch.write(4, cut=cut)  # holds two records
        found = numbers(source)
        assert found == ([0, 1, 2, 3, 4] if cut >= len(launch.frames(4)) else [0, 1, 2, 3])
        launch.write(4)
        assert found + numbers(source) == [0, 1, 2, 3, 4]
        assert source.damaged == 0


def test_a_torn_part_costs_only_itself_once_another_follows(launch: Launch, source: ProcessParts) -> None:
    launch.write(0, 2)
    launch.write(1, cut=20)
    assert numbers(source) == [0, 2]
    assert source.damaged == 1


def test_looking_again_reads_no_part_again_and_lists_a_bounded_number_of_folders(
    store: LocalStore, service: HookService
) -> None:
    launches = [Launch(store, number, process) for number in (1, 2) for process in (0, 1)]
    for one in launches:
        one.write(*range(10))
    puller = Puller(store, Connection(service.url, "", ""))
    assert puller.turn().sent == 40
    assert len(service.taken) == 38  # the segments of two processes each are one
    for _ in range(3):
        reads, listings = puller.parts.reads, puller.parts.listings
        assert puller.turn().sent == 0
        assert puller.parts.reads == reads
        assert puller.parts.listings - listings == 1 + 2 + 4 * 2  # the store, launches, two blocks of each process
    launches[0].write(10)
    Launch(store, 3).write(0, 1)  # a new launch
    Launch(store, 2, process=7).write(0)  # and a new process of an old one
    reads = puller.parts.reads
    assert puller.turn().sent == 1 + 2 + 1
    assert puller.parts.reads == reads + 4


def test_a_launch_that_is_long_quiet_is_seldom_looked_at(
    store: LocalStore, service: HookService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(pull, "QUIET_TURNS", 5)
    launch = Launch(store)
    launch.write(0)
    puller = Puller(store, Connection(service.url, "", ""))
    assert [puller.turn().sent for _ in range(5)] == [0, 0, 0, 0, 1]
    launch.write(1)
    assert puller.turn(last=True).sent == 1


def test_what_was_sent_is_remembered_on_this_machine(
    store: LocalStore, service: HookService, launch: Launch, capsys: pytest.CaptureFixture[str]
) -> None:
    launch.write(0, 1, 2)
    arguments = [service.url, "--spool", store.address]
    assert main(arguments) == 0
    assert "remote copies of 1 processes: sent 3  accepted 3" in capsys.readouterr().out
    launch.write(3)
    assert main(arguments) == 0
    assert "sent 1  accepted 1" in capsys.readouterr().out
    assert sync(service.url, store.address, again=True).already_there == 4
    before = sorted(store.folder.rglob("*"))
    other = HookService()
    try:
        assert sync(other.url, store.address).accepted == 4
    finally:
        other.close()
    assert sorted(store.folder.rglob("*")) == before  # nothing is written to the store


def test_a_description_that_is_lost_holds_up_that_process_only(store: LocalStore, service: HookService) -> None:
    broken, whole = Launch(store, 1), Launch(store, 2)
    broken.write(1, 2)
    whole.write(0, 1)
    report = sync(service.url, store.address, patience=0.0)
    assert report.accepted == 2
    assert "description of the segment is damaged or was removed" in report.trouble
    assert not report.complete
    service.segments[broken.segment] = {}  # once the service knows it from elsewhere
    assert sync(service.url, store.address).accepted == 2
    with pytest.raises(NoSegmentError):
        _ = ProcessParts(Parts(store), broken.name.launch, 0, Place()).segment


class Broken(LocalStore):
    """A store that raises, or hangs, for its first calls."""

    faults: list[Callable[[], Any]]

    def names(self, folder: str) -> list[str]:
        if self.faults:
            self.faults.pop(0)()
        return super().names(folder)


def pauses(*looks: Callable[[], Any]) -> Callable[[float], None]:
    """A pause that does something before each further look, then is interrupted."""
    left = list(looks)

    def pause(seconds: float) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    return pause


def test_watching_outlives_a_store_that_fails_and_a_service_that_is_away(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, service: HookService
) -> None:
    def refuse() -> None:
        raise PermissionError("403 Forbidden")

    def hang() -> None:
        threading.Event().wait(0.5)

    broken = Broken(launch.store.folder)
    broken.faults = [refuse, refuse, hang]
    monkeypatch.setattr(pull, "CALL_SECONDS", 0.05)
    monkeypatch.setattr("trainer_hooks.sync.open_store", lambda address: broken)
    launch.write(0, 1)
    said: list[str] = []

    def away() -> None:
        launch.write(2)
        service.script.extend([503])

    report = watch(service.url, "x://y", say=said.append, pause=pauses(*[lambda: None] * 3, away, lambda: None))
    assert report.sent == report.accepted == 3
    troubles = [line.removeprefix("trying on: ") for line in said if line.startswith("trying on: ")]
    assert [line.partition(": ")[2][:20] for line in troubles[:2]] == ["PermissionError: 403", "TimeoutError: no ans"]
    assert troubles[2].startswith("503")
    assert len(troubles) == 3  # each once


def test_watching_sends_what_a_living_process_writes_to_a_shared_folder(
    service: HookService, monkeypatch: pytest.MonkeyPatch, environment: Path
) -> None:
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    run = trainer_hooks.start("run", project="p")

    def write_on() -> None:
        run.log(1, {"loss": 1.0})
        assert run._pipeline is not None
        assert run._pipeline.writing.is_alive()
        while not any(b'"batches"' in path.read_bytes() for path in environment.glob("*.spool")):
            time.sleep(0.005)

    def tear() -> None:
        path = next(environment.glob("*.spool"))
        with path.open("ab") as file:  # the other machine is in the middle of a write
            file.write(path.read_bytes()[:30])

    report = watch(service.url, str(environment), pause=pauses(write_on, tear, lambda: None, run.finish, lambda: None))
    assert service.points() == [(1, "loss", 1.0)]
    assert len(service.bodies("finish")) == 1
    assert report.sent == report.accepted == 3


def test_the_segment_is_put_again_where_the_service_lost_it(store: LocalStore, service: HookService) -> None:
    launch = Launch(store)
    launch.write(*range(6))
    assert sync(service.url, store.address).accepted == 6
    service.segments.clear()
    launch.write(6)
    assert sync(service.url, store.address).accepted == 1
    assert list(service.segments) == [launch.segment]


def test_a_store_that_fails_ends_a_single_sync_with_its_words(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, service: HookService
) -> None:
    def refuse() -> None:
        raise PermissionError("403 Forbidden")

    broken = Broken(launch.store.folder)
    broken.faults = [refuse]
    monkeypatch.setattr("trainer_hooks.sync.open_store", lambda address: broken)
    report = sync(service.url, "x://y")
    assert report.trouble.endswith("PermissionError: 403 Forbidden")
    assert not report.complete
    broken.faults = [refuse]
    with pytest.raises(StoreError):
        Parts(broken).names("")
