"""What `pacenote follow` does: reads, remembers, sends, tells; and where it keeps what it remembers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import typer

from service.cli.output import JUDGED_NOT, fail, warn

if TYPE_CHECKING:
    from io import TextIOWrapper

    from service.importers.follow import Feed, State, StateFile
    from service.importers.follow_service import FollowService
    from service.importers.follow_source import FollowSource

NEWS_SECONDS = 0.5  # between two looks at what the service thinks, while data comes
QUIET_SECONDS = 5.0  # …and while none does
JUDGED_SECONDS = 120.0
TRAIN = "train/ce_loss"


class Follower:
    """The loop: read, remember, send, tell."""

    def __init__(self, log: FollowSource, feed: Feed, file: StateFile, service: FollowService) -> None:
        self._log = log
        self._feed = feed
        self._file = file
        self._service = service
        self._news_at = 0.0
        self._shown: set[str] = set()
        self._said_unknown: list[str] = []

    def run(self, until_idle: float | None, *, once: bool = False) -> None:
        """Follow, until nothing came for `until_idle` seconds (None: for ever), or `once` over what is there now.

        Raises:
            typer.Exit: a judgement says that it is not the published run.
            LogError: the log cannot be read.
        """
        self._send()
        moved = time.monotonic()
        while True:
            fed = self._log.read(self._feed.state.cursor)
            if fed is not None:
                self._feed.take(fed, self._log.format)
                self._file.save(self._feed.state)
                self._say_names()
                self._send()
                moved = time.monotonic()
            self._tell(time.monotonic() - moved)
            if fed is not None and fed.more:
                continue
            if once:
                self.say_sent()
                return
            if until_idle is not None and time.monotonic() - moved >= until_idle:
                self._end()
                return
            time.sleep(self._log.wait)

    def _send(self) -> None:
        state = self._feed.state
        for request in state.pending:
            self._service.send(request, state.bodies.get(request.segment, {}))
        state.sent()

    def _tell(self, idle: float) -> None:
        if time.monotonic() < self._news_at:
            return
        self._news_at = time.monotonic() + (NEWS_SECONDS if idle < 10 * NEWS_SECONDS else QUIET_SECONDS)
        for line in self._service.news():
            typer.echo(line)

    def say_sent(self) -> None:
        """What the service has of the log by now."""
        state = self._feed.state
        last = max(state.last.values(), default=0)
        starts = f" in {state.segments} starts of the trainer" if state.segments > 1 else ""
        typer.echo(f"Sent {state.points:,} points{starts}, up to step {last:,}.")

    def _say_names(self) -> None:
        """What the log's names mean, each once, and which are not sent."""
        known, unknown = self._feed.state.known, self._feed.unknown
        new = {name: entry for name, entry in known.items() if name not in self._shown}
        if new and not self._shown:
            typer.echo(f"The log is {self._log.format.replace('_', ' ')}:")
        for name, (metric, shift, unit) in new.items():
            steps = f", steps + {shift}" if shift else ""
            terms, divisor = self._feed.state.minus.get(name, ([], 1.0))
            by = f" / {divisor:g}" if divisor != 1.0 else ""
            without = "".join(f" - {term}{by}" for term in terms)
            typer.echo(f"  {name}{without} -> {metric}{steps}{f' (from {unit})' if unit else ''}")
        self._shown |= set(new)
        fresh = [name for name in unknown if name not in self._said_unknown]
        if not fresh:
            return
        some = ", ".join(fresh[:8]) + (f" and {len(fresh) - 8} more" if len(fresh) > 8 else "")
        if any(metric == TRAIN for metric, _, _ in known.values()):
            typer.echo(f"  not known, not sent: {some}")
        elif not self._said_unknown:
            warn(f"nothing is known as {TRAIN} yet; if one of these is it ({some}): --map '{fresh[0]}={TRAIN}'")
        self._said_unknown += fresh

    def _end(self) -> None:
        from service.cli.verdict import print_verdict

        if not self._feed.state.points:
            fail(f"nothing known came from {self._log.name}")
        until = time.monotonic() + JUDGED_SECONDS
        while (found := self._service.judged()) is None:
            if time.monotonic() > until:
                fail(f"no judgement within {JUDGED_SECONDS:g} s; does a worker run (`pacenote worker`)?")
            time.sleep(0.2)
        for line in self._service.news():
            typer.echo(line)
        print_verdict(*found)
        if any(judgement["state"] == "yes" for judgement in found[1]):
            raise typer.Exit(JUDGED_NOT)


def state_folder() -> Path:
    """Beside the spools, which a hook on this machine would write."""
    from service.importers.rows import LogError
    from trainer_hooks.stores import default_folder

    address = os.environ.get("PACENOTE_SPOOL_DIR") or default_folder()
    folder = Path(default_folder() if "://" in address else address).expanduser() / "follow"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LogError(f"{folder}: cannot be made ({error.strerror}); set PACENOTE_SPOOL_DIR") from error
    return folder


def lock(folder: Path, key: UUID, name: str) -> TextIOWrapper:
    """An open file that no other `follow` of this run has locked."""
    import fcntl

    file = (folder / f"{key}.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        fail(f"another process follows the run {name} already.")
    return file


def forgotten(path: Path) -> StateFile:
    """The state, begun anew."""
    from service.importers.follow import StateFile

    path.unlink(missing_ok=True)
    return StateFile(path)


def open_state(file: StateFile, log: FollowSource, name: str, resume: bool) -> State:
    """The state to go on from, or a new one; ends the command where that is not what was asked for."""
    from service.importers.follow import State

    state = file.state
    if state is None:
        if resume:
            fail(f"the run {name} was not followed before from here; leave out --resume to begin.")
        return State(log.name)
    if state.source != log.name:
        before = f"the run {name} was followed from {state.source}"
        fail(f"{before}: name another with --run, or begin anew with --from-start.")
    return state
