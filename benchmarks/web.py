"""How soon the pages show something: `python -m benchmarks web [--steps N] [--times N] [--peers PYTHON]`.

A run of 1.4 million steps with 30 metrics, laid over the shipped reference `olmo3-7b`, is written by the store's own
writer as an import is, into a SQLite file behind a real service; a headless Chromium with a profile of its own opens
the run's page. Cold: a new profile, nothing cached, and the service has not read this run. Cached: the same profile
again. Bytes are those on the wire, headers included. A busy machine makes all of it slower: its load is printed beside.
With another Python that has TensorBoard or MLflow, their charts of the same loss are opened too (web_peers.py).
"""

from __future__ import annotations

import argparse
import csv
import gc
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from subprocess import CalledProcessError
from typing import Any

import numpy as np
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.table import Table

from benchmarks import web_peers
from benchmarks.screenshots import FLAGS, chromium_path
from benchmarks.store_server import server
from service.database.engine import open_engine, writing
from service.database.migrate import ensure_schema
from service.database.models import Segment
from service.ingest.segments import ensure_project, ensure_run, run_uuid
from service.references.shipped import BUNDLES, install_shipped
from service.series.writer import write_points

STEPS = 1_400_000
METRICS = 30
EVERY = 1000  # steps between evaluations
TOKENS_PER_STEP = 4_194_304
TASKS = ("arc_challenge", "arc_easy", "csqa", "hellaswag", "piqa", "socialiqa", "winogrande", "boolq")
POINTS_BAR = 2000
PEER_TIMES = 2  # cold visits where peers stand beside
BARS = {"first picture, cold": 2000.0, "first picture, script cached": 1000.0, "zoom": 300.0}
SIZE = {"width": 1400, "height": 900}
# When each group of figures was on the screen, in ms since the page was asked for.
WATCH = """
window.drawn = {};
new MutationObserver(records => {
  for (const { target } of records) if (target.dataset.state === 'drawn') requestAnimationFrame(() => {
    const paint = new MessageChannel();
    paint.port1.onmessage = () => { (drawn[target.id] ??= []).push(performance.now()); };
    paint.port2.postMessage(null);
  });
}).observe(document, { subtree: true, attributes: true, attributeFilter: ['data-state'] });
"""
POINTS = """() => Math.max(...[...document.querySelectorAll('.plot')].flatMap(
  plot => (plot._fullData ?? []).map(trace => trace.x?.length ?? 0)))"""
TRACES = "() => [...document.querySelectorAll('.plot')].flatMap(plot => plot._fullData ?? []).length"
SETTLED = "() => [...document.querySelectorAll('[data-figures]')].every(group => group.dataset.state === 'drawn')"
ZOOM = """([low, high]) => new Promise(resolve => {
  const before = (drawn['figures-loss'] ?? []).length, begun = performance.now();
  Plotly.relayout(document.querySelector('#figures-loss .plot'), { 'xaxis.range': [low, high] });
  const look = () => drawn['figures-loss'].length > before
    ? resolve(drawn['figures-loss'].at(-1) - begun) : requestAnimationFrame(look);
  look();
})"""
console = Console(width=130)


@dataclass
class Visit:
    """One loading of the run's page, in ms and bytes."""

    first: float
    screen: float
    everything: float
    sent: float
    figures: float


@dataclass
class Measured:
    """All visits and zooms."""

    cold: list[Visit] = field(default_factory=list)
    cached: list[Visit] = field(default_factory=list)
    zooms: list[float] = field(default_factory=list)
    points: int = 0
    traces: int = 0


def columns(steps: int) -> dict[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """METRICS metrics; those of training have a value at each step, evaluations at every thousandth."""
    rng = np.random.default_rng(7)
    at = np.arange(1, steps + 1)
    loss = published("train/ce_loss", at)
    full = {
        "train/ce_loss": loss + rng.normal(0, 0.02, steps),
        "optim/learning_rate": 3e-4 * np.cos(at / steps * 1.4),
        "throughput/step_seconds": rng.gamma(400, 0.004, steps),
        "throughput/tokens_per_second_per_device": rng.normal(7000, 40, steps),
        "train/z_loss": rng.normal(1e-3, 1e-5, steps),
        "optim/skipped": np.zeros(steps),
    }
    evaluated = at[EVERY - 1 :: EVERY]
    few = {"heldout/c4_en/ce_loss": published("heldout/c4_en/ce_loss", evaluated)}
    few |= {f"downstream/{task}/accuracy": 0.4 + 0.3 * evaluated / steps for task in TASKS}
    for number in range(METRICS - len(full) - len(few)):
        full["optim/grad_norm" if number == 0 else f"optim/norm_of_layer_{number}"] = rng.lognormal(-1, 0.2, steps)
    result = {name: (at, values.astype(np.float32).astype(np.float64)) for name, values in full.items()}
    return result | {name: (evaluated, values) for name, values in few.items()}


def published(metric: str, at: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The reference's own curve at these steps."""
    with (BUNDLES / "olmo3-7b" / "series" / "stage1.csv").open() as file:
        rows = [(int(row["step"]), float(row["value"])) for row in csv.DictReader(file) if row["metric"] == metric]
    steps, values = np.array(sorted(rows)).T
    return np.interp(at, steps, values)


def fill(url: str, steps: int) -> str:
    """The run in a new database; its id."""
    engine = open_engine(url)
    ensure_schema(engine)
    install_shipped(engine)
    began = time.time() - steps * 1.6
    identity = run_uuid("olmo3-7b", "long", "stage1")
    with writing(engine) as session:
        project = ensure_project(session, "olmo3-7b", began)
        facts = {"name": "long", "stage": "stage1", "role": "reproduction", "reference": "olmo3-7b"}
        facts |= {"token_offset": 0.0}
        run_id = ensure_run(session, project, identity, facts, began)
        segment = Segment(
            uuid=uuid.uuid4(), run_id=run_id, kind="trainer", start_step=0, tokens_per_step=TOKENS_PER_STEP,
            topology={}, config={}, versions={}, sample_rows=1, started_at=began, digest=b"",
        )  # fmt: skip
        session.add(segment)
        session.flush()
        at = np.arange(1, steps + 1)
        write_points(session, run_id, segment.id, at, began + at * 1.6, None, columns(steps))
    engine.dispose()
    return str(identity)


def open_page(page: Page, address: str) -> Visit:
    """Load a page until its last figure is drawn."""
    sent: dict[str, float] = {"all": 0.0, "figures": 0.0}
    urls: dict[str, str] = {}
    wire = page.context.new_cdp_session(page)
    wire.send("Network.enable")
    wire.on("Network.requestWillBeSent", lambda event: urls.update({event["requestId"]: event["request"]["url"]}))

    def finished(event: dict[str, Any]) -> None:
        sent["all"] += event["encodedDataLength"]
        if "/figures/" in urls.get(event["requestId"], ""):
            sent["figures"] += event["encodedDataLength"]

    wire.on("Network.loadingFinished", finished)
    page.goto(address)
    page.wait_for_function(SETTLED, timeout=120_000)
    page.wait_for_function(
        "() => Object.keys(drawn).length === document.querySelectorAll('[data-figures]').length", timeout=10_000
    )
    drawn: dict[str, list[float]] = page.evaluate("drawn")
    in_sight: list[str] = page.evaluate(
        "() => [...document.querySelectorAll('[data-figures]')]"
        ".filter(group => group.getBoundingClientRect().top < innerHeight).map(group => group.id)"
    )
    wire.detach()
    first = {name: times[0] for name, times in drawn.items()}
    return Visit(
        first["figures-loss"], max(first[name] for name in in_sight), max(first.values()), sent["all"], sent["figures"]
    )


def measure(database: Path, run: str, steps: int, times: int) -> Measured:
    """`times` cold visits, each with a new profile and service; after each the same with all cached, and zooms."""
    result = Measured()
    url = f"sqlite:///{database}"
    rng = np.random.default_rng(3)
    with sync_playwright() as playwright:
        for _ in range(times):
            with server(url) as (port, _, _), tempfile.TemporaryDirectory(prefix="pacenote-profile-") as profile:
                context = playwright.chromium.launch_persistent_context(
                    profile, executable_path=chromium_path(), args=FLAGS, viewport=SIZE
                )
                context.add_init_script(WATCH)
                page = context.new_page()
                address = f"http://127.0.0.1:{port}/runs/{run}"
                result.cold.append(open_page(page, address))
                for _ in range(3):  # Chromium keeps a script's compiled code from its second or third use on
                    visit = open_page(page, address)
                result.cached.append(visit)
                for share in (0.3, 0.01, 0.001):
                    low = float(rng.uniform(0.1, 0.9 - share)) * steps * TOKENS_PER_STEP
                    result.zooms.append(page.evaluate(ZOOM, [low, low + share * steps * TOKENS_PER_STEP]))
                    result.points = max(result.points, page.evaluate(POINTS))
                result.traces = page.evaluate(TRACES)
                context.close()
    return result


def show(found: Measured, steps: int) -> bool:
    """Print the tables; whether every bar is met."""
    title = f"The page of a run: {steps:,} steps, {METRICS} metrics, {found.traces} traces"
    table = Table(title=title, title_justify="left")
    for name in ("", "median", "worst", "bar"):
        table.add_column(name, justify="left" if not name else "right")
    ms: dict[str, list[float]] = {
        "first picture, cold": [visit.first for visit in found.cold],
        "all on the screen, cold": [visit.screen for visit in found.cold],
        "every figure, cold": [visit.everything for visit in found.cold],
        "first picture, script cached": [visit.first for visit in found.cached],
        "all on the screen, script cached": [visit.screen for visit in found.cached],
        "every figure, script cached": [visit.everything for visit in found.cached],
        "zoom": found.zooms,
    }
    good = found.points <= POINTS_BAR
    for name, values in ms.items():
        bar = BARS.get(name, float("inf"))
        table.add_row(
            name, f"{median(values):,.0f} ms", f"{max(values):,.0f} ms", f"{bar:,.0f} ms" if name in BARS else ""
        )
        good = good and median(values) <= bar
    for name, visits in (("sent, cold", found.cold), ("sent, script cached", found.cached)):
        whole, figures = median([visit.sent for visit in visits]), median([visit.figures for visit in visits])
        table.add_row(f"{name}: of it figures", f"{whole / 1e6:,.2f} MB", f"{figures / 1e6:,.2f} MB", "")
    table.add_row("points in a trace", "", f"{found.points:,}", f"{POINTS_BAR:,.0f}")
    console.print(table)
    console.print(f"The machine's load meanwhile: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")
    return good


def beside(python: str, database: Path, run: str, steps: int, times: int) -> None:
    """Print our charts beside those of the peers that `python` has, in the same browser."""
    peers = web_peers.installed(python)
    if not peers:
        console.print("Neither TensorBoard nor MLflow is installed for --peers: `make test-peers` installs both.")
        return
    values = columns(steps)[web_peers.METRIC][1]
    theirs: dict[str, web_peers.Charts] = {}
    with sync_playwright() as playwright:
        with server(f"sqlite:///{database}") as (port, _, _):
            address = f"http://127.0.0.1:{port}/runs/{run}"
            ours = web_peers.measure(playwright, "pacenote", address, steps, times)
        for peer in peers:
            most = min(steps, web_peers.MOST[peer])
            title = web_peers.TITLES[peer]
            try:
                with web_peers.serving(peer, python, database.parent / peer, values[:most]) as address:
                    theirs[f"{title}, 1 metric"] = web_peers.measure(playwright, peer, address, most, times)
            except (
                PlaywrightError,
                RuntimeError,
                OSError,
                CalledProcessError,
            ) as error:  # no reason to say nothing of the others
                console.print(f"{title} showed no chart: {str(error).splitlines()[0]}")
    table = Table(
        title="The same training loss in other dashboards, with so many of its steps (ratio to ours)",
        title_justify="left",
    )
    for name in ("", "steps", "first curve, cold", "first curve, cached", "zoom", "sent, cold"):
        table.add_column(name, justify="right" if name else "left")
    for line in web_peers.rows(ours, theirs):
        table.add_row(*line)
    console.print(table)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks web", description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--times", type=int, default=3, help="cold visits")
    parser.add_argument("--peers", default=sys.executable, help="the Python that has TensorBoard and MLflow")
    options = parser.parse_args(list(sys.argv[1:] if argv is None else argv))
    with tempfile.TemporaryDirectory(prefix="pacenote-bench-") as name:
        folder = Path(name)
        run = fill(f"sqlite:///{folder / 'bench.db'}", options.steps)
        gc.collect()
        found = measure(folder / "bench.db", run, options.steps, options.times)
        good = show(found, options.steps)
        peers = str(Path(options.peers).absolute())  # servers are started elsewhere; a venv's Python stays a link
        beside(peers, folder / "bench.db", run, options.steps, min(options.times, PEER_TIMES))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
