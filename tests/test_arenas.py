"""Memory of a process with many threads."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

# Threads that each hold 8 MiB in small pieces, and so the arena that it is in; what is printed is how many there are.
PROGRAM = """
import sys, threading
from service.arenas import share_arenas
if sys.argv[1] == "shared":
    assert share_arenas()
ready, end = threading.Barrier(13), threading.Event()
def hold():
    held = [bytes(1000 + i % 7) for i in range(8000)]
    ready.wait()
    end.wait()
threads = [threading.Thread(target=hold, daemon=True) for _ in range(12)]
for thread in threads:
    thread.start()
ready.wait()
import ctypes
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.parametrize(("how", "few"), [("shared", True), ("as usual", False)])
def test_threads_share_arenas(how: str, few: bool) -> None:
    if platform.libc_ver()[0] != "glibc":
        return  # nothing is shared, and nothing is needed
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        cwd=Path(__file__).parents[1],
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    arenas = ended.stderr.count("Arena ")
    assert arenas > 0
    assert (arenas <= 2) == few
