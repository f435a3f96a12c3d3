"""The invariants on some hundred odd texts; `make fuzz` goes on for as long as it is told to."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invariants import TARGETS, check_import, check_readers, seeds

from service.importers.folders import find
from service.importers.formats import Source
from service.importers.rows import Account, LogError, number, whole

FEW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
FEWER = settings(FEW, max_examples=25)
WORDS = [
    "step",
    "1",
    "2",
    "loss",
    ",",
    "|",
    ":",
    " ",
    "\n",
    "nan",
    "1e5",
    "iteration",
    '"',
    "{",
    "}",
    "[step=",
    "=",
    "/",
]
WORDS += [
    "\t",
    ";",
    "\r\n",
    "global_step",
    "[Rank 0] ",
    "completed step: ",
    '"metrics": {',
    "\ufeff",
    "1.0D+00",
    "9" * 400,
]

words = st.lists(st.sampled_from(WORDS), max_size=60).map(lambda parts: "".join(parts).encode())
texts = st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace"))


def contents(target: str) -> st.SearchStrategy[bytes]:
    """Pieces of real logs, of words, and of anything, in one."""
    slices = st.builds(
        lambda content, start, size: content[start : start + size],
        st.sampled_from(seeds(target)),
        st.integers(0, 1500),
        st.integers(0, 700),
    )
    return st.lists(st.one_of(slices, words, texts, st.binary(max_size=30)), min_size=1, max_size=4).map(b"".join)


@pytest.mark.parametrize("target", TARGETS)
def test_no_content_breaks_a_reader(target: str) -> None:
    @given(contents(target))
    @FEW
    def check(content: bytes) -> None:
        check_readers(content, TARGETS[target])

    check()


@given(contents("import"))
@FEWER
def test_whatever_is_recognised_is_accounted_for(content: bytes) -> None:
    check_import(content)


numbers = st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.just("NaN"))
values = st.one_of(numbers, st.none(), st.booleans(), st.lists(st.integers(), max_size=2))
objects = st.dictionaries(st.sampled_from(["loss", "lr", "a b", "é"]), values, max_size=4)


@given(st.lists(st.tuples(st.integers(0, 2**53), objects, objects), min_size=1, max_size=12))
@FEW
def test_every_number_of_json_lines_is_told_of(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[int, dict[str, object], dict[str, object]]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.jsonl"
    path.write_text("".join(json.dumps({"step": step} | flat | {"in": nested}) + "\n" for step, flat, nested in lines))
    (group,) = find(path).groups
    account = Account()
    found = sum(block.points for block in group.format.read(Source(path), account))
    given_values = [value for _, flat, nested in lines for one in (flat, nested) for value in one.values()]
    assert found == sum(type(value) in (int, float, str) for value in given_values)
    assert not account.refused


cells = st.one_of(
    st.floats(allow_nan=False).map(repr), st.integers(-(10**9), 10**9).map(str), st.sampled_from(["", "NaN"])
)


@given(st.lists(st.tuples(st.integers(0, 2**53), cells, cells), min_size=1, max_size=30), st.sampled_from(",;\t"))
@FEW
def test_every_cell_of_a_table_is_told_of(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str, str]], mark: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    lines = [mark.join(("step", "a", "b")), *(mark.join((str(step), a, b)) for step, a, b in rows)]
    path.write_text("\n".join(lines) + "\n")
    try:
        (group,) = find(path).groups
    except LogError as error:
        pytest.fail(str(error))
    account = Account()
    found = sum(block.points for block in group.format.read(Source(path), account))
    assert found + account.refused.total() == sum(bool(cell) for row in rows for cell in row[1:])


@given(st.text(max_size=30))
def test_cells(text: str) -> None:
    value = number(text)
    assert value is None or isinstance(value, float)
    assert whole(text) is None or float(whole(text) or 0) == value


@given(st.floats(allow_nan=False), st.integers(-999_999_999, 999_999_999))
def test_numbers_come_back(value: float, large: int) -> None:
    assert number(repr(value)) == value
    assert number(f" {large:,} ") == large
    assert number(f"{large / 64:.10E}".replace("E", "D")) == float(f"{large / 64:.10E}")
    assert math.isnan(number(" NaN ") or 0.0)


def test_what_has_been_found_stays_mended() -> None:
    for path in sorted((Path(__file__).parent / "found").iterdir()):
        target = path.name.partition("-")[0]
        if target == "import":
            check_import(path.read_bytes())
        else:
            check_readers(path.read_bytes(), TARGETS[target])
