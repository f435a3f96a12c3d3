"""`pacenote reference pull` from a local server with W&B's shape: everything, whatever comes between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result
from wandb_server import FakeRun, WandbServer

from service.cli.main import app
from service.database.engine import reading
from service.importers import wandb_api
from service.importers.side_by_side import AT_ONCE, side_by_side
from service.importers.wandb_api import WandbApi, WandbError
from service.importers.wandb_pull import PartCounts, PlannedRun
from service.references.bundle import load_bundle
from service.references.repository import ReferenceRepository
from service.series.repository import SeriesRepository

TOKENS = 4096
NOISE = np.random.default_rng(0).normal(0, 0.02, 5000)


def loss(step: int, launch: int = 0) -> float:
    """A loss that tells which launch logged it, with noise that is the same each time."""
    return float(np.float32(2.0 + 3.0 / (1 + step / 50) + NOISE[step])) + launch * 1e-4


def rows(first: int, last: int, launch: int) -> list[dict[str, object]]:
    made: list[dict[str, object]] = []
    for step in range(first, last + 1):
        row: dict[str, object] = {
            "_step": float(step) if launch == 3 else step,
            "_runtime": 1.5 * step,
            "_timestamp": 1753077839.0 + step,
            "train/CE loss": loss(step, launch),
            "train/PPL": float(np.exp(loss(step, launch))),
            "optim/LR (group 0)": 3e-4,
            "throughput/total tokens": step * TOKENS,
            "system": {"gpu": 0.5, "note": "text"},
            "samples": {"_type": "table-file", "nrows": 3},
        }
        if step % 500 == 0:
            row["eval/lm/c4_en-validation/CE loss"] = loss(step) + 0.5
            row["eval/downstream/arc_easy_test_mc_5shot_fast (accuracy)"] = 0.4
        if step == 1200:
            row["train/CE loss"] = "NaN"
            row["optim/total grad norm"] = "Infinity"
        made.append(row)
    return made


def launches() -> list[FakeRun]:
    """Four launches of one run, one of them empty, overlapping, and not listed in order of launch."""
    group = "stage-1"
    return [
        FakeRun("cccc", "run-20250723T080000+0000", rows(2001, 3100, 3), group),
        FakeRun("aaaa", "run-20250721T060359+0000", rows(1, 1500, 1), group),
        FakeRun("empty", "run-20250721T120000+0000", [], group),
        FakeRun("bbbb", "run-20250722T060359+0000", rows(1401, 2100, 2), group),
        FakeRun("other", "another-20250722T060359+0000", rows(1, 3, 9), "other"),
    ]


@pytest.fixture
def server() -> Iterator[WandbServer]:
    server = WandbServer(*launches())
    yield server
    server.close()


def arguments(server: WandbServer, folder: Path, *more: str) -> list[str]:
    given = ["--wandb", "lab/small", "--group", "stage-1", "--url", server.url, "--work", str(folder / "work")]
    return ["reference", "pull", "small", *given, *more]


def pull(server: WandbServer, folder: Path, *more: str) -> Result:
    return CliRunner().invoke(app, arguments(server, folder, *more))


def test_everything_arrives_in_the_database(
    server: WandbServer, tmp_path: Path, engine: Engine, database_url: str
) -> None:
    server.troubles.extend(["429", "", "500", "drop", "half", "limited"])
    result = pull(server, tmp_path, "--database-url", database_url)
    assert result.exit_code == 0, result.output
    assert "4 launches, 1 of them empty" in result.stdout
    assert all(authorization is None for authorization in server.authorizations), "no key was sent"
    with reading(engine) as session:
        references = ReferenceRepository(session)
        reference = references.current("small")
        assert reference is not None
        run = references.run_of(reference.id, "stage1")
        assert run is not None
        series = SeriesRepository(session)
        names = series.names(run.id)
        live = series.read(run.id, names)
        every = series.read(run.id, ["train/ce_loss"], superseded=True)["train/ce_loss"]
    assert set(names) == {
        "train/ce_loss",
        "train/PPL",
        "optim/learning_rate",
        "optim/grad_norm",
        "throughput/total tokens",
        "system.gpu",
        "heldout/c4_en/ce_loss",
        "downstream/arc_easy_test_mc_5shot_fast/accuracy",
    }
    train = live["train/ce_loss"]
    assert train.steps.tolist() == list(range(1, 3101))
    assert train.tokens[-1] == 3100 * TOKENS
    wanted = np.array([loss(s, 1 if s <= 1400 else 2 if s <= 2000 else 3) for s in range(1, 3101)])
    wanted[1199] = np.nan
    np.testing.assert_array_equal(train.values, wanted)  # the later launch wins; floats come back as they were
    assert live["optim/grad_norm"].values.tolist() == [np.inf]
    assert len(every) == 1500 + 700 + 1100, "overlaps are kept"
    assert live["heldout/c4_en/ce_loss"].steps.tolist() == [500, 1000, 1500, 2000, 2500, 3000]


def test_the_bundle_says_what_it_is(server: WandbServer, tmp_path: Path) -> None:
    archive = tmp_path / "small.pacenote"
    result = pull(server, tmp_path, "--no-install", "--out", str(archive), "--licence", "CC-BY-4.0", "--version", "7")
    assert result.exit_code == 0, result.output
    bundle = load_bundle(archive)
    said = bundle.description
    assert (said.slug, said.version, said.source.licence) == ("small", "7", "CC-BY-4.0")
    assert said.source.url == f"{server.url}/lab/small"
    assert len(said.source.retrieved) == len("2025-10-20")
    assert (said.stages[0].steps, said.stages[0].tokens_per_step) == (3100, TOKENS)
    assert [launch.segment for launch in bundle.series[0].launches] == ["aaaa", "bbbb", "cccc"]
    tolerance = said.tolerance["train/ce_loss"]
    assert tolerance.noise_sd == pytest.approx(0.02, rel=0.15)
    assert tolerance.runs == 0
    assert "assumed" in tolerance.source
    assert said.heldout[0].primary
    assert bundle.digest == load_bundle(tmp_path / "work" / "bundle-7").digest
    again = pull(server, tmp_path, "--no-install", "--out", str(archive), "--licence", "CC-BY-4.0", "--version", "7")
    assert again.exit_code == 0
    assert load_bundle(archive).digest == bundle.digest, "the same parts give the same bundle"


def test_killed_at_any_moment_it_goes_on(server: WandbServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "service.cli.main", *arguments(server, tmp_path, "--no-install")]
    there: list[tuple[int, set[tuple[str, int]]]] = []
    for more in (0, 2, 3):  # pages that are answered before the others wait
        server.hold_after = len(server.history_requests) + more
        server.holding.clear()
        process = subprocess.Popen(command, env={**os.environ}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert server.holding.wait(60), process.communicate(timeout=30)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        parts = (tmp_path / "work" / "parts" / "stage1").glob("*/*.parquet")
        there.append((len(server.history_requests), {(part.parent.name, int(part.stem)) for part in parts}))
    server.hold_after = None
    server.released.set()
    making = subprocess.Popen(command, env={**os.environ}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while making.poll() is None and not list((tmp_path / "work").glob(".bundle-*.new")):
        pass
    making.send_signal(signal.SIGKILL)  # while the bundle is written
    making.communicate(timeout=30)
    before = len(server.history_requests)
    result = pull(server, tmp_path, "--no-install")
    assert result.exit_code == 0, result.output
    assert len(server.history_requests) == before, "every page was there"
    for count, pages in there:  # what was on disk is not asked for again
        assert not pages.intersection(server.history_requests[count:])
    assert set(server.history_requests) == {
        *(("aaaa", first) for first in (0, 1000)),
        *(("bbbb", first) for first in (0, 1000, 2000)),
        *(("cccc", first) for first in (0, 1000, 2000, 3000)),
    }
    bundle = load_bundle(next((tmp_path / "work").glob("bundle-*")))
    curves = bundle.series[0].curves
    assert [len(curves[name]["train/ce_loss"].steps) for name in ("aaaa", "bbbb", "cccc")] == [1500, 700, 1100]


def test_a_few_pages_at_once_and_no_more(server: WandbServer, tmp_path: Path) -> None:
    server.slow = 0.05
    assert pull(server, tmp_path, "--no-install").exit_code == 0
    assert 1 < server.most_at_once <= AT_ONCE


def test_when_one_is_told_to_wait_all_do(server: WandbServer) -> None:
    server.troubles.append("long")
    with WandbApi("lab", "small", url=server.url, key="") as api:
        waits: list[float] = []
        found = side_by_side(lambda first: api.history("aaaa", first, first + 500), [0, 500, 1000], api.stop, 1)
        api._pause = waits.append
        assert sum(len(page.rows) for _, page in found) == 1499
    assert [wait > 4.5 for wait in waits if wait > 0].count(True) >= 2


def test_a_page_that_fails_ends_the_others(server: WandbServer) -> None:
    server.slow = 30.0

    def page(first: int) -> int:
        if first == 0:
            raise WandbError("broken")
        return len(api.history("aaaa", first, first + 10).rows)

    with WandbApi("lab", "small", url=server.url, key="") as api:
        with pytest.raises(WandbError, match="broken"):
            list(side_by_side(page, range(0, 100, 10), server.released.set))
        api.stop()
        with pytest.raises(WandbError, match="stopped"):
            api.runs()


def test_what_was_pulled_goes_out_and_comes_back_the_same(server: WandbServer, tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path / name}.db" for name in "ab"]
    assert pull(server, tmp_path, "--database-url", urls[0], "--version", "1").exit_code == 0
    first = load_bundle(tmp_path / "work" / "bundle-1")
    assert [launch.segment for launch in first.description.silent] == ["empty"]
    for url in urls:
        out = tmp_path / f"{url[-4]}.pacenote"
        result = CliRunner().invoke(app, ["reference", "export", "small", str(out), "--database-url", url])
        assert result.exit_code == 0, result.output
        assert load_bundle(out).digest == first.digest
        CliRunner().invoke(app, ["reference", "install", str(out), "--database-url", urls[1]])
        if url == urls[0]:
            assert (tmp_path / "b.db").exists()


def test_a_torn_part_is_pulled_again(server: WandbServer, tmp_path: Path) -> None:
    assert pull(server, tmp_path, "--no-install").exit_code == 0
    before = len(server.history_requests)
    part = tmp_path / "work" / "parts" / "stage1" / "aaaa" / "000000000000.parquet"
    part.write_bytes(part.read_bytes()[:200])
    assert pull(server, tmp_path, "--no-install").exit_code == 0
    assert server.history_requests[before:] == [("aaaa", 0)]


def test_tokens_that_disagree_are_said(server: WandbServer, tmp_path: Path) -> None:
    result = pull(server, tmp_path, "--no-install", "--tokens-per-step", "4095")
    assert result.exit_code == 0
    assert "total tokens are not step x tokens per step at 3,300 points" in result.stderr
    assert "aaaa says 4,096 at step 1, not 4,095" in " ".join(result.stderr.split())
    bundle = load_bundle(next((tmp_path / "work").glob("bundle-*")))
    assert any("total tokens" in conflict for conflict in bundle.description.conflicts)


def test_rows_that_did_not_come_are_said(server: WandbServer, tmp_path: Path) -> None:
    run = server.run("aaaa")
    assert run is not None
    run.rows.insert(7, {"_step": 7.5, "train/CE loss": 1.0})
    result = pull(server, tmp_path, "--no-install")
    assert "stage1 aaaa: 1 rows have no whole step and are left out" in result.stderr


def test_the_known_reference(tmp_path: Path) -> None:
    """olmo3-7b keeps all that its shipped bundle says; the numbers and their noise are the pulled ones."""
    olmo = launches()
    for run, name in zip(olmo[:4], ("ccu8f14l", "96gyxtlp", "czw2mq8x", "asnd285v"), strict=True):
        run.id, run.name, run.group = name, "no time in it", "Olmo-3-1025-7B-stage-1"
    server = WandbServer(*olmo)
    original = server.data
    server.data = lambda query, given: original(query, given | {"entity": "lab", "project": "small"})  # type: ignore[method-assign]
    try:
        work = ["--work", str(tmp_path / "work"), "--url", server.url, "--no-install", "--stage", "stage1"]
        result = CliRunner().invoke(app, ["reference", "pull", "olmo3-7b", *work])
    finally:
        server.close()
    assert result.exit_code == 0, result.output
    bundle = load_bundle(next((tmp_path / "work").glob("bundle-*")))
    said = bundle.description
    assert (said.slug, said.stages[0].steps, said.stages[1].series) == ("olmo3-7b", 1_413_814, None)
    assert said.version.startswith("full-")
    assert said.schedule
    assert [task.key for task in said.tasks if task.published] == ["arc_easy_test_mc_5shot_fast"]
    assert [launch.segment for launch in bundle.series[0].launches] == ["96gyxtlp", "asnd285v", "ccu8f14l"]
    assert "total tokens are not step x tokens per step" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["reference", "pull", "nothing"], "name its project with --wandb"),
        (["reference", "pull", "small", "--wandb", "lab"], "write ENTITY/PROJECT"),
        (["reference", "pull", "small", "--wandb", "lab/none"], "no public project lab/none"),
        (["reference", "pull", "small", "--wandb", "lab/small", "--group", "x"], "no run with a history in group x"),
        (["reference", "pull", "small", "--wandb", "lab/small", "--run", "x"], "has no run x"),
        (["reference", "pull", "Small!", "--wandb", "lab/small"], "is no name of a reference"),
        (["reference", "pull", "olmo3-7b", "--run", "x"], "--group and --run go with --wandb"),
        (["reference", "pull", "olmo3-7b", "--stage", "x"], "there are stage1, stage2, stage3"),
    ],
)
def test_what_is_refused(server: WandbServer, tmp_path: Path, more: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [*more, "--url", server.url, "--work", str(tmp_path / "work")])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("pacenote: ")
    assert result.stderr.count("\n") == 1


def test_no_answer_ends_in_time() -> None:
    with (
        WandbApi("lab", "small", url="http://127.0.0.1:9", key="", patience=0.2) as api,
        pytest.raises(WandbError, match="gave no answer"),
    ):
        api.runs()


def test_a_key_is_sent_where_there_is_one(server: WandbServer) -> None:
    with WandbApi("lab", "small", url=server.url, key="k") as api:
        assert len(api.runs()) == 5, "all pages of the list"
    assert server.authorizations[-1] == "Basic YXBpOms="


@pytest.mark.parametrize(
    ("name", "launched"),
    [
        ("OLMo25-20250721T060359+0000", 1753077839.0),
        ("OLMo25-20250721T060359+0200", 1753070639.0),
        ("x-2025-07-21_06:03:59", 1753077839.0),
        ("x-20259921T060359", None),
        ("x", None),
    ],
)
def test_launch_times_in_names(name: str, launched: float | None) -> None:
    assert PlannedRun("x", name, None, 1, 1).launched == launched


def test_counts_of_a_part(server: WandbServer) -> None:
    with WandbApi("lab", "small", url=server.url, key="") as api:
        page = api.history("aaaa", 0, 1000)
    assert PartCounts(len(page.rows), page.refused, page.other) == PartCounts(999, 0, 2 * 999)


def test_what_is_no_row_is_counted_and_what_is_no_wait_is_none(
    server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def pause(_api: WandbApi, seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(WandbApi, "_pause", pause)
    monkeypatch.setattr(wandb_api, "FIRST_WAIT", 0.01)
    run = server.run("aaaa")
    assert run is not None
    run.rows.insert(3, {"_step": 3.5, "x": 1})
    run.rows.insert(0, {"_step": 2, "big": 10**400, "deep": {"a": {"b": 2}}, "flag": True, "none": None})
    server.troubles.extend(["408", "nan", "long"])
    with WandbApi("lab", "small", url=server.url, key="", patience=1.0) as api:
        page = api.history("aaaa", 0, 10)
    assert page.refused == 1
    asked = [wait for wait in waits if wait > 0]
    assert max(asked) == 5.0, "as W&B asked, though it is longer than the client is patient"
    assert sum(wait > 0.05 for wait in asked) == 2, "it is heeded, and no other thread asks meanwhile"
    odd = next(row for row in page.rows if "deep.a.b" in row.values)
    assert odd.values == {"deep.a.b": 2.0, "flag": 1.0}
