"""What logs are like after crashes, exports and terminals: each case is read as a person would read it, or refused."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest

from service.importers.folders import find
from service.importers.job import Options, Preview, look
from service.importers.rows import CUT_OFF, EMPTY_LINE, NO_NUMBER, NO_STEP, LogError

TABLE = "step,loss,lr\n1,3,0.1\n2,2,0.1\n"
LINES = '{"step": 1, "loss": 3}\n{"step": 2, "loss": 2}\n'
Found = dict[str, list[tuple[int, float]]]
LOSS: Found = {"loss": [(1, 3.0), (2, 2.0)]}
LONGER: Found = {"loss": [(1, 3.0), (2, 2.0), (3, 1.0)]}
BOTH: Found = LOSS | {"lr": [(1, 0.1), (2, 0.1)]}
PRINTED: Found = {"step/loss": [(999, 3.0), (1000, 2.0)]}


def seen(path: Path, content: str | bytes) -> tuple[Preview, Found]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (group,) = find(path).groups
    preview = look(group, Options("test", tokens_per_step=1))
    found: Found = {}
    for block in preview.survey.kept or []:
        for metric, (values, _) in block.columns.items():
            pairs = zip(block.steps_of(metric).tolist(), values.tolist(), strict=True)
            found.setdefault(metric, []).extend(pairs)
    return preview, found


@pytest.mark.parametrize(
    ("content", "expected", "refused"),
    [
        (TABLE.encode("utf-16-be"), BOTH, {}),
        (TABLE.encode("utf-16-le"), BOTH, {}),
        (TABLE.encode("utf-32"), BOTH, {}),
        (TABLE.replace("\n", "\r"), BOTH, {}),
        (TABLE.replace("\n", "\r\n").replace(",", "|"), BOTH, {}),
        ("# run 7\n# by hand\n" + TABLE, BOTH, {}),
        ("# step loss\n1 3\n2 2\n", LOSS, {}),
        ("| step | loss |\n|---|---|\n| 1 | 3 |\n| 2 | 2 |\n", LOSS, {NO_NUMBER: 1}),
        ('step,loss,note\n1,3,"two\nlines"\n2,2,x\n', LOSS, {}),
        ("step,loss,note\n1,3,caf\xe9\n2,2,x\n".encode("latin-1"), LOSS, {}),
        ("step,loss\n1,3\n3,N/A\n4,None\n5,-\n6,#NUM!\n2,2\n", LOSS, {NO_NUMBER: 4}),
        ("step,loss\n1,1e400\n2,-1e400\n", {"loss": [(1, math.inf), (2, -math.inf)]}, {}),
        ("step,loss\n1e3,3\n2e3,2\n2500.5,1\n", {"loss": [(1000, 3.0), (2000, 2.0)]}, {NO_STEP: 1}),
        ("step,loss\n9223372036854775808,3\n-1,3\n2,2\n", {"loss": [(2, 2.0)]}, {NO_STEP: 2}),
        ("step;loss\n1 000;3,25\n1'001;1 234,5\n", {"loss": [(1000, 3.25), (1001, 1234.5)]}, {}),
        ("step,acc\n1,50%\n2,51.5 %\n", {"acc": [(1, 50.0), (2, 51.5)]}, {}),
        ("step,loss\n1,3\n2,2\n" + "\0" * 300 + "\n3,1\n", LONGER, {EMPTY_LINE: 1}),
        (LINES + "\0" * 300 + '{"step": 3, "loss": 1}\n' + "\0" * 50, LONGER, {CUT_OFF: 1}),
        (LINES + 'Resuming\n{"lr": 1, "model": {"d": 5}}\n' + LINES, {"loss": LOSS["loss"] * 2}, {EMPTY_LINE: 2}),
        (LINES + '{"step": 3, "loss": "oops"}\n{"step": 3, "loss": "1.0"}\n', LONGER, {NO_NUMBER: 1}),
        ("step 999: loss 3.0\nstep 1,000: loss 2.0\n", PRINTED, {}),
        ("\x1b[32mstep 999\x1b[0m | \x1b[1mloss: 3.0\x1b[0m | x\n\x1b[1mstep 1000 | loss: 2.0 | x\n", PRINTED, {}),
        ("[rank0]:INFO step: 999 loss: 3.0\n[rank0]:INFO step: 1000 loss: 2.0\n", PRINTED, {}),
        ("step 999: loss 0.3D+01\nstep 1000: loss 2.0d0\n", PRINTED, {}),
        (gzip.compress(TABLE.encode()) + b"\0" * 10, BOTH, {}),
    ],
    ids=[
        "utf16be", "utf16le", "utf32", "cr", "bars", "comments", "named-by-comment", "markdown", "newline-in-cell",
        "latin1", "no-numbers", "beyond-float", "float-steps", "steps-beyond", "european", "percent", "zeros-in-table",
        "zeros-in-lines", "resumed", "text-in-lines", "thousands", "colours", "rank", "fortran", "padded-gzip",
    ],
)  # fmt: skip
def test_a_trap(tmp_path: Path, content: str | bytes, expected: Found, refused: dict[str, int]) -> None:
    preview, found = seen(tmp_path / "log", content)
    assert repr(found) == repr(expected)
    assert preview.account.refused == refused
    assert preview.read == sum(len(pairs) for pairs in found.values()) + sum(refused.values())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("time,loss\n1.5,2\n", "a table needs a column that counts steps, named step or iteration: its first line is"),
        ("step,note\n1,a\n2,b\n", "no value could be read (columns of text are no metrics: note)"),
        ("hello\n", "no line like `step 10: loss 3.2` was found"),
        ('{"loss": 2.5}', "JSON with a step in each line, or a document of a known tool, is expected"),
        (b"PK\x03\x04" + b"\0" * 30, "this is an archive: unpack it"),
        (b"a" * 257 + b"ustar" + b"\0" * 200, "this is an archive: unpack it"),
        ("<!DOCTYPE html>\n<html></html>\n", "this is a web page"),
        (b"SQLite format 3\0" + b"\0" * 100, "a SQLite file without the tables of MLflow or Trackio"),
        (b"\x93NUMPY\x01\0v\0" + b"\x02\x03" * 60, "this is not a text file"),
        (gzip.compress(TABLE.encode()) + b"more", "damaged"),
    ],
)
def test_what_is_no_log_is_told_in_one_short_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(LogError) as raised:
        seen(tmp_path / "log", content)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < len(str(tmp_path)) + 200
