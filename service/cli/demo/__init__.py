"""`pacenote demo`: a double-sharded training run, caught live."""

from __future__ import annotations

import queue
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console, Group
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from service.cli.demo.outcome import complaints
from service.cli.demo.processes import DemoError, ServiceChild, TrainerChild, port_is_free
from service.cli.demo.receiver import ChatReceiver, Received

RUN_NAME = {True: "healthy-loader", False: "double-sharded-loader"}
JUDGING_SECONDS = 60.0


def demo(
    exit_when_done: Annotated[
        bool, typer.Option("--exit", help="End after the last step; status 0 only if the right alert was delivered.")
    ] = False,
    healthy: Annotated[
        bool, typer.Option("--healthy", help="Shard once, as one should; with --exit, status 0 only without an alert.")
    ] = False,
    port: Annotated[int, typer.Option(help="Where the service listens on 127.0.0.1.")] = 8350,
) -> None:
    """Train a small language model live with a loader that shards twice, and watch it being caught.

    Starts the service on a SQLite file of its own, a chat receiver on loopback, and a real JAX training.

    Example: pacenote demo --exit
    """
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="pacenote-demo-"))
    try:
        status = Demo(console, folder, port, healthy=healthy).run(stay=not exit_when_done)
    except DemoError as error:
        console.print(f"[red]Demo failed:[/] {error}\nLogs are in {folder}", soft_wrap=True)
        raise typer.Exit(1) from error
    if status == 0:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        console.print(f"Logs are in {folder}", soft_wrap=True)
    raise typer.Exit(status)


class Demo:
    """One showing. `run` returns the exit status."""

    def __init__(self, console: Console, folder: Path, port: int, *, healthy: bool) -> None:
        self.console, self.folder, self.port, self.healthy = console, folder, port, healthy
        self.messages: list[Received] = []
        self.name = RUN_NAME[healthy]

    def run(self, *, stay: bool) -> int:
        """Start everything, show what happens, end everything; Ctrl-C is a clean end."""
        if not port_is_free(self.port):
            raise DemoError(f"Port {self.port} is in use. End what listens there, or choose another: --port 8351")
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends us, our children end too
        receiver = ChatReceiver()
        service = ServiceChild(self.folder, self.port)
        trainer: TrainerChild | None = None
        try:
            service.wait_until_ready()
            self._add_channel(service.url, receiver)
            self._introduce(service.url)
            trainer = TrainerChild(
                self.folder, service.url, sharding="correct" if self.healthy else "double", run=self.name
            )
            self._watch(trainer, receiver)
            run = self._wait_until_judged(service.url, receiver)
            found = self._conclude(service.url, run)
            if stay:
                self.console.print(f"The dashboard stays at [link]{service.url}[/link] until Ctrl-C.")
                while True:
                    self._show_next(receiver, 1.0)
            return 1 if found else 0
        except KeyboardInterrupt:
            self.console.print("Ending.")
            return 0 if stay else 130
        finally:
            if trainer:
                trainer.end()
            service.end()
            receiver.close()

    def _add_channel(self, url: str, receiver: ChatReceiver) -> None:
        body = {"name": "demo chat", "kind": "webhook", "url": receiver.url, "secret": receiver.secret}
        httpx.post(f"{url}/api/v1/channels", json=body, timeout=10).raise_for_status()

    def _introduce(self, url: str) -> None:
        loader = "sharded once, as it should be" if self.healthy else "sharded twice: in the source and in the sampler"
        lines = Table.grid(padding=(0, 2))
        lines.add_row("Dashboard", f"[bold cyan][link]{url}[/link][/]")
        lines.add_row("Reference", "lab: the recorded run of this small model, with three healthy siblings")
        lines.add_row("This run", f"{self.name}: four Grain loaders, {loader}")
        self.console.print(Panel(lines, title="Pacenote demo", border_style="cyan", expand=False))

    def _watch(self, trainer: TrainerChild, receiver: ChatReceiver) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("step {task.completed:.0f} of {task.total:.0f}"),
            TextColumn("train loss {task.fields[loss]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console) as bar:
            task = bar.add_task("starting JAX", total=400, loss="-")
            while trainer.process.poll() is None:
                self._show_next(receiver, 0.2)
                known = trainer.progress
                if "loss" in known:
                    bar.update(
                        task,
                        description="training",
                        completed=known["step"],
                        total=known["steps"],
                        loss=f"{known['loss']:.3f}",
                    )
        if trainer.process.returncode:
            raise DemoError(f"The trainer ended with status {trainer.process.returncode}: {trainer.last_words()}")

    def _wait_until_judged(self, url: str, receiver: ChatReceiver) -> dict[str, Any]:
        """Return the run once everything it sent was judged and every message has arrived."""
        deadline = time.monotonic() + JUDGING_SECONDS
        while time.monotonic() < deadline:
            self._show_next(receiver, 0.2)
            run = self._find_run(url)
            if run and run["judged_version"] >= run["data_version"] and not self._pending(url):
                while self._show_next(receiver, 0.2):
                    pass
                return run
        raise DemoError(f"The service had not judged the run {JUDGING_SECONDS:.0f} s after its last step")

    def _find_run(self, url: str) -> dict[str, Any] | None:
        answer = httpx.get(f"{url}/api/v1/runs", params={"project": "lab", "role": "reproduction"}, timeout=10)
        answer.raise_for_status()
        runs = [run for run in answer.json()["items"] if run["name"] == self.name]
        return httpx.get(f"{url}/api/v1/runs/{runs[0]['id']}", timeout=10).raise_for_status().json() if runs else None

    def _pending(self, url: str) -> bool:
        channels = httpx.get(f"{url}/api/v1/channels", timeout=10).json()["items"]
        deliveries = httpx.get(f"{url}/api/v1/channels/{channels[0]['id']}/deliveries", timeout=10).json()["items"]
        return any(delivery["state"] == "pending" for delivery in deliveries)

    def _show_next(self, receiver: ChatReceiver, timeout: float) -> bool:
        """Print the next message that the chat receiver got; False if none came in time."""
        try:
            message = receiver.messages.get(timeout=timeout)
        except queue.Empty:
            return False
        self.messages.append(message)
        data = message.body["data"]
        lines = Table.grid(padding=(0, 2))
        lines.add_column(style="dim", no_wrap=True)
        lines.add_column(overflow="fold")
        for fact in data["facts"]:
            lines.add_row(fact["label"], escape(fact["text"]))
        lines.add_row("Page", data["alert"]["url"])
        style = {"alert.firing": "red", "alert.updated": "yellow"}.get(message.body["type"], "green")
        words = Text(data["title"], style=f"bold {style}")
        self.console.print(Panel(Group(words, "", lines), title=message.body["type"], border_style=style))
        seal = "signature verified" if message.genuine else "[red]signature wrong[/]"
        self.console.print(f"[green]✔[/] the chat receiver got {message.body['type']} ({seal})")
        return True

    def _conclude(self, url: str, run: dict[str, Any]) -> list[str]:
        answer = httpx.get(f"{url}/api/v1/alerts", params={"run": run["id"]}, timeout=10)
        answer.raise_for_status()
        found = complaints(self.messages, answer.json()["items"], healthy=self.healthy)
        for complaint in found:
            self.console.print(f"[red]✘[/] {complaint}")
        if not found:
            right = "nothing was alerted" if self.healthy else "the right alert was delivered"
            self.console.print(f"[green]✔[/] {right}; verdict: [bold]{run['verdict']}[/]")
        return found
