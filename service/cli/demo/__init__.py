"""`pacenote demo`: a double-sharded training run, caught live."""

from __future__ import annotations

import queue
import shutil
import tempfile
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from service.cli.demo.outcome import complaints
from service.cli.demo.processes import DemoError, ServiceChild, TrainerChild, free_port
from service.cli.demo.receiver import ChatReceiver, Received
from service.cli.demo.signals import end_on_signals, hear_no_signals
from service.cli.output import INTERRUPTED, fail

RUN_NAME = {True: "healthy-loader", False: "double-sharded-loader"}
JUDGING_SECONDS = 60.0
TELL_EVERY = 50  # steps, where no progress bar can be drawn


def demo(
    exit_when_done: Annotated[
        bool, typer.Option("--exit", help="End after the last step; status 0 only if the right alert was delivered.")
    ] = False,
    healthy: Annotated[
        bool, typer.Option("--healthy", help="Shard once, as one should; with --exit, status 0 only without an alert.")
    ] = False,
    port: Annotated[int, typer.Option(help="Where the service listens on 127.0.0.1; 0 takes a free one.")] = 8350,
) -> None:
    """Train a small model live with a loader that shards twice, and catch it.

    Starts the service on a SQLite file of its own, a chat receiver on loopback, and a real JAX training.
    Ctrl-C ends all three.

    Example: pacenote demo --exit
    """
    missing = [name for name in ("jax", "flax", "grain", "optax", "safetensors") if find_spec(name) is None]
    if missing:
        fail(f"The demo trains with {missing[0]}, which is not installed: pip install 'pacenote[lab]'")
    try:
        port = free_port(port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        fail(f"Cannot listen on 127.0.0.1 port {port}: {reason}. Choose another one: --port {port + 1}, or --port 0")
    end_on_signals()
    console = Console()
    try:
        folder = Path(tempfile.mkdtemp(prefix="pacenote-demo-"))
    except OSError as error:
        fail(f"Cannot make a folder for temporary files: {error.strerror}. Name a place for them in TMPDIR")
    try:
        status = Demo(console, folder, port, healthy=healthy).run(stay=not exit_when_done)
    except DemoError as error:
        console.print(f"Demo failed: {error}\nLogs are in {folder}", style="red", soft_wrap=True, markup=False)
        raise typer.Exit(1) from error
    if status in (0, INTERRUPTED):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        console.print(f"Logs are in {folder}", soft_wrap=True, markup=False)
    raise typer.Exit(status)


class Demo:
    """One showing. `run` returns the exit status."""

    def __init__(self, console: Console, folder: Path, port: int, *, healthy: bool) -> None:
        self.console, self.folder, self.port, self.healthy = console, folder, port, healthy
        self.messages: list[Received] = []
        self.name = RUN_NAME[healthy]

    def run(self, *, stay: bool) -> int:
        """Start everything, show what happens, end everything; Ctrl-C is a clean end."""
        with ExitStack() as running:
            try:
                receiver = ChatReceiver()
                running.callback(receiver.close)
                service = ServiceChild(self.folder, self.port)
                running.callback(service.end)
                service.wait_until_ready()
                self._add_channel(service, receiver)
                self._introduce(service.url)
                trainer = TrainerChild(
                    self.folder, service.url, sharding="correct" if self.healthy else "double", run=self.name
                )
                running.callback(trainer.end)
                self._watch(trainer, service, receiver)
                run = self._wait_until_judged(service, receiver)
                found = self._conclude(service, run)
                if stay:
                    self.console.print(f"The dashboard stays at [link]{service.url}[/link] until Ctrl-C.")
                while stay:
                    self._show_next(receiver, 1.0)
                    service.check()
                return 1 if found else 0
            except KeyboardInterrupt:
                self.console.print("Ending.")
                return 0 if stay else INTERRUPTED
            finally:
                hear_no_signals()

    def _add_channel(self, service: ServiceChild, receiver: ChatReceiver) -> None:
        body = {"name": "demo chat", "kind": "webhook", "url": receiver.url, "secret": receiver.secret}
        service.ask("POST", "/channels", json=body)

    def _introduce(self, url: str) -> None:
        loader = "sharded once, as it should be" if self.healthy else "sharded twice: in the source and in the sampler"
        lines = Table.grid(padding=(0, 2))
        lines.add_row("Dashboard", f"[bold cyan][link]{url}[/link][/]")
        lines.add_row("Reference", "lab: the recorded run of this small model, with three healthy siblings")
        lines.add_row("This run", f"{self.name}: four Grain loaders, {loader}")
        self.console.print(Panel(lines, title="Pacenote demo", border_style="cyan", expand=False))

    def _watch(self, trainer: TrainerChild, service: ServiceChild, receiver: ChatReceiver) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("step {task.completed:.0f} of {task.total:.0f}"),
            TextColumn("train loss {task.fields[loss]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console) as bar:
            task = bar.add_task("starting JAX", total=400, loss="-")
            told = 0
            while trainer.process.poll() is None:
                service.check()
                self._show_next(receiver, 0.2)
                known = trainer.progress
                if "loss" in known:
                    if not self.console.is_terminal and known["step"] // TELL_EVERY > told:
                        told = known["step"] // TELL_EVERY
                        bar.print(f"step {known['step']} of {known['steps']}, train loss {known['loss']:.3f}")
                    bar.update(
                        task,
                        description="training",
                        completed=known["step"],
                        total=known["steps"],
                        loss=f"{known['loss']:.3f}",
                    )
        if trainer.process.returncode:
            raise DemoError(f"The trainer ended with status {trainer.process.returncode}: {trainer.last_words()}")

    def _wait_until_judged(self, service: ServiceChild, receiver: ChatReceiver) -> dict[str, Any]:
        """Return the run once everything it sent was judged and every message has arrived."""
        deadline = time.monotonic() + JUDGING_SECONDS
        while time.monotonic() < deadline:
            self._show_next(receiver, 0.2)
            run = self._find_run(service)
            if run and run["judged_version"] >= run["data_version"] and not self._pending(service):
                while self._show_next(receiver, 0.2):
                    pass
                return run
        raise DemoError(f"The service had not judged the run {JUDGING_SECONDS:.0f} s after its last step")

    def _find_run(self, service: ServiceChild) -> dict[str, Any] | None:
        runs = service.ask("GET", "/runs", params={"project": "lab", "role": "reproduction"})["items"]
        found = next((run for run in runs if run["name"] == self.name), None)
        return service.ask("GET", f"/runs/{found['id']}") if found else None

    def _pending(self, service: ServiceChild) -> bool:
        channel = service.ask("GET", "/channels")["items"][0]["id"]
        deliveries = service.ask("GET", f"/channels/{channel}/deliveries")["items"]
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
        style = {"alert.firing": "red", "alert.updated": "yellow"}.get(message.body["type"], "green")
        words = Text(data["title"], style=f"bold {style}")
        self.console.print(Panel(Group(words, "", lines), title=message.body["type"], border_style=style))
        self.console.print(f"  Page  {data['alert']['url']}", soft_wrap=True)  # whole, for the terminal to make a link
        seal = "signature verified" if message.genuine else "[red]signature wrong[/]"
        self.console.print(f"[green]✔[/] the chat receiver got {message.body['type']} ({seal})")
        return True

    def _conclude(self, service: ServiceChild, run: dict[str, Any]) -> list[str]:
        alerts = service.ask("GET", "/alerts", params={"run": run["id"]})["items"]
        found = complaints(self.messages, alerts, healthy=self.healthy)
        for complaint in found:
            self.console.print(f"[red]✘[/] {escape(complaint)}")
        if not found:
            right = "nothing was alerted" if self.healthy else "the right alert was delivered"
            self.console.print(f"[green]✔[/] {right}; verdict: [bold]{run['verdict']}[/]")
        return found
