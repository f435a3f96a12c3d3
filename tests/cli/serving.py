"""`pacenote` in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PACENOTE = [sys.executable, "-m", "service.cli.main"]


def environment(**more: str) -> dict[str, str]:
    """This process's environment without any of Pacenote's variables, and `more`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PACENOTE_")}
    key = {"PACENOTE_SECRET_KEY": os.environ["PACENOTE_SECRET_KEY"]}  # else one is made in the user's data folder
    return clean | key | {"PYTHONUNBUFFERED": "1"} | more


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; variables by keyword."""
    return subprocess.run(
        [*PACENOTE, *arguments], env=environment(**more), capture_output=True, text=True, timeout=120, check=False
    )


def one_line(text: str) -> bool:
    """Whether a text is one line that the command said itself."""
    return text.startswith("pacenote: ") and text.count("\n") == 1


class Serving:
    """`pacenote serve` on a free port."""

    def __init__(self, folder: Path, *arguments: str, **more: str) -> None:
        self.database_url = f"sqlite:///{folder / 'serving.db'}"
        self.process = subprocess.Popen(
            [*PACENOTE, "serve", "--port", "0", *arguments],
            env=environment(PACENOTE_DATABASE_URL=self.database_url, **more),
            stdout=subprocess.PIPE,
            stderr=(folder / "stderr").open("w"),
            text=True,
        )
        self._stderr = folder / "stderr"
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()
        self.url = self.first_line.split()[-1]

    def end(self, number: int) -> tuple[int, str, str]:
        """Send a signal and wait: (exit status, the rest of stdout, stderr)."""
        self.process.send_signal(number)
        assert self.process.stdout is not None
        out = self.process.stdout.read()
        return self.process.wait(60), out, self._stderr.read_text()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=60)
