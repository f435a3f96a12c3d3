"""Following logs as they grow: whole lines only, through rotation and rewinds, in pieces of any size."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wandb_server import FakeRun, WandbServer

from service.importers.crc32c import masked_crcs
from service.importers.follow import Feed, State, StateFile
from service.importers.follow_events import EventsSource
from service.importers.follow_files import FileSource
from service.importers.follow_source import FollowSource
from service.importers.follow_wandb import WandbSource
from service.importers.rows import LogError, Row
from service.importers.wandb_api import WandbApi


class Receiver:
    """Feeds a source through a state that is written down and read again after every piece."""

    def __init__(self, folder: Path, source: Callable[[], FollowSource], **chosen: str) -> None:
        self.file, self.source, self.chosen = folder / "state.json", source, chosen
        self.segments: list[tuple[int, list[tuple[int, str, Any]]]] = []
        self.keys: set[tuple[str, int]] = set()

    def drain(self) -> Receiver:
        while True:
            state_file, source = StateFile(self.file), self.source()  # as after a restart
            state = state_file.state or State("x")
            fed = source.read(state.cursor)
            if fed is None:
                return self
            Feed(state, lambda start: {"start_step": start, "started_at": 0.0}, self.chosen).take(fed, source.format)
            for request in state.pending:
                if request.kind == "segment":
                    self.segments.append((request.body["start_step"], []))
                else:
                    key = (request.segment, request.body["seq"])
                    assert key not in self.keys, "a key is used once"
                    self.keys.add(key)
                    self.segments[-1][1].extend(points(request.body))
            state.sent()
            state_file.save(state)

    @property
    def losses(self) -> list[list[tuple[int, Any]]]:
        """(step, train loss) by segment."""
        return [[(s, v) for s, name, v in made if name == "train/ce_loss"] for _, made in self.segments]


def points(body: dict[str, Any]) -> list[tuple[int, str, Any]]:
    return [
        (step, name, values[at])
        for at, step in enumerate(body["steps"])
        for name, values in body["metrics"].items()
        if values[at] is not None
    ]


def lines(first: int, last: int, shift: float = 0.0) -> str:
    return "".join(json.dumps({"step": s, "loss": s + shift}) + "\n" for s in range(first, last + 1))


def expected(first: int, last: int, shift: float = 0.0) -> list[tuple[int, float]]:
    return [(step, step + shift) for step in range(first, last + 1)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.jsonl"


def test_a_line_counts_once_it_is_whole(log: Path, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path, lambda: FileSource(log))
    assert receiver.drain().segments == [], "the file is not there yet"
    log.write_text("")
    assert receiver.drain().segments == []
    log.write_text(lines(1, 2) + '{"step": 3, "lo')
    assert receiver.drain().losses == [expected(1, 2)]
    with log.open("a") as file:
        file.write('ss": 3.0}\n')
    assert receiver.drain().losses == [expected(1, 3)]
    assert receiver.segments[0][0] == 0


def test_a_rewind_opens_a_segment(log: Path, tmp_path: Path) -> None:
    log.write_text(lines(1, 50) + lines(31, 60, 0.5) + lines(41, 41, 0.75))
    receiver = Receiver(tmp_path, lambda: FileSource(log)).drain()
    assert receiver.losses == [expected(1, 50), expected(31, 60, 0.5), expected(41, 41, 0.75)]
    assert [start for start, _ in receiver.segments] == [0, 30, 40]


def test_a_rewind_between_two_pieces(log: Path, tmp_path: Path) -> None:
    log.write_text(lines(1, 50))
    receiver = Receiver(tmp_path, lambda: FileSource(log)).drain()
    with log.open("a") as file:
        file.write(lines(31, 32, 0.5))
    assert receiver.drain().losses == [expected(1, 50), expected(31, 32, 0.5)]


def test_rotation_by_renaming_loses_nothing(log: Path, tmp_path: Path) -> None:
    log.write_text(lines(1, 5))
    receiver = Receiver(tmp_path, lambda: FileSource(log)).drain()
    with log.open("a") as file:
        file.write(lines(6, 9))
    log.rename(tmp_path / "train.jsonl.1")
    log.write_text(lines(10, 12))
    assert receiver.drain().losses == [expected(1, 9), expected(10, 12)]
    assert [start for start, _ in receiver.segments] == [0, 9]


def test_truncation_and_rewriting_begin_anew(log: Path, tmp_path: Path) -> None:
    log.write_text(lines(1, 50))
    receiver = Receiver(tmp_path, lambda: FileSource(log)).drain()
    with log.open("r+") as file:
        file.truncate(0)
        file.write(lines(40, 41, 0.5))
    assert receiver.drain().losses[1:] == [expected(40, 41, 0.5)]
    with log.open("r+") as file:  # the same file, longer than before, with other content
        file.write(lines(1, 99, 0.25))
    assert receiver.drain().losses[2:] == [expected(1, 99, 0.25)]
    assert [start for start, _ in receiver.segments] == [0, 39, 0]


def test_a_table_keeps_its_header(log: Path, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path, lambda: FileSource(log))
    log.write_text("step,loss,other\n")
    receiver.drain()
    for step in (1, 2, 3):
        with log.open("a") as file:
            file.write(f"{step},{step}.5,x\n")
        receiver.drain()
    assert receiver.losses == [[(1, 1.5), (2, 2.5), (3, 3.5)]]


def test_a_table_without_header(log: Path, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path, lambda: FileSource(log), **{"column 2": "train/ce_loss"})
    for step in (1, 2, 3):
        with log.open("a") as file:
            file.write(f"{step} {step}.5\n")
        receiver.drain()
    assert receiver.losses == [[(1, 1.5), (2, 2.5), (3, 3.5)]]


OLMO = "2025-07-21 [step={}/100,epoch=1]\n    train/CE loss={}.5\n    optim/total grad norm=0.25\n"
BUILD = "validation loss: {0}.25\nstep {0} | loss: {0}.5 | lr 1e-4 | norm: 0.5\n"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            OLMO,
            [(s, name, v) for s in range(1, 9) for name, v in (("train/ce_loss", s + 0.5), ("optim/grad_norm", 0.25))],
        ),
        (
            BUILD,
            [
                point
                for s in range(1, 9)
                for point in (
                    (s, "heldout/val/ce_loss", s + 0.25),
                    (s + 1, "train/ce_loss", s + 0.5),
                    (s + 1, "optim/learning_rate", 1e-4),
                    (s + 1, "optim/grad_norm", 0.5),
                )
            ],
        ),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 40, 10_000])
def test_entries_of_several_lines_in_pieces(
    tmp_path: Path, line: str, wanted: list[tuple[int, str, float]], size: int
) -> None:
    log, content = tmp_path / "log.txt", "".join(line.format(step, step) for step in range(1, 9))
    receiver = Receiver(tmp_path, lambda: FileSource(log))
    for start in range(0, len(content), size):
        with log.open("a") as file:
            file.write(content[start : start + size])
        receiver.drain()
    assert [point for _, made in receiver.segments for point in sorted(made)] == sorted(wanted)


@settings(max_examples=30, deadline=None)
@given(
    starts=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    cuts=st.lists(st.integers(1, 400), min_size=1, max_size=12),
)
def test_any_cut_gives_the_same(tmp_path_factory: pytest.TempPathFactory, starts: list[int], cuts: list[int]) -> None:
    """However the log is cut into pieces, every point is sent once, in order, and starts are the same."""
    folder = tmp_path_factory.mktemp("cut")
    content = "".join(lines(start, start + 12, launch / 16) for launch, start in enumerate(starts))
    whole, pieces = folder / "whole.jsonl", folder / "pieces.jsonl"
    whole.write_text(content)
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    at_once = Receiver(folder / "a", lambda: FileSource(whole)).drain()
    piecewise = Receiver(folder / "b", lambda: FileSource(pieces))
    at = 0
    for cut in [*cuts, len(content)]:
        with pieces.open("a") as file:
            file.write(content[at : at + cut])
        at += cut
        piecewise.drain()
    assert piecewise.losses == at_once.losses
    assert sum(len(made) for made in at_once.losses) == 13 * len(starts)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x1f\x8b\x08\x00garbage\n", "a compressed file cannot be followed"),
        ('{"step": 1, "loss": 1}\n'.encode("utf-16"), "only UTF-8 text can be followed"),
        (b'{"best_metric": null, "log_history": [{"step": 1, "loss": 2.0}], "global_step": 1}\n', "`pacenote import`"),
        (b"nothing here\n" * 6000, "no known format"),
    ],
)
def test_what_cannot_be_followed(log: Path, content: bytes, message: str) -> None:
    log.write_bytes(content)
    with pytest.raises(LogError, match=message):
        FileSource(log).read(None)


def test_two_names_for_one_metric(log: Path, tmp_path: Path) -> None:
    """What a name was taken for it stays; a later one for the same metric is left out."""
    log.write_text('{"step": 1, "val_loss": 1.0}\n')
    receiver = Receiver(tmp_path, lambda: FileSource(log)).drain()
    with log.open("a") as file:
        file.write('{"step": 2, "eval_loss": 7.0, "val_loss": 2.0}\n')
    receiver.drain()
    assert [made for _, made in receiver.segments] == [
        [(1, "heldout/val/ce_loss", 1.0), (2, "heldout/val/ce_loss", 2.0)]
    ]


def test_odd_values_are_sent_by_name(tmp_path: Path) -> None:
    state = State("x")
    feed = Feed(state, lambda start: {"start_step": start, "started_at": 0.0}, {})
    from service.importers.follow_source import Fed

    rows = [Row(1, "loss", float("nan")), Row(2, "loss", float("inf")), Row(2, "loss", -0.0), Row(3, "lr", 1.0, 5.0)]
    feed.take(Fed(rows, {}), "json_lines")
    body = state.pending[1].body
    assert body["steps"] == [1, 2, 2, 3]
    assert body["metrics"] == {
        "train/ce_loss": ["NaN", "Infinity", -0.0, None],
        "optim/learning_rate": [None, None, None, 1.0],
    }
    assert body["times"][-1] == 5.0


def test_a_damaged_state_is_said(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(LogError, match="--from-start begins anew"):
        StateFile(tmp_path / "state.json")


def event(step: int, tag: str, value: float, late: float = 0.0) -> bytes:
    scalar = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(scalar)]) + scalar
    record = (
        b"\x09"
        + struct.pack("<d", 1e9 + step + late)
        + b"\x10"
        + bytes([step])
        + b"\x2a"
        + bytes([len(summary)])
        + summary
    )
    head = struct.pack("<Q", len(record))
    sums = [struct.pack("<I", int(masked_crcs([part])[0])) for part in (head, record)]
    return head + sums[0] + record + sums[1]


def test_event_files_as_they_grow(tmp_path: Path) -> None:
    folder = tmp_path / "tb"
    (folder / "run").mkdir(parents=True)
    first = folder / "run" / "events.out.tfevents.100.host.1.0"
    receiver = Receiver(tmp_path, lambda: EventsSource(folder))
    content = b"".join(event(step, "train/loss", step / 4) for step in range(1, 6))
    for start in range(0, len(content), 50):  # records arrive in pieces
        with first.open("ab") as file:
            file.write(content[start : start + 50])
        receiver.drain()
    assert receiver.losses == [[(step, step / 4) for step in range(1, 6)]]
    second = folder / "run" / "events.out.tfevents.200.host.2.0"
    second.write_bytes(b"".join(event(step, "train/loss", step / 8, late=100.0) for step in range(4, 8)))
    assert receiver.drain().losses[1:] == [[(step, step / 8) for step in range(4, 8)]]
    assert receiver.segments[1][0] == 3
    first.write_bytes(content + struct.pack("<QI", 2**40, 0))
    with pytest.raises(LogError, match="is damaged"):
        receiver.drain()


def write_events(path: Path, steps: range, scale: float, late: float = 0.0) -> None:
    with path.open("ab") as file:
        file.write(b"".join(event(step, "train/loss", step * scale, late) for step in steps))


def test_a_second_writer_at_the_same_time_is_no_new_start(tmp_path: Path) -> None:
    folder = tmp_path / "tb"
    folder.mkdir()
    first, second, third = (folder / f"events.out.tfevents.{name}" for name in ("100.a", "101.b", "300.c"))
    receiver = Receiver(tmp_path, lambda: EventsSource(folder))
    write_events(first, range(1, 9), 1.0)
    write_events(second, range(2, 9), 2.0, late=0.5)
    assert len(receiver.drain().segments) == 1
    for start in (9, 10, 11):  # both go on, by turns
        write_events(first, range(start, start + 1), 1.0)
        write_events(second, range(start, start + 1), 2.0, late=0.5)
        receiver.drain()
    assert len(receiver.segments) == 1
    assert [step for step, _ in receiver.losses[0]] == [*range(1, 9), *range(2, 9), 9, 9, 10, 10, 11, 11]
    write_events(third, range(5, 9), 3.0, late=60.0)  # after both: the trainer starts again
    assert receiver.drain().losses[1:] == [[(step, step * 3.0) for step in range(5, 9)]]
    assert receiver.segments[1][0] == 4


def test_a_second_writer_that_was_taken_for_a_new_start_is_known_once_the_first_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "tb"
    folder.mkdir()
    receiver = Receiver(tmp_path, lambda: EventsSource(folder))
    write_events(folder / "events.out.tfevents.100.a", range(1, 9), 1.0)
    receiver.drain()
    write_events(folder / "events.out.tfevents.101.b", range(2, 5), 2.0, late=10.0)
    assert len(receiver.drain().segments) == 2, "by what is known so far it is a new start"
    write_events(folder / "events.out.tfevents.100.a", range(9, 30), 1.0)
    receiver.drain()
    assert len(receiver.segments) == 3, "all of it is read anew, as one start"
    assert [step for step, _ in receiver.losses[2]] == [*range(1, 30), *range(2, 5)]
    write_events(folder / "events.out.tfevents.101.b", range(5, 8), 2.0, late=10.0)
    write_events(folder / "events.out.tfevents.100.a", range(30, 33), 1.0)
    assert len(receiver.drain().segments) == 3
    write_events(folder / "events.out.tfevents.200.c", range(6, 9), 3.0, late=100.0)
    assert receiver.drain().losses[3:] == [[(step, step * 3.0) for step in range(6, 9)]], "a new start is one still"


@pytest.mark.parametrize("steps", [range(1, 3), range(1, 30)])
def test_an_event_file_that_is_written_anew_is_a_new_start(tmp_path: Path, steps: range) -> None:
    path = tmp_path / "events.out.tfevents.100.a"
    receiver = Receiver(tmp_path, lambda: EventsSource(path))
    write_events(path, range(1, 9), 1.0)
    receiver.drain()
    path.unlink()
    receiver.drain()
    write_events(path, steps, 2.0, late=60.0)
    assert receiver.drain().losses[1:] == [[(step, step * 2.0) for step in steps]]


def test_the_order_of_names_says_nothing_of_the_order_of_time(tmp_path: Path) -> None:
    folder = tmp_path / "tb"
    folder.mkdir()
    receiver = Receiver(tmp_path, lambda: EventsSource(folder))
    write_events(folder / "events.out.tfevents.100.a", range(1, 6), 1.0)
    write_events(folder / "events.out.tfevents.50.b", range(3, 6), 2.0, late=30.0)
    assert receiver.drain().losses == [
        [(step, step * 1.0) for step in range(1, 6)],
        [(step, step * 2.0) for step in range(3, 6)],
    ]


def test_a_run_at_wandb(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"_step": step, "_timestamp": 5.0, "train/loss": float(step)} for step in range(3)]
    run = FakeRun("abc", "abc", rows, state="running")
    server = WandbServer(run)
    try:
        with WandbApi("lab", "small", url=server.url, key="") as api:
            receiver = Receiver(tmp_path, lambda: WandbSource(api, "abc")).drain()
            assert receiver.losses == [[(0, 0.0), (1, 1.0), (2, 2.0)]]
            rows += [{"_step": step, "train/loss": float(step)} for step in (3.0, 4.0, 5000.0)]
            assert receiver.drain().losses[0][3:] == [(3, 3.0), (4, 4.0), (5000, 5000.0)], "over a gap of pages"
            run.rows = [*rows[:3], {"_step": 3, "train/loss": 3.5}]  # rewound at W&B
            assert receiver.drain().losses[1:] == [[(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.5)]]
    finally:
        server.close()
