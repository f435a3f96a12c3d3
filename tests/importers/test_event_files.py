"""TensorBoard event files that are damaged, cut off, or hold something else."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from importing import GOLDEN

from service.importers import tensorboard
from service.importers.crc32c import masked_crcs
from service.importers.folders import find
from service.importers.formats import Source
from service.importers.rows import CUT_OFF, Account, LogError

CONTENT = (GOLDEN / "events.out.tfevents.1733356800.reencoded").read_bytes()


def read(path: Path, content: bytes) -> tuple[list[tuple[str, int, float]], Account]:
    path.write_bytes(content)
    account = Account()
    blocks = list(tensorboard.read(Source(path), account))
    found = [
        (name, step, value)
        for block in blocks
        for name, (values, _) in block.columns.items()
        for step, value in zip(block.steps_of(name).tolist(), values.tolist(), strict=True)
    ]
    return found, account


def bounds() -> list[int]:
    made, at = [0], 0
    while at < len(CONTENT):
        at += struct.unpack_from("<Q", CONTENT, at)[0] + 16
        made.append(at)
    return made


def test_known_checksums() -> None:
    strings = [b"", b"123456789", b"\0" * 32, *([b"123456789"] * 20)]
    unmasked = [((crc - 0xA282EAD8) & 0xFFFFFFFF) for crc in masked_crcs(strings).tolist()]
    crcs = [((word >> 17) | (word << 15)) & 0xFFFFFFFF for word in unmasked]
    assert crcs == [0, 0xE3069283, 0x8A9136AA, *([0xE3069283] * 20)]  # RFC 3720, B.4


def test_a_tail_that_is_cut_off_is_counted(tmp_path: Path) -> None:
    whole, account = read(tmp_path / "events", CONTENT)
    assert account.refused == {}
    assert len(whole) == len(bounds()) - 2, "the first record names the version"
    for cut in (CONTENT[:-1], CONTENT[: bounds()[-2] + 5], CONTENT[: bounds()[-2] + 13]):
        found, account = read(tmp_path / "events", cut)
        assert found == [one for one in whole if one in found]
        assert len(found) == len(whole) - 1
        assert account.refused == {CUT_OFF: 1}
    found, account = read(tmp_path / "events", CONTENT[: bounds()[-2]])
    assert account.refused == {}, "a file may end after any record"


@pytest.mark.parametrize("place", [14, 30])
def test_a_damaged_record_is_left_out_and_counted(tmp_path: Path, place: int) -> None:
    start = bounds()[5]
    content = bytearray(CONTENT)
    content[start + place] ^= 0x40
    whole, _ = read(tmp_path / "events", CONTENT)
    found, account = read(tmp_path / "events", bytes(content))
    assert len(found) == len(whole) - 1
    assert account.refused == {"the record's checksum is wrong": 1}
    assert account.places["the record's checksum is wrong"] == "record 6"


def test_a_pointer_says_what_to_do() -> None:
    with pytest.raises(LogError, match="git lfs pull"):
        find(GOLDEN / "events.out.tfevents.pointer")


def test_files_of_one_folder_are_launches_of_one_run(tmp_path: Path) -> None:
    for name in ("events.out.tfevents.2.a", "events.out.tfevents.10.a"):
        (tmp_path / name).write_bytes(CONTENT)
    (group,) = find(tmp_path).groups
    assert [path.name for path in group.paths] == ["events.out.tfevents.2.a", "events.out.tfevents.10.a"]
    assert list({block.launch: None for block in group.read(Account())}) == [path.name for path in group.paths]


@given(st.binary(max_size=60), st.integers(0, len(CONTENT) - 1))
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int) -> None:
    path = tmp_path_factory.mktemp("noise") / "events"
    found, account = read(path, CONTENT[:at] + noise + CONTENT[at + len(noise) :])
    assert account.lines + account.refused.total() >= 0
    record = struct.pack("<Q", len(noise))
    framed = record + masked_crcs([record]).tobytes() + noise + masked_crcs([noise]).tobytes()
    found, account = read(path, framed)
    assert account.lines == 1
    assert found == [] or len(found) < 10
