"""`pacenote sync` from a remote copy into real services: the same run as by direct sending, once and while it grows."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import PACENOTE, Serving, environment, one_line, run

TRAINER = """
import sys, numpy as np, trainer_hooks
run = trainer_hooks.start("mine", project="p", spool=sys.argv[1], sample_rows=1, tokens_per_step=8,
                          config={"lr": 0.1}, data={"rows": 40, "epochs": 1})
for step in range(1, 41):
    run.log(step, {"train/ce_loss": 4.0 / step, "odd": float("nan") if step % 7 else float("-inf")})
    run.log_rows(step, np.full((1, 4), step % 30))
run.log_items(40, "arc_easy", [True, False, True])
run.event(40, "checkpoint", "gs://bucket/40")
report = run.finish()
assert report.not_copied == 0, report
"""


def train(spool: str, **more: str) -> None:
    subprocess.run([sys.executable, "-c", TRAINER, spool], env=environment(**more), check=True, timeout=60)


def said(url: str) -> dict[str, Any]:
    """All that the service says about the run, but for when it heard it and what it numbered."""
    with httpx.Client(base_url=f"{url}/api/v1") as http:
        (item,) = http.get("/runs", params={"role": "reproduction"}).json()["items"]
        found = {"run": http.get(f"/runs/{item['id']}").json()}
        metrics = [("metric", name) for name in (*found["run"]["metrics"], "axis/time", "axis/tokens")]
        for name, path, query in (
            ("series", "series", metrics),
            ("events", "events", []),
            ("audit", "audit", []),
            ("segments", "segments", []),
        ):
            answer = http.get(f"/runs/{item['id']}/{path}", params=query)
            assert answer.status_code == 200, answer.text
            found[name] = answer.json()
    heard = ("age_seconds", "last_data_at", "created_at", "data_version", "judged_version", "verdict", "verdict_detail")
    for name in heard:
        found["run"].pop(name)
    for event in found["events"]["items"]:
        event.pop("at")
    for segment in (*found["run"]["segments"], *found["segments"]["items"]):
        for name in ("started_at", "finished_at"):  # by the service's clock
            segment[name] = segment[name] is not None
    return found


@pytest.fixture
def direct(tmp_path: Path) -> Iterator[Serving]:
    service = Serving(tmp_path)
    yield service
    service.kill()


@pytest.fixture
def pulled(tmp_path: Path) -> Iterator[Serving]:
    (tmp_path / "second").mkdir()
    service = Serving(tmp_path / "second")
    yield service
    service.kill()


def test_a_copy_brings_the_same_run_as_direct_sending(direct: Serving, pulled: Serving, tmp_path: Path) -> None:
    spool, home = f"file://{tmp_path}/far", str(tmp_path / "home")
    train(spool, PACENOTE_URL=direct.url, XDG_DATA_HOME=str(tmp_path / "trainer"))
    result = run("sync", spool, "--to", pulled.url, XDG_DATA_HOME=home)
    assert result.returncode == 0, result.stderr
    assert "rejected 0" in result.stdout
    assert said(pulled.url) == said(direct.url)
    # Followed by both ways, a run is the same as by one.
    before = said(direct.url)
    result = run("sync", spool, PACENOTE_URL=direct.url, XDG_DATA_HOME=home)
    assert "accepted 0" in result.stdout
    assert said(direct.url) == before
    assert "sent 0 " in run("sync", direct.url, "--spool", spool, XDG_DATA_HOME=home).stdout


def test_watch_until_ctrl_c(pulled: Serving, tmp_path: Path) -> None:
    spool = f"file://{tmp_path}/far"
    watch = subprocess.Popen(
        [*PACENOTE, "sync", spool, "--watch", "--every", "0.1"],
        env=environment(PACENOTE_URL=pulled.url, XDG_DATA_HOME=str(tmp_path / "home")),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watch.stdout is not None
    assert watch.stdout.readline().startswith(f"Watching {spool} for {pulled.url}; Ctrl-C")
    train(spool, PACENOTE_MODE="offline", XDG_DATA_HOME=str(tmp_path / "trainer"))
    while not finished(pulled.url):
        assert watch.stdout.readline()
    watch.send_signal(signal.SIGINT)
    out = watch.communicate(timeout=30)[0]
    assert watch.returncode == 0
    assert f"1 spool in {spool}: sent " in out


def finished(url: str) -> bool:
    items = httpx.get(f"{url}/api/v1/runs", params={"role": "reproduction"}).json()["items"]
    return bool(items) and said(url)["run"]["segments"][0]["finished_at"]


def test_wrong_use(tmp_path: Path) -> None:
    for arguments, words in (
        (("nosuch://bucket",), "nosuch"),
        ((f"file://{tmp_path}", "--spool", "gs://bucket"), "name one"),
        ((str(tmp_path / "missing"),), "There is no folder"),
        ((f"file://{tmp_path}", "--to", "ftp://x"), "it should look like"),
    ):
        result = run("sync", *arguments)
        assert result.returncode == 2
        assert words in result.stderr
        assert one_line(result.stderr)
