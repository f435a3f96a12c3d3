"""What holds of every reader, whatever it is given: no crash, no hang, no silent loss."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from sqlalchemy import func, select

from service.database.engine import open_engine, reading
from service.database.migrate import ensure_schema
from service.database.models import Chunk
from service.importers.blocks import Block
from service.importers.detect import FORMATS
from service.importers.folders import find
from service.importers.formats import Source
from service.importers.job import Options, Report, look, store
from service.importers.rows import Account, LogError
from service.series.journal import TIME, TOKENS

GOLDEN = Path(__file__).parents[1] / "golden" / "logs"
# Formats by what they are made of. A database or Parquet is opened by SQLite and Arrow, which are fuzzed elsewhere.
TARGETS: dict[str, tuple[str, ...]] = {
    "printed": ("key_value_log", "deepspeed", "maxtext_stdout", "olmo_core"),
    "tables": ("delimited", "runs_table"),
    "json": ("json_lines", "hf_trainer", "megatron_golden", "lm_eval", "lm_eval_columns", "olmes"),
    "events": ("tensorboard",),
}
LINES = ("key_value_log", "deepspeed", "maxtext_stdout")  # of which every line is told of
NAME = "log_step5"  # some formats take the step from the file's name
ONE_LINE = 2000  # characters of a message


def check_readers(content: bytes, formats: Sequence[str]) -> None:
    """Read some bytes as each of these formats, whether they look like it or not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        path.write_bytes(content)
        for name in formats:
            account, values = Account(), 0
            try:
                for block in FORMATS[name].read(Source(path, steps_at=10.0), account):
                    check_block(block)
                    values += block.points
            except LogError as error:
                check_message(error)
                continue
            assert all(count > 0 for count in account.refused.values()), account.refused
            assert set(account.places) == set(account.refused), "each refusal says where it came up first"
            if name in LINES and content.strip() and account.lines:
                blank = not content.decode("utf-8", "replace").strip()
                assert blank or values + account.refused.total() > 0, f"{name}: lines went by and nothing was said"


def check_block(block: Block) -> None:
    """A block's columns stand in ascending rows, and its steps are no less than 0."""
    assert len(block) > 0
    assert (block.steps >= 0).all()
    assert (block.steps <= 2**62).all()
    assert block.times is None or len(block.times) == len(block)
    for metric, (values, rows) in block.columns.items():
        assert len(values) == len(block.steps_of(metric)) > 0, metric
        assert rows is None or (rows[1:] > rows[:-1]).all(), metric
        assert rows is None or 0 <= rows[0] <= rows[-1] < len(block), metric


def check_message(error: LogError) -> None:
    """A refusal is one line."""
    assert "\n" not in str(error)
    assert len(str(error)) < ONE_LINE


def check_import(content: bytes) -> Report | None:
    """Import some bytes as what they are found to be, twice; None if they are refused.

    What went in is what is stored, superseded and refused; the database agrees; and the second time stores nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        path.write_bytes(content)
        try:
            (group,) = find(path).groups
            options = Options("fuzz", tokens_per_step=10)
            preview = look(group, options)
        except LogError as error:
            check_message(error)
            return None
        database = Path(folder) / "pacenote.db"
        shutil.copy(_empty_database(), database)
        engine = open_engine(f"sqlite:///{database}")
        try:
            report = store(engine, preview, options)
            segments = [segment for _, outcome in report.runs.values() for segment in outcome.segments]
            with reading(engine) as session:
                kept = select(func.sum(Chunk.points)).where(
                    Chunk.segment_id.in_(segments), Chunk.metric_id.not_in((TIME, TOKENS))
                )
                written = session.scalar(kept) or 0
            again = store(engine, preview, options)
        finally:
            engine.dispose()
    assert report.read == report.stored + report.superseded + report.refused.total()
    assert min(report.stored, report.superseded) >= 0
    assert written == report.stored + report.superseded + report.copies
    assert (again.stored, again.superseded) == (0, 0)
    return report


def seeds(target: str, size: int = 3000) -> list[bytes]:
    """Beginnings of real logs of a target's formats, or of all for any other name."""
    suffixes = {"printed": (".log", ".txt", ".out"), "tables": (".csv",), "json": (".json",)}.get(target)
    paths = [path for path in sorted(GOLDEN.rglob("*")) if path.is_file() and path.name not in ("SOURCE.md",)]
    if target == "events":
        paths = [path for path in paths if "tfevents" in path.name]
    elif suffixes is not None:
        paths = [path for path in paths if path.suffix in suffixes]
    return [path.read_bytes()[:size] for path in paths]


@cache
def _empty_database() -> Path:
    path = Path(tempfile.mkdtemp(prefix="pacenote-fuzz-")) / "empty.db"
    engine = open_engine(f"sqlite:///{path}")
    ensure_schema(engine)
    engine.dispose()
    return path
