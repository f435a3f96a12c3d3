"""Files as they come: compressed, in other encodings, cut off, with text where numbers belong."""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from importing import GOLDEN

from service.importers.attempts import attempts
from service.importers.canonical import Target, naming
from service.importers.detect import open_log
from service.importers.folders import find
from service.importers.job import Options, look
from service.importers.rows import NO_NUMBER, Account, LogError, Row, unix_seconds
from service.importers.tables import times_of

pa: Any = import_module("pyarrow")  # has no types
TABLE = "step,loss,lr\n1,3.5,0.1\n2,NaN,0.1\n3,inf,\n"
LONG = "step,loss\n" + "".join(f"{step},{1 / (step + 3)}\n" for step in range(40_000))
EXPECTED = [(1, "loss", 3.5), (1, "lr", 0.1), (2, "loss", math.nan), (2, "lr", 0.1), (3, "loss", math.inf)]


def read(path: Path) -> tuple[list[tuple[int, str, float]], Account]:
    with open_log(path) as log:
        return [row[:3] for row in log.rows], log.account


def same(found: list[tuple[int, str, float]], expected: list[tuple[int, str, float]]) -> bool:
    return repr(found) == repr(expected)


@pytest.mark.parametrize(
    "content",
    [
        TABLE.encode(),
        b"\xef\xbb\xbf" + TABLE.encode(),
        TABLE.replace("\n", "\r\n").encode(),
        TABLE.replace(",", "\t").encode(),
        TABLE.replace(",", ";").encode(),
        TABLE.encode("utf-16"),
        TABLE.encode("utf-16-le"),
        gzip.compress(TABLE.encode()),
        zstandard.compress(TABLE.encode()),
        zstandard.compress(TABLE[:9].encode()) + zstandard.compress(TABLE[9:].encode()),
        gzip.compress(TABLE.encode("utf-16")),
    ],
    ids=["plain", "bom", "crlf", "tab", "semicolon", "utf16", "utf16le", "gzip", "zstd", "zstd-frames", "gzip-utf16"],
)
def test_a_table_in_any_dress(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    assert same(read(path)[0], EXPECTED)


def test_white_space_and_quotes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("step  loss\n  1   3.5\n  2   3.25\n")
    assert read(path)[0] == [(1, "loss", 3.5), (2, "loss", 3.25)]
    path.write_text('"Step","a, b - train/loss","a, b - train/loss__MIN","a, b - train/loss__MAX"\n"1","2.5","2","3"\n')
    assert read(path)[0] == [(1, "a, b - train/loss", 2.5)]


def test_a_long_table(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("step,metric,value,segment\n5,train/ce_loss,2,a\n6,train/ce_loss,,a\n5,heldout/x/ce_loss,3,a\n")
    found, account = read(path)
    assert found == [(5, "train/ce_loss", 2.0), (5, "heldout/x/ce_loss", 3.0)]
    assert account.sorted_by_metric
    assert account.refused == {NO_NUMBER: 1}


def test_a_cut_off_line_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("step,loss,lr\n1,3.5,0.1\n2,3.")
    found, account = read(path)
    assert found == [(1, "loss", 3.5), (1, "lr", 0.1)]
    assert account.truncated == 1
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    found, account = read(path)
    assert found == [(1, "loss", 2.0)]
    assert account.truncated == 1
    path.write_text("completed step: 0, seconds: 1.5, loss: 2.125\ncompleted step: 1, seconds: 1.5, loss: 2.1")
    found, account = read(path)
    assert found[-1] == (1, "seconds", 1.5), "the last number may have lost digits"
    assert account.truncated == 1


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        '{"_step": 7, "_timestamp": 1700000000.5, "train": {"loss": NaN, "ok": true}, "note": "x", "lr": "0.5"}\n'
        "no json\n"
        '{"_step": 8, "train": {"loss": null}, "lr": Infinity}\n'
    )
    with open_log(path) as log:
        rows = list(log.rows)
    assert repr(rows) == repr(
        [Row(7, "train/loss", math.nan, 1700000000.5), Row(7, "lr", 0.5, 1700000000.5), Row(8, "lr", math.inf, None)]
    )
    assert (log.account.lines, log.account.skipped, log.account.first_skipped) == (3, 1, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"hello world\n", "no known format"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:40\nsize 4419\n", "Git LFS pointer"),
        (b"\x0a\x00\x01\xff\x00\x02\x03\x00" * 100, "this is not a text file"),
        (b'{"results": {"arc_easy": {"acc": 0.5}}}', "name the file after its checkpoint"),
        (b"name,val_loss\nbase,2.5\nwide,2.4\n", "no column tells the step"),
        (gzip.compress(TABLE.encode())[:-12], "damaged"),
        (zstandard.compress(TABLE.encode() * 1000)[:-12], "damaged"),
        (gzip.compress(LONG.encode())[:-12], "damaged or cut off"),
        (zstandard.compress(LONG.encode())[:-12], "damaged or cut off"),
        (b"\x1f\x8bnot really gzip", "compression is damaged"),
    ],
)
def test_what_cannot_be_read_says_so_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(LogError, match=message) as raised:
        read(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "texts",
    [
        ["2026-01-02T03:04:05", "2026-01-02 03:04:05.250", ""],
        ["2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05.123456+02:00", "2026-01-02T03:04:05Z"],
        ["2026-01-02T03:04:05", "2026-01-02T03:04:05+02:00"],
        ["2026-01-02", "soon", "1700000000.5"],
    ],
)
def test_times_as_text(texts: list[str]) -> None:
    found = times_of(pa.array([text or None for text in texts]))
    assert found is not None
    expected = [unix_seconds(text) for text in texts]
    assert found.tolist() == pytest.approx([math.nan if time is None else time for time in expected], nan_ok=True)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="cannot be read"):
        read(tmp_path / "none")


def test_what_is_no_file(tmp_path: Path) -> None:
    pipe, loop = tmp_path / "pipe", tmp_path / "loop"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    with pytest.raises(LogError, match="pipe: a pipe or a device"):
        find(pipe)
    with pytest.raises(LogError, match="loop: cannot be read"):
        find(loop)
    (tmp_path / "log.csv").write_text(TABLE)
    assert [group.name for group in find(tmp_path).groups] == ["log"], "in a folder they are passed over"


def test_a_disk_that_fails_is_said_of_the_file() -> None:
    with pytest.raises(LogError, match=r"^/proc/self/mem: cannot be read"):
        find(Path("/proc/self/mem"))  # reading at 0 is an input/output error


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("name", ["wandb_history.parquet", "peers/mlflow.db", "peers/trackio.db"])
def test_what_is_read_by_position_may_be_compressed(
    tmp_path: Path, compress: Callable[[bytes], bytes], name: str
) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(compress((GOLDEN / name).read_bytes()))
    assert same(read(packed)[0], read(GOLDEN / name)[0])
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(LogError, match="packed: the compression is damaged or cut off"):
        read(packed)


@given(
    st.lists(
        st.tuples(st.integers(0, 10**9), st.floats(), st.none() | st.floats(allow_nan=False)), min_size=1, max_size=20
    )
)
def test_every_value_of_a_table_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, float, float | None]]
) -> None:
    path = tmp_path_factory.mktemp("table") / "log.csv"
    lines = [f"{step},{a!r},{'' if b is None else repr(b)}" for step, a, b in rows]
    path.write_text("\n".join(["step,a,b", *lines]) + "\n")
    expected = [(step, name, value) for step, a, b in rows for name, value in (("a", a), ("b", b)) if value is not None]
    assert same(read(path)[0], expected)


def test_names_of_maxtext_and_olmo_core() -> None:
    known = naming(
        "json_lines",
        [
            "learning/loss",
            "learning/lm_loss",
            "eval/lm/dolma_common-crawl-validation/CE loss",
            "eval/downstream/arc_easy (accuracy)",
            "heldout/pile/ce_loss",
            "something",
        ],
    )
    assert known.known == {
        "learning/lm_loss": Target("train/ce_loss", 1),
        "eval/lm/dolma_common-crawl-validation/CE loss": Target("heldout/dolma_common_crawl/ce_loss"),
        "eval/downstream/arc_easy (accuracy)": Target("downstream/arc_easy/accuracy"),
        "heldout/pile/ce_loss": Target("heldout/pile/ce_loss"),
    }
    assert known.unknown == ["learning/loss", "something"]


def test_attempts_keep_evaluations_made_before_a_restart() -> None:
    known = {"t": Target("train/ce_loss", 1), "v": Target("heldout/val/ce_loss")}
    rows = (
        [Row(s, "t", 1.0) for s in range(5)]
        + [Row(3, "v", 2.0), Row(3, "v", 2.5)]
        + [Row(3, "t", 0.5), Row(4, "t", 0.4)]
    )
    made = attempts(rows, known, in_time_order=True)
    assert [(a.start_step, sorted(a.points)) for a in made] == [(0, [1, 2, 3, 4, 5]), (3, [4, 5])]
    assert made[0].points[3] == {"train/ce_loss": 1.0, "heldout/val/ce_loss": 2.5}
    assert len(attempts(rows, known, in_time_order=False)) == 1


@pytest.mark.parametrize(
    "content",
    [
        "run_name,max_iters,final_train_loss,final_val_loss\na,5000,0.554,1.749\nb,5000,0.633,1.704\n",
        "step,train_loss,val_loss\n" + "".join(f"{step},0.2,1.3\n" for step in range(44_000, 46_000, 100)),
    ],
)
def test_a_run_that_has_memorized_its_data_is_no_perplexity(tmp_path: Path, content: str) -> None:
    """Where the beginning is not there, losses far apart are what they are: that is what memorization looks like."""
    path = tmp_path / "log.csv"
    path.write_text(content)
    (group,) = find(path).groups
    for run in look(group, Options("test")).plan.runs.values():
        assert {target.metric for target in run.known.values()} == {"train/ce_loss", "heldout/val/ce_loss"}
        assert not any(target.converts for target in run.known.values())
