"""The charts of TensorBoard and MLflow on the same training loss, beside ours: `benchmarks web --peers PYTHON`.

Each gets one metric of the run, with a value at every step, in its own format: an event file, and MLflow's SQLite store
(written with SQL: its own client would need hours). Both servers are started as their manuals say, MLflow with one
worker; the event file has been read before the page is opened. A zoom is a drag with the mouse over the middle of the
chart, from letting go to the last change of the drawn curve. Chromium has no WebGL here, so that TensorBoard draws SVG;
its zoom shows the same 1,000 points, which it has chosen at random, while ours fetches the window.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from playwright.sync_api import Page, Playwright

from benchmarks.screenshots import FLAGS, chromium_path

METRIC = "train/ce_loss"
START_SECONDS = 180
MOST = {"tensorboard": 200_000, "mlflow": 50_000}  # steps that it gets: enough to see, in a few minutes for all
TITLES = {"tensorboard": "TensorBoard", "mlflow": "MLflow"}
CURVES = {
    "pacenote": "#figures-loss .scatterlayer path.js-line",
    "tensorboard": "line-chart .series-view > svg path",
    "mlflow": ".js-plotly-plot .scatterlayer path.js-line",
}
PATIENCE = 90_000  # ms for a first curve
ZOOM_PATIENCE = 15_000  # ms for a curve to move
QUIET = 1500  # ms without a change of the curve end a zoom
DRAG = (0.4, 0.6)  # of the width of the curve
RISE = {"tensorboard": 0.3}  # of the height: a box without one is none to it; Plotly zooms along the axis alone
# When the first curve was on the screen, when the mouse was let go, and when the curve last changed.
WATCH = """
window.seen = { first: null, released: null, changed: null };
addEventListener('mouseup', () => { seen.released = performance.now(); seen.changed = null; }, true);
new MutationObserver(records => {
  const curve = document.querySelector('CURVE');
  if (!curve?.getAttribute('d')) return;
  const home = curve.closest('svg');
  if (seen.first !== null && !records.some(({ target }) => home.contains(target))) return;
  requestAnimationFrame(() => {
    const paint = new MessageChannel();
    paint.port1.onmessage = () => { seen.changed = performance.now(); seen.first ??= seen.changed; };
    paint.port2.postMessage(null);
  });
}).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ['d'] });
"""
STILL = """([quiet, patience]) => new Promise(resolve => {
  const look = () => seen.changed !== null && performance.now() - seen.changed > quiet
    ? resolve(seen.changed - seen.released)
    : performance.now() - seen.released > patience ? resolve(NaN) : setTimeout(look, 50);
  look();
})"""


@dataclass
class Charts:
    """The first curve on the screen, cold and with everything cached, and zooms, in ms; bytes of the cold visit."""

    cold: list[float] = field(default_factory=list)
    cached: list[float] = field(default_factory=list)
    zooms: list[float] = field(default_factory=list)
    sent: float = 0.0
    steps: int = 0


def measure(playwright: Playwright, peer: str, address: str, steps: int, times: int) -> Charts:
    """`times` visits with a new profile each; after each two more with the same one, and a zoom."""
    found = Charts(steps=steps)
    for _ in range(times):
        with tempfile.TemporaryDirectory(prefix="pacenote-profile-", ignore_cleanup_errors=True) as profile:
            context = playwright.chromium.launch_persistent_context(
                profile, executable_path=chromium_path(), args=[*FLAGS, "--disable-3d-apis"],
                viewport={"width": 1400, "height": 900},
            )  # fmt: skip
            context.add_init_script(WATCH.replace("CURVE", CURVES[peer]))
            page = context.new_page()
            cold, found.sent = _visit(page, address)
            found.cold.append(cold)
            for _ in range(2):
                warm, _ = _visit(page, address)
            found.cached.append(warm)
            found.zooms.append(_zoom(page, CURVES[peer], RISE.get(peer, 0.0)))
            context.close()
    return found


def _visit(page: Page, address: str) -> tuple[float, float]:
    """Load the page until its first curve stands still: ms to the curve, bytes until then."""
    sent: list[float] = []
    wire = page.context.new_cdp_session(page)
    wire.send("Network.enable")
    wire.on("Network.dataReceived", lambda event: sent.append(event["encodedDataLength"]))
    page.goto("about:blank")  # an address that differs behind the # alone would not be loaded again
    page.goto(address)
    page.wait_for_function("() => seen.first !== null", timeout=PATIENCE)
    page.wait_for_function(f"() => performance.now() - seen.changed > {QUIET}", timeout=PATIENCE)
    wire.detach()
    return page.evaluate("seen.first"), sum(sent)


def _zoom(page: Page, curve: str, rise: float) -> float:
    box = page.locator(curve).first.evaluate(
        "curve => { const { x, y, width, height } = curve.closest('svg').getBoundingClientRect();"
        " return { x, y, width, height, curve: curve.getBoundingClientRect().toJSON() }; }"
    )
    inner = box["curve"]
    left, width = max(inner["x"], box["x"]), min(inner["width"], box["width"])
    middle = min(max(inner["y"], box["y"]) + min(inner["height"], box["height"]) / 2, box["y"] + box["height"] - 5)
    page.mouse.move(left + DRAG[0] * width, middle)
    page.mouse.down()
    page.mouse.move(left + DRAG[1] * width, middle - rise * box["height"], steps=4)
    page.mouse.up()
    zoom: float = page.evaluate(STILL, [QUIET, ZOOM_PATIENCE])
    return zoom


def rows(ours: Charts, theirs: dict[str, Charts]) -> list[list[str]]:
    """A table: title, steps, first curve cold and cached, zoom, bytes, each beside its ratio to ours."""
    lines: list[list[str]] = []
    for title, charts in {"Pacenote, 30 metrics": ours, **theirs}.items():
        line = [title, f"{charts.steps:,}"]
        pairs = [(charts.cold, ours.cold), (charts.cached, ours.cached), (charts.zooms, ours.zooms)]
        for mine, base in pairs:
            value = median(mine)  # NaN: the curve has not moved
            line.append(f"{value:,.0f} ms ({value / median(base):.1f}×)" if value == value else "–")
        lines.append([*line, f"{charts.sent / 1e6:,.2f} MB ({charts.sent / ours.sent:.1f}×)"])
    return lines


def installed(python: str) -> list[str]:
    """Those of the peers that an interpreter can import."""
    names = [*TITLES, "tensorflow"]
    code = f"from importlib.util import find_spec; print(*[name for name in {names} if find_spec(name)])"
    found = subprocess.run([python, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return [name for name in TITLES if name in found and (name == "mlflow" or "tensorflow" in found)]


@contextmanager
def serving(peer: str, python: str, folder: Path, values: np.ndarray[Any, Any]) -> Iterator[str]:
    """Write `values` (one for each step from 1 on) in the peer's format and serve them; the address of its charts."""
    folder.mkdir()
    np.save(folder / "values.npy", values)
    command = [python, "-m", "benchmarks.web_peers", peer, str(folder)]
    path = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    at = f"http://127.0.0.1:{port}"
    starts = {
        "tensorboard": ["-m", "tensorboard.main", "--logdir", str(folder / "log")],
        "mlflow": ["-m", "mlflow", "server", "--backend-store-uri", _store(folder), "--workers", "1"],
    }
    # A session of its own: MLflow's server is several processes, and all of them have to end.
    process = subprocess.Popen(
        [python, *starts[peer], "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd=folder,
        env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
    )  # fmt: skip
    try:
        ready = {"tensorboard": lambda: _newest_of_tensorboard(at) == len(values), "mlflow": lambda: _asked(at) != b""}
        _until(ready[peer])
        yield at + path.strip()
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _store(folder: Path) -> str:
    return f"sqlite:///{folder / 'mlflow.db'}"


def _asked(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=10) as answer:
        body: bytes = answer.read()
        return body


def _newest_of_tensorboard(at: str) -> int:
    """The newest step that it has read; its sample always holds the newest point."""
    scalars = json.loads(_asked(f"{at}/data/plugin/scalars/scalars?run=.&tag={METRIC}"))
    return int(scalars[-1][1])


def _until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            if ready():
                return
        except OSError:
            pass
        if time.monotonic() > end:
            raise RuntimeError(f"a peer's server was not ready within {START_SECONDS} s")
        time.sleep(0.2)


def write_tensorboard(folder: Path, values: np.ndarray[Any, Any]) -> str:
    """An event file; the path of the charts on its server."""
    import tensorflow as tf
    from tensorboard.compat.proto.event_pb2 import Event

    (folder / "log").mkdir()
    began = time.time() - len(values)
    with tf.io.TFRecordWriter(str(folder / "log" / "events.out.tfevents.1")) as file:
        file.write(Event(wall_time=began, file_version="brain.Event:2").SerializeToString())
        for step, value in enumerate(values.tolist(), 1):
            event = Event(wall_time=began + step, step=step)
            event.summary.value.add(tag=METRIC, simple_value=value)
            file.write(event.SerializeToString())
    return "/#timeseries"


def write_mlflow(folder: Path, values: np.ndarray[Any, Any]) -> str:
    """A SQLite store with one run; the path of its charts."""
    import sqlite3

    from mlflow import MlflowClient

    client = MlflowClient(_store(folder))
    run = client.create_run("0", run_name="long").info.run_id
    began = int((time.time() - len(values)) * 1000)
    with sqlite3.connect(folder / "mlflow.db") as store:
        columns = "(key, value, timestamp, step, is_nan, run_uuid)"
        rows = ((METRIC, value, began + 1000 * step, step, 0, run) for step, value in enumerate(values.tolist(), 1))
        store.executemany(f"INSERT INTO metrics {columns} VALUES (?, ?, ?, ?, ?, ?)", rows)
        last = (METRIC, float(values[-1]), began + 1000 * len(values), len(values), 0, run)
        store.execute(f"INSERT INTO latest_metrics {columns} VALUES (?, ?, ?, ?, ?, ?)", last)
    return f"/#/experiments/0/runs/{run}/model-metrics"


if __name__ == "__main__":
    writers = {"tensorboard": write_tensorboard, "mlflow": write_mlflow}
    place = Path(sys.argv[2])
    print(writers[sys.argv[1]](place, np.load(place / "values.npy")))
