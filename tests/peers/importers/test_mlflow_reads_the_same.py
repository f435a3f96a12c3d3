"""MLflow's stores and its tracking server, beside MLflow's own client."""

from __future__ import annotations

import math
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from peer_reading import Values, read_back, spelled

from service.importers.remote import find_remote

mlflow: Any = pytest.importorskip("mlflow")

ODD = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e308]


@pytest.fixture(autouse=True)
def file_store_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow 3 asks for this before it opens the store it used to make by default."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def fill(uri: str, values: int = 300) -> None:
    """An experiment with two runs, and one that is deleted."""
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("sweep")
    for seed in (0, 1, 2):
        run = client.create_run(experiment, run_name=f"seed {seed}").info.run_id
        metrics = [
            mlflow.entities.Metric("train/loss", 3 - step / 100 + seed, 1_700_000_000_000 + step, step)
            for step in range(values)
        ]
        odd = [mlflow.entities.Metric("odd", value, 1_700_000_000_000, step) for step, value in enumerate(ODD)]
        again = [mlflow.entities.Metric("again", step / 3, 1_700_000_000_000 + step, step % 5) for step in range(12)]
        everything = metrics + odd + again
        for start in range(0, len(everything), 1000):
            client.log_batch(run, metrics=everything[start : start + 1000])
        if seed == 2:
            client.delete_run(run)


def by_mlflow(uri: str) -> Values:
    client = mlflow.MlflowClient(tracking_uri=uri)
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            found[run.info.run_name] = {
                name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics
            }
    return spelled(found)


@pytest.mark.parametrize("store", ["mlruns", "mlflow.db"])
def test_a_store(store: str, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / store}" if store.endswith(".db") else (tmp_path / store).as_uri()
    fill(uri)
    found = read_back(tmp_path / store, tmp_path)
    assert found == by_mlflow(uri)
    assert len(found["seed 0"]["train/loss"]) == 300
    assert len(found["seed 1"]["again"]) == 12


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """MLflow's real tracking server, on a database of 26,000 values a metric: more than one page."""
    folder = tmp_path_factory.mktemp("server")
    database = f"sqlite:///{folder / 'mlflow.db'}"
    fill(database, 26_000)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", database, "--workers", "1"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)], stdout=log, stderr=log, cwd=folder
        )
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(300):
                try:
                    urlopen(f"{url}/health", timeout=5).close()
                    break
                except OSError:
                    assert process.poll() is None, (folder / "log").read_text()
                    time.sleep(0.2)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def test_the_server(server: str, tmp_path: Path) -> None:
    expected = by_mlflow(server)
    assert len(expected["seed 0"]["train/loss"]) == 26_000
    (tmp_path / "all").mkdir()
    found = find_remote(server, tmp_path / "all", "mlflow_rest", lambda _done, _total: None)
    assert read_back(found, tmp_path) == expected
    client = mlflow.MlflowClient(tracking_uri=server)
    experiment = client.get_experiment_by_name("sweep").experiment_id
    (run,) = client.search_runs([experiment], filter_string="attributes.run_name = 'seed 1'")
    (tmp_path / "one").mkdir()
    address = f"{server}/#/experiments/{experiment}/runs/{run.info.run_id}"
    one = find_remote(address, tmp_path / "one", None, lambda _done, _total: None)
    assert read_back(one, tmp_path / "one") == {"seed 1": expected["seed 1"]}
