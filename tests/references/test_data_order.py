"""What a bundle says of its data order: order.json and rows.bin, read, installed, written out again, and made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine
from typer.testing import CliRunner

from service.cli.main import app
from service.database.engine import open_engine, reading, writing
from service.database.migrate import ensure_schema
from service.detect.inputs import RowReadings
from service.fingerprints.repository import FingerprintRepository
from service.importers.rows import LogError
from service.references.archive import bundle_files
from service.references.bundle import BundleError, load_bundle
from service.references.data_order import DataOrder, ExpectedRows, expected_rows, read_expected
from service.references.expecting import by_loader, by_order
from service.references.exporting import export_reference
from service.references.repository import ReferenceRepository
from trainer_hooks.fingerprints import row_hashes

ORDER = {"method": "pcg64-shuffle", "rows": 100, "rows_per_step": 8, "row_length": 40, "seed": 34521, "epochs": 2}
SAMPLE = 4


def made(steps: list[int], numbers: list[int], seen: list[tuple[int, int, int]], stage: str = "stage1") -> ExpectedRows:
    order = sorted(zip(steps, numbers, strict=True))
    return ExpectedRows(
        stage, SAMPLE, np.array([s for s, _ in order], np.int64),
        np.array([SAMPLE * n for _, n in order], np.uint64), seen,
    )  # fmt: skip


EXPECTED = made([1, 1, 2, 4], [7, 3, 5, 5], [(1, 2, 8), (4, 4, 8)])


@pytest.fixture
def ordered(small: Path) -> Path:
    """A small bundle with both files."""
    (small / "order.json").write_text(json.dumps({"stage1": ORDER}))
    (small / "rows.bin").write_bytes(EXPECTED.to_bytes())
    return small


def installed(url: str, path: Path) -> Engine:
    engine = open_engine(url)
    ensure_schema(engine)
    with writing(engine) as session:
        ReferenceRepository(session).install(load_bundle(path))
    return engine


def test_it_is_installed_and_goes_out_as_it_came(ordered: Path, tmp_path: Path, database_url: str) -> None:
    engine = installed(database_url, ordered)
    with reading(engine) as session:
        references = ReferenceRepository(session)
        reference = references.current("small")
        assert reference is not None
        run = references.run_of(reference.id, "stage1")
        assert run is not None
        read = FingerprintRepository(session).rows(run.id)
        assert read is not None
        assert (read.steps.tolist(), read.sample) == ([1, 1, 2, 4], SAMPLE)
        assert (read.seen_steps.tolist(), read.seen_rows.tolist()) == ([1, 2, 4], [8, 8, 8])
        out = export_reference(session, reference, tmp_path / "out.pacenote")
    again, first = load_bundle(out), load_bundle(ordered)
    assert again.digest == first.digest
    assert again.description.data_order["stage1"] == DataOrder.model_validate(ORDER)
    assert bundle_files(out)["rows.bin"] == (ordered / "rows.bin").read_bytes()
    with writing(engine) as session:
        ReferenceRepository(session).install(again)  # the same: no conflict


def test_the_digest_covers_both_files(ordered: Path) -> None:
    found = {load_bundle(ordered).digest}
    (ordered / "order.json").write_text(json.dumps({"stage1": {**ORDER, "seed": 7}}))
    found.add(load_bundle(ordered).digest)
    for other in (
        made([1, 1, 2, 4], [7, 3, 5, 6], EXPECTED.seen),
        made([1, 1, 2, 4], [7, 3, 5, 5], [(1, 4, 8)]),
    ):
        (ordered / "rows.bin").write_bytes(other.to_bytes())
        found.add(load_bundle(ordered).digest)
    (ordered / "rows.bin").unlink()
    found.add(load_bundle(ordered).digest)
    (ordered / "order.json").unlink()
    found.add(load_bundle(ordered).digest)
    assert len(found) == 6


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("order.json", b"{", "order.json: is no JSON"),
        ("order.json", b"[]", "must be an object of stages"),
        ("order.json", json.dumps({"stage9": ORDER}).encode(), "order.json: there is no stage 'stage9'"),
        ("order.json", json.dumps({"stage1": {**ORDER, "rows": 0}}).encode(), "order.json: data_order.stage1.rows"),
        ("order.json", json.dumps({"stage1": {**ORDER, "seed": None}}).encode(), "pcg64-shuffle needs a seed"),
        ("order.json", json.dumps({"stage1": {**ORDER, "method": "loader"}}).encode(), "which program"),
        ("rows.bin", b"rows", "does not end"),
        ("rows.bin", b"{}\n", "rows.bin: format: Field required"),
        ("rows.bin", EXPECTED.to_bytes()[:-1], "63 bytes follow the first line; 4 rows take 64"),
        ("rows.bin", EXPECTED.to_bytes().replace(b"rows-1", b"rows-9"), "this version reads pacenote-rows-1"),
        ("rows.bin", EXPECTED.to_bytes().replace(b"[4,4,8]", b"[2,4,8]"), "[2, 4, 8] is no run of steps behind step 2"),
        ("rows.bin", EXPECTED.to_bytes().replace(b"[4,4,8]", b"[5,5,8]"), "a row of a step that is not in seen"),
        ("rows.bin", EXPECTED.to_bytes().replace(b'"sample":4', b'"sample":8'), "no multiple of sample 8"),
        ("rows.bin", made([1], [1], [(1, 2, 8)], "stage9").to_bytes(), "is of stage 'stage9'"),
        ("rows/again.bin", EXPECTED.to_bytes(), "stage1 has expected rows already"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(ordered: Path, name: str, content: bytes, said: str) -> None:
    (ordered / name).parent.mkdir(exist_ok=True)
    (ordered / name).write_bytes(content)
    with pytest.raises(BundleError) as raised:
        load_bundle(ordered)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_unsorted_rows_are_refused() -> None:
    head, _, body = EXPECTED.to_bytes().partition(b"\n")
    for order in ([0, 1, 3, 2], [1, 0, 2, 3]):
        parts = [np.frombuffer(body[at : at + 32], "<u8")[order].tobytes() for at in (0, 32)]
        with pytest.raises(BundleError, match="sorted by step, then by hash"):
            read_expected("rows.bin", head + b"\n" + b"".join(parts))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 5)), max_size=25), st.data())
def test_what_is_written_is_read(read: list[tuple[int, int, int]], data: st.DataObject) -> None:
    array = np.array(sorted(read), np.int64).reshape(-1, 3)
    at = np.array(sorted({s for s, *_ in read} | data.draw(st.sets(st.integers(0, 12), min_size=1))), np.int64)
    rows = np.array(data.draw(st.lists(st.integers(1, 2), min_size=len(at), max_size=len(at))), np.int64)
    one = expected_rows(
        "s", RowReadings(array[:, 0], array[:, 1], (4 * array[:, 2]).astype(np.uint64), 4, at, rows)
    )  # fmt: skip
    again = read_expected("rows.bin", one.to_bytes())
    assert again.to_bytes() == one.to_bytes()
    assert [(s, r) for first, to, r in again.seen for s in range(first, to + 1)] == list(zip(at, rows, strict=True))
    kept = zip(again.steps.tolist(), again.hashes.tolist(), strict=True)
    assert sorted(kept) == sorted((step, 4 * value) for step, _, value in read)


def test_the_order_is_that_of_olmo_core() -> None:
    order = DataOrder.model_validate(ORDER)
    batches = list(order.batches())
    assert len(batches) == 24  # two passes of 12 whole batches
    for number in (1, 2):
        expected = np.arange(100, dtype=np.uint32)
        np.random.Generator(np.random.PCG64(34521 + number)).shuffle(expected)
        assert np.concatenate(batches[12 * number - 12 : 12 * number]).tolist() == expected[:96].tolist()
    half = DataOrder.model_validate({**ORDER, "epochs": 1.5})
    assert [b.tolist() for b in half.batches()] == [b.tolist() for b in batches[:18]]


def token_files(folder: Path) -> tuple[list[Path], np.ndarray[Any, Any]]:
    """100 rows of 40 tokens over three files of both kinds, each with a remainder that is dropped."""
    tokens = np.random.default_rng(0).integers(0, 1000, (100, 40)).astype("<u4")
    paths = [folder / name for name in ("a.bin", "b.npy", "c.npy")]
    paths[0].write_bytes(tokens[:30].tobytes() + b"\1\0\0\0" * 39)
    np.save(paths[1], tokens[30:60])
    np.save(paths[2], np.append(tokens[60:].reshape(-1), 7).astype(np.uint16))
    return paths, tokens


def test_rows_by_a_computed_order(tmp_path: Path) -> None:
    paths, tokens = token_files(tmp_path)
    order = DataOrder.model_validate(ORDER)
    found = by_order(order, paths, "stage1", sample=1)
    numbers = row_hashes(tokens)
    for step, batch in enumerate(order.batches(), 1):
        assert found.hashes[found.steps == step].tolist() == sorted(numbers[batch].tolist())
    assert found.seen == [(1, 24, 8)]
    assert by_order(order, paths, "stage1", 3, sample=1).seen == [(1, 3, 8)]
    with pytest.raises(LogError, match="the files hold 60 rows, the order is of 100"):
        by_order(order, paths[:2], "stage1")
    with pytest.raises(LogError, match=r"none\.bin: cannot be read"):
        by_order(order, [tmp_path / "none.bin"], "stage1")
    with pytest.raises(LogError, match="must say row_length"):
        by_order(order.model_copy(update={"row_length": None}), paths, "stage1")


def factory(process_index: int, process_count: int) -> Any:
    rows = np.random.default_rng(1).integers(0, 1000, (64, 40))
    mine = rows[process_index::process_count]
    return ({"inputs": mine[at : at + 2]} for at in range(0, len(mine), 2))


def test_rows_by_a_loader_do_not_depend_on_hosts() -> None:
    one, four = (by_loader(factory, "stage1", 8, hosts=hosts, sample=1, batches_per_step=per)
                 for hosts, per in ((1, 4), (4, 1)))  # fmt: skip
    assert one.to_bytes() == four.to_bytes()
    assert four.seen == [(1, 8, 8)]
    assert by_loader(factory, "stage1", 99, hosts=4, sample=1).seen == [(1, 8, 8)]  # the data end
    with pytest.raises(LogError, match=r"host 0 of 1: step 1: .*no 'tokens', only inputs"):
        by_loader(factory, "stage1", 8, rows="tokens")
    with pytest.raises(LogError, match="ended before its first step"):
        by_loader(lambda: iter(()), "stage1", 8)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths, _ = token_files(tmp_path)
    (tmp_path / "order.json").write_text(json.dumps({"stage1": ORDER}))
    files = [part for path in paths for part in ("--tokens", str(path))]
    run = CliRunner().invoke
    done = run(app, ["reference", "rows", "--order", "order.json", *files, "--sample", "4"])
    assert done.exit_code == 0, done.output
    assert "of 192 rows, 1 in 4, of steps 1 to 24" in done.output
    read = read_expected("rows.bin", (tmp_path / "rows.bin").read_bytes())
    assert read.to_bytes() == by_order(DataOrder.model_validate(ORDER), paths, "stage1", sample=4).to_bytes()
    (tmp_path / "own_data.py").write_text(
        "import numpy as np\nrows = np.arange(80).reshape(2, 40)\n"
        "def make():\n    return iter([{'inputs': rows + 99 * i} for i in range(3)])\n"
    )
    done = run(app, ["reference", "rows", "own_data.py:make", "--steps", "9", "--sample", "1", "-o", "own.bin"])
    assert done.exit_code == 0, done.output
    assert read_expected("own.bin", (tmp_path / "own.bin").read_bytes()).seen == [(1, 3, 2)]
    for wrong, said in (
        (["own_data.py:make"], "Give --steps"),
        ([], "Give either MODULE:FACTORY or --order"),
        (["--order", "order.json", "--stage", "stage9"], "has no stage stage9; it has stage1"),
        (["--order", "own_data.py"], "is no JSON"),
        (["--order", "none.json"], "none.json cannot be read"),
        (["own_data.py:make", "--steps", "3", "--key", "text"], "no 'text', only inputs"),
    ):
        done = run(app, ["reference", "rows", *wrong])
        assert (done.exit_code, said in done.output) == (2, True), done.output


def test_a_built_reference_carries_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordered: Path) -> None:
    monkeypatch.setenv("PACENOTE_DATABASE_URL", f"sqlite:///{tmp_path / 'own.db'}")
    log = tmp_path / "run.csv"
    log.write_text("step,train/ce_loss\n" + "\n".join(f"{s},{3 - s / 100}" for s in range(1, 9)) + "\n")
    common = ["--tokens-per-step", "512", "--licence", "CC0-1.0", "--citation", "Nobody"]
    files = ["--rows", str(ordered / "rows.bin"), "--order", str(ordered / "order.json")]
    out = tmp_path / "built.pacenote"
    done = CliRunner().invoke(app, ["reference", "build", "own", str(log), *common, *files, "--out", str(out)])
    assert done.exit_code == 0, done.output
    bundle = load_bundle(out)
    assert [one.to_bytes() for one in bundle.rows] == [EXPECTED.to_bytes()]
    assert bundle.description.data_order["stage1"].seed == 34521
    done = CliRunner().invoke(app, ["reference", "build", "other", str(log), *common, "--rows", str(log)])
    assert (done.exit_code, "run.csv: " in done.output) == (2, True)
