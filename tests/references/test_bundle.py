"""Loading bundles: what a good one holds, and one clear line for each way to be bad."""

from __future__ import annotations

import io
import stat
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.references import archive
from service.references.bundle import BundleError, load_bundle
from service.references.series_file import read_series


def zipped(folder: Path, target: Path) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(folder).as_posix())
    return target


def test_a_good_bundle(small: Path) -> None:
    bundle = load_bundle(small)
    assert [(s.stage, s.sibling) for s in bundle.series] == [("stage1", ""), ("stage1", "seed-1")]
    reference = bundle.series[0]
    assert [launch.segment for launch in reference.launches] == ["a", "b"]
    assert reference.launches[0].launched == 1753077839.0
    curve = reference.curves["b"]["train/ce_loss"]
    assert curve.steps.tolist() == [2, 3, 4]
    np.testing.assert_array_equal(curve.values, [3.26, np.nan, 2.5])


def test_an_archive_is_the_same_bundle(small: Path, tmp_path: Path) -> None:
    assert load_bundle(zipped(small, tmp_path / "small.pacenote")).digest == load_bundle(small).digest


def test_the_digest_sees_every_file(small: Path) -> None:
    before = load_bundle(small).digest
    (small / ".DS_Store").write_text("noise")
    assert load_bundle(small).digest == before, "hidden files do not count"
    path = small / "siblings" / "seed-1.csv"
    path.write_text(path.read_text().replace("3.24", "3.25"))
    assert load_bundle(small).digest != before


CHANGES = [
    ("reference.toml", 'slug = "small"', 'slug = "Not A Slug"', "reference.toml: slug: "),
    ("reference.toml", 'slug = "small"', "slug = ", "reference.toml: Invalid value (at line 2, column 8)"),
    ("reference.toml", "steps = 100", "steps = -1", "reference.toml: stages[0].steps: "),
    ("reference.toml", "steps = 100", "stepz = 100", "reference.toml: stages[0].steps: Field required"),
    ("reference.toml", "primary = true", "primary = false", "reference.toml: heldout: exactly one set must be primary"),
    ("reference.toml", 'licence = "CC0-1.0"', "", "reference.toml: source.licence: Field required"),
    ("reference.toml", "value = 0.015", "value = nan", "reference.toml: tolerance.train/ce_loss.value: "),
    ("reference.toml", "series/stage1.csv", "series/none.csv", "the file 'series/none.csv' is missing"),
    ("series/stage1.csv", "2,train/ce_loss,3.25,a", "two,train/ce_loss,3.25,a", "series/stage1.csv line 3: step 'two'"),
    (
        "series/stage1.csv",
        "2,train/ce_loss,3.25,a",
        "2.5,train/ce_loss,3.25,a",
        "line 3: step '2.5' is no",
    ),
    ("series/stage1.csv", "2,train/ce_loss,3.25,a", "-2,train/ce_loss,3.25,a", "line 3: step '-2'"),
    ("series/stage1.csv", "2,train/ce_loss,3.25,a", "2,train/ce_loss,x,a", "line 3: value 'x' is no number"),
    ("series/stage1.csv", "2,train/ce_loss,3.25,a", "2,train/ce_loss,,a", "line 3: value '' is no number"),
    ("series/stage1.csv", "2,train/ce_loss,3.25,a", "2,train/ce_loss,3.25", "line 3: 4 cells expected"),
    ("series/stage1.csv", "2,train/ce_loss,3.25,a", "2,,3.25,a", "line 3: metric and segment must not be empty"),
    (
        "series/stage1.csv",
        "2,train/ce_loss,3.25,a",
        "1,train/ce_loss,3.25,a",
        "step 1 of train/ce_loss is given twice",
    ),
    ("series/stage1.csv", "4,train/ce_loss,2.5,b", "4,train/ce_loss,2.5,c", "segment 'c' is not in segments.csv"),
    ("series/stage1.csv", "step,metric", "steps,metric", "series/stage1.csv line 1: no column 'step'"),
    ("segments.csv", "2025-07-22T06:03:59Z", "yesterday", "segments.csv line 3: launched 'yesterday' is no time"),
    (
        "segments.csv",
        "2025-07-22T06:03:59Z",
        "2025-07-22T06:03:59",
        "launched '2025-07-22T06:03:59' lacks",
    ),
    ("segments.csv", "2025-07-22T06:03:59Z", "", "segments.csv: stage1 has 1 launch times for 2 segments"),
    ("segments.csv", "stage1,b,", "stage9,b,", "segments.csv line 3: there is no stage 'stage9'"),
]


@pytest.mark.parametrize(("name", "old", "new", "message"), CHANGES, ids=[str(i) for i in range(len(CHANGES))])
def test_a_bad_bundle(small: Path, name: str, old: str, new: str, message: str) -> None:
    text = (small / name).read_text()
    assert old in text
    (small / name).write_text(text.replace(old, new, 1))
    with pytest.raises(BundleError) as raised:
        load_bundle(small)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_text_that_is_not_utf8(small: Path) -> None:
    (small / "series" / "stage1.csv").write_bytes(b"step,metric,value,segment\n1,\xff,2,a\n")
    with pytest.raises(BundleError, match=r"series/stage1.csv: not UTF-8 text"):
        load_bundle(small)


def test_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no such bundle"):
        load_bundle(tmp_path / "none")
    (tmp_path / "text.pacenote").write_text("no zip")
    with pytest.raises(BundleError, match="neither a folder nor"):
        load_bundle(tmp_path / "text.pacenote")
    with pytest.raises(BundleError, match=r"reference\.toml is missing"):
        load_bundle(tmp_path)


@pytest.mark.parametrize("name", ["../evil.csv", "/etc/evil.csv", "series/../../evil.csv", "C:\\evil.csv"])
def test_an_archive_that_points_outside(small: Path, tmp_path: Path, name: str) -> None:
    path = zipped(small, tmp_path / "evil.pacenote")
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(name, "x")
    with pytest.raises(BundleError, match="points outside the archive"):
        load_bundle(path)


def test_an_archive_with_a_link(small: Path, tmp_path: Path) -> None:
    path = zipped(small, tmp_path / "link.pacenote")
    entry = zipfile.ZipInfo("series/link.csv")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(entry, "/etc/passwd")
    with pytest.raises(BundleError, match="is a link"):
        load_bundle(path)


def test_a_folder_with_a_link(small: Path) -> None:
    (small / "series" / "more.csv").symlink_to("/etc/passwd")
    with pytest.raises(BundleError, match="is a link"):
        load_bundle(small)


def test_an_archive_that_unpacks_to_too_much(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 100_000)
    path = zipped(small, tmp_path / "bomb.pacenote")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("series/zeros.csv", b"\0" * 10_000_000)
    assert path.stat().st_size < 50_000
    with pytest.raises(BundleError, match="too large"):
        load_bundle(path)


def test_a_damaged_archive(small: Path, tmp_path: Path) -> None:
    path = zipped(small, tmp_path / "damaged.pacenote")
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        entry = file.getinfo("series/stage1.csv")
    content[entry.header_offset + 60] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(BundleError):
        load_bundle(path)


def test_siblings_of_several_stages(small: Path) -> None:
    toml = small / "reference.toml"
    toml.write_text(
        toml.read_text() + '[[stages]]\nname = "stage2"\nsteps = 10\ntokens_per_step = 512\nseries = "series/2.csv"\n'
    )
    (small / "series" / "2.csv").write_text("step,metric,value,segment\n1,train/ce_loss,2.5,z\n")
    with pytest.raises(BundleError, match=r"siblings/<stage>/<name>\.csv"):
        load_bundle(small)
    (small / "siblings" / "stage2").mkdir()
    (small / "siblings" / "seed-1.csv").rename(small / "siblings" / "stage2" / "seed-1.csv")
    assert [(s.stage, s.sibling) for s in load_bundle(small).series][-1] == ("stage2", "seed-1")


def test_parquet_is_read_as_csv_is(small: Path) -> None:
    buffer = io.BytesIO()
    columns = {"step": [1, 2], "metric": ["m", "m"], "value": [0.5, float("nan")], "segment": ["a", "a"]}
    pq.write_table(pa.table(columns), buffer)
    curve = read_series("x.parquet", buffer.getvalue())["a"]["m"]
    np.testing.assert_array_equal(curve.values, [0.5, np.nan])
    with pytest.raises(BundleError, match=r"x\.parquet: no Parquet file"):
        read_series("x.parquet", b"PAR1")


@given(
    points=st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["m/1", "m/2"]), st.integers(0, 2**53)),
        st.floats(allow_nan=False),
        min_size=1,
        max_size=30,
    )
)
def test_values_come_back_exactly(points: dict[tuple[str, str, int], float]) -> None:
    lines = ["step,metric,value,segment"]
    lines += [f"{step},{metric},{value!r},{segment}" for (segment, metric, step), value in points.items()]
    curves = read_series("x.csv", "\n".join(lines).encode())
    found = {
        (segment, metric, int(step)): float(value)
        for segment, metrics in curves.items()
        for metric, curve in metrics.items()
        for step, value in zip(curve.steps, curve.values, strict=True)
    }
    assert found == points
    for metrics in curves.values():
        for curve in metrics.values():
            assert np.all(np.diff(curve.steps) > 0)
