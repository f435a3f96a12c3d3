"""Logs that come over the network: files by http, runs at W&B, runs on MLflow's tracking server."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import pytest
from importing import series
from log_servers import Answer, LocalServer, Mlflow
from sqlalchemy import Engine
from typer.testing import CliRunner
from wandb_server import FakeRun, WandbServer

from service.cli.main import app
from service.importers import mlflow_rest, wandb_runs
from service.importers.download import TRIES, download
from service.importers.folders import Found
from service.importers.job import Options, Report, look, store
from service.importers.mlflow_rest import MlflowAddress
from service.importers.remote import find_remote
from service.importers.rows import LogError
from service.importers.wandb_runs import WandbAddress

TABLE = "step,train_loss\n" + "".join(f"{step},{3 - step / 1000}\n" for step in range(1, 1001))
RUN = "0123456789abcdef0123456789abcdef"


def untold(_done: int, _total: int | None) -> None:
    """Nobody watches."""


def remote(address: str, folder: Path, chosen: str | None = None) -> Found:
    return find_remote(address, folder, chosen, untold)


def stored(engine: Engine, found: Found, options: Options | None = None) -> Report:
    options = options or Options("net", tokens_per_step=10)
    (group,) = found.groups
    report = store(engine, look(group, options), options)
    assert report.read == report.stored + report.superseded + report.refused.total()
    return report


class Files:
    """A server of one file. `cut` answers break off in the middle first; `tag` lets them go on from there."""

    def __init__(self, content: bytes, *, cut: int = 0, tag: str = "", kind: str = "text/csv") -> None:
        self.content, self.cut, self.tag, self.kind = content, cut, tag, kind
        self.ranges: list[str | None] = []

    def answer(self, _method: str, path: str, _query: object, _body: object, headers: Any) -> Answer:
        if path.startswith("/round"):
            return 302, {"Location": f"/round{len(path)}{path}"}, b""
        if path == "/moved":
            return 307, {"Location": "/log.csv?token=secret"}, b""
        if path == "/none.csv":
            return 404, {}, b"no"
        if path == "/busy.csv":
            return 503, {}, b"busy"
        self.ranges.append(headers.get("Range"))
        start = int(self.ranges[-1].removeprefix("bytes=").rstrip("-")) if self.ranges[-1] else 0
        rest = self.content[start:]
        told = {"Content-Type": self.kind, "Content-Length": str(len(rest))} | ({"ETag": self.tag} if self.tag else {})
        if self.cut:
            self.cut -= 1
            return 206 if start else 200, told, rest[: len(rest) // 2]
        return 206 if start else 200, told, rest


def test_a_file_is_known_by_its_content(database: Engine, tmp_path: Path) -> None:
    heard: list[tuple[int, int | None]] = []
    content = gzip.compress(TABLE.encode())
    with LocalServer(Files(content).answer) as server:
        path = f"{server.url}/runs/my%20log.csv.gz?x=1"
        found = find_remote(path, tmp_path, None, lambda done, total: heard.append((done, total)))
    assert (found.groups[0].format.name, found.groups[0].name) == ("delimited", "my log")
    assert found.groups[0].place == path
    assert heard[-1] == (len(content), len(content))
    report = stored(database, found)
    assert (report.read, report.stored) == (1000, 1000)


def test_redirects_are_followed_and_limited(tmp_path: Path) -> None:
    with LocalServer(Files(TABLE.encode()).answer) as server:
        assert download(f"{server.url}/moved", tmp_path, untold).read_text() == TABLE
        with pytest.raises(LogError, match="leads on more than 10 times"):
            download(f"{server.url}/round", tmp_path, untold)


@pytest.mark.parametrize("tag", ['"v1"', "", 'W/"v1"'])
def test_a_download_that_breaks_off_goes_on(tmp_path: Path, tag: str) -> None:
    files = Files(TABLE.encode(), cut=2, tag=tag)
    with LocalServer(files.answer) as server:
        assert download(f"{server.url}/log.csv", tmp_path, untold, wait=0.0).read_text() == TABLE
    assert len(files.ranges) == 3
    assert (files.ranges[1] is not None) == (tag == '"v1"'), "only what is surely the same content is gone on with"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/none.csv", "status 404 Not Found"),
        ("/busy.csv", f"tried {TRIES} times (status 503)"),
        ("/page.html", "a web page, and no log; give the address of the file itself"),
    ],
)
def test_what_cannot_be_downloaded(tmp_path: Path, path: str, message: str) -> None:
    with LocalServer(Files(b"<html>", kind="text/html; charset=utf-8").answer) as server:
        user = server.url.replace("http://", "http://me:secret@")
        with pytest.raises(LogError) as raised:
            download(user + path, tmp_path, untold, wait=0.0)
    assert message in str(raised.value)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_addresses_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no address of http or https"):
        remote("http://[nowhere/log.csv", tmp_path)
    with LocalServer(Files(b"hello\n").answer) as server, pytest.raises(LogError, match=rf"^{server.url}/x: no known"):
        remote(f"{server.url}/x", tmp_path)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (f"http://h:5000/#/experiments/7/runs/{RUN}", MlflowAddress("http://h:5000", RUN, "7")),
        (f"https://h/ml/#/experiments/7/runs/{RUN}/model-metrics", MlflowAddress("https://h/ml", RUN, "7")),
        ("http://h:5000/#/experiments/7?viewStateShareKey=1", MlflowAddress("http://h:5000", "", "7")),
        (f"http://h/api/2.0/mlflow/runs/get?run_id={RUN}", MlflowAddress("http://h", RUN)),
        ("http://h/log.csv#top", None),
        ("http://h/log.csv", None),
    ],
)
def test_addresses_of_mlflow(address: str, expected: MlflowAddress | None) -> None:
    assert mlflow_rest.parse(address) == expected


def test_a_run_on_an_mlflow_server(database: Engine, tmp_path: Path) -> None:
    values = [(1, 3.0), (2, "NaN"), (3, "Infinity"), (4, 2.5), (-1, 1.0)]
    fake = Mlflow({RUN: {"train/loss": values, "lr": [(1, 1e-3)]}, "b": {"train/loss": [(1, 2.0)]}, "c": {}})
    fake.troubles = [503]
    with LocalServer(fake.answer) as server:
        found = remote(f"{server.url}/#/experiments/7/runs/{RUN}", tmp_path)
        report = stored(database, found)
        assert fake.asked.count("GET /api/2.0/mlflow/metrics/get-history") == 4, "three pages, and one"
        assert list(report.runs) == [f"nice-{RUN}"]
        assert repr(series(database, report, "train/ce_loss")) == repr({1: 3.0, 2: math.nan, 3: math.inf, 4: 2.5})
        assert report.refused == {"no whole step of 0 or more": 1}
        again = stored(database, remote(f"{server.url}/#/experiments/7/runs/{RUN}", tmp_path))
        assert (again.stored, again.superseded) == (0, 0)
        for address in (f"{server.url}/#/experiments/7", server.url):
            every = stored(database, remote(address, tmp_path, "mlflow_rest"), Options("all", tokens_per_step=1))
            assert list(every.runs) == [f"nice-{RUN}", "nice-b"]
        with pytest.raises(LogError, match="experiment 8 has no runs"):
            remote(f"{server.url}/#/experiments/8", tmp_path)
        with pytest.raises(LogError, match="status 404 Run with id=zz not found"):
            remote(f"{server.url}/#/experiments/7/runs/zz", tmp_path)
        with pytest.raises(LogError, match="nice-c: no values have been logged"):
            remote(f"{server.url}/#/experiments/7/runs/c", tmp_path)


@pytest.mark.parametrize(
    ("status", "message"), [(401, "set MLFLOW_TRACKING_TOKEN"), (200, "does not answer as MLflow's tracking server")]
)
def test_servers_that_are_no_mlflow_of_ours(tmp_path: Path, status: int, message: str) -> None:
    def answer(*_request: object) -> Answer:
        return status, {}, b"hello"

    with LocalServer(answer) as server, pytest.raises(LogError, match=message):
        remote(f"{server.url}/#/experiments/7", tmp_path)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://wandb.ai/ai2-llm/Olmo-3-7B/runs/abc123/overview", ("ai2-llm", "Olmo-3-7B", "abc123", "")),
        ("https://wandb.ai/ai2-llm/Olmo-3-7B/groups/stage1%20run", ("ai2-llm", "Olmo-3-7B", "", "stage1 run")),
        ("https://wandb.ai/ai2-llm/Olmo-3-7B/workspace?nw=x", ("ai2-llm", "Olmo-3-7B", "", "")),
        ("wandb:ai2-llm/Olmo-3-7B/abc123", ("ai2-llm", "Olmo-3-7B", "abc123", "")),
        ("https://example.org/a/b/runs/c", None),
    ],
)
def test_addresses_of_wandb(address: str, expected: tuple[str, ...] | None) -> None:
    found = wandb_runs.parse(address)
    assert found == (WandbAddress("https://api.wandb.ai", *expected) if expected else None)


@pytest.mark.parametrize("address", ["https://wandb.ai/ai2-llm", "https://wandb.ai/a/b/reports/x", "wandb:a"])
def test_addresses_of_wandb_that_name_nothing(address: str) -> None:
    with pytest.raises(LogError, match="write "):
        wandb_runs.parse(address)


def test_runs_at_wandb(database: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"_step": float(step), "_timestamp": 1.7e9 + step, "train/loss": 3 - step / 5000} for step in range(2500)]
    later = [{"_step": step, "_timestamp": 1.8e9 + step, "train/loss": 9.0, "note": "x"} for step in (2400, 2600)]
    rows[5] |= {"train/loss": "NaN", "chart": {"_type": "image"}}
    server = WandbServer(FakeRun("a1", "first", rows, group="g"), FakeRun("b2", "first", later, group="g"))
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    try:
        one = stored(database, remote(f"{server.url}/lab/small/runs/a1", tmp_path))
        assert (one.read, one.stored, one.refused) == (2501, 2500, {"the cell holds no number": 1})
        assert math.isnan(series(database, one, "train/ce_loss")[5])
        group = stored(database, remote(f"{server.url}/lab/small/groups/g", tmp_path))
        assert list(group.runs) == ["g"]
        assert (group.stored, group.superseded) == (2501, 1)
        assert series(database, group, "train/ce_loss")[2400] == 9.0, "the later launch counts"
        project = stored(database, remote("wandb:lab/small", tmp_path), Options("p", tokens_per_step=1))
        assert list(project.runs) == ["first (a1)", "first (b2)"]
        with pytest.raises(LogError, match="has no run zz"):
            remote(f"{server.url}/lab/small/runs/zz", tmp_path)
        with pytest.raises(LogError, match="has no group zz"):
            remote(f"{server.url}/lab/small/groups/zz", tmp_path)
    finally:
        server.close()


def test_the_command(tmp_path: Path) -> None:
    database = {"PACENOTE_DATABASE_URL": f"sqlite:///{tmp_path / 'pacenote.db'}"}
    with LocalServer(Files(TABLE.encode()).answer) as server:
        result = CliRunner().invoke(app, ["import", f"{server.url}/log.csv"], env=database)
        assert result.exit_code == 0, result.stderr
        assert f"{server.url}/log.csv (0.0 MB): table" in result.stdout
        assert "Rows read 1,000 = stored 1,000" in result.stdout
        damaged = Files(gzip.compress(TABLE.encode() * 100)[:-20])
    with LocalServer(damaged.answer) as server:
        result = CliRunner().invoke(app, ["import", f"{server.url}/log.csv.gz"], env=database)
        assert result.exit_code == 2
        assert result.stderr.startswith("pacenote: log.csv.gz: the compression is damaged or cut off")
