"""No text breaks a reader, hangs it, or is lost in silence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from importing import GOLDEN, check

from service.database.engine import open_engine
from service.importers.detect import FORMATS
from service.importers.folders import find
from service.importers.formats import Source
from service.importers.job import Options, look, store
from service.importers.rows import Account, LogError, number, whole

TEXTS = [name for name, one in FORMATS.items() if name not in ("mlflow_sqlite", "trackio", "parquet", "tensorboard")]
SAMPLES = [
    path.read_text() for path in sorted(GOLDEN.iterdir()) if path.suffix in (".log", ".csv", ".txt", ".out", ".json")
]
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

slices = st.builds(
    lambda text, start, length: text[start : start + length],
    st.sampled_from(SAMPLES),
    st.integers(0, 1500),
    st.integers(0, 700),
)
words = st.lists(st.sampled_from(WORDS), max_size=60).map("".join)
texts = st.lists(st.one_of(slices, words, st.text(max_size=40)), min_size=1, max_size=4).map("".join)


@given(texts)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_text_breaks_a_reader(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any_text_step5"
    path.write_text(text, encoding="utf-8", newline="")
    lines = [line for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n") if line.strip()]
    messages: list[str] = []
    for name in TEXTS:
        account, values = Account(), 0
        try:
            for block in FORMATS[name].read(Source(path, steps_at=10.0), account):
                assert (block.steps >= 0).all()
                values += block.points
                for metric, (found, rows) in block.columns.items():
                    assert len(found) == len(block.steps_of(metric)), metric
                    assert rows is None or (rows[1:] > rows[:-1]).all()
        except LogError as error:
            messages.append(str(error))
            continue
        if name in ("key_value_log", "deepspeed", "maxtext_stdout", "json_lines") and lines:
            assert values + account.refused.total() > 0 or "{" in text, "lines went by and nothing was said"
    assert not any("\n" in message for message in messages)


@given(texts)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_recognised_is_accounted_for(
    tmp_path_factory: pytest.TempPathFactory, empty_database: Path, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any_text_step6"
    path.write_text(text, encoding="utf-8", newline="")
    messages: list[str] = []
    database = tmp_path_factory.getbasetemp() / "any_text.db"
    shutil.copy(empty_database, database)
    engine = open_engine(f"sqlite:///{database}")
    options = Options("fuzz", tokens_per_step=10)
    try:
        (group,) = find(path).groups
        check(engine, store(engine, look(group, options), options))
    except LogError as error:
        messages.append(str(error))
    finally:
        engine.dispose()
        for file in database.parent.glob("any_text.db*"):
            file.unlink()
    assert not any("\n" in message for message in messages)


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
