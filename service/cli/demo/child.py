"""Runs a module as a program that ends when the process that started it is gone, whatever ended that process.

`python -m service.cli.demo.child MODULE ARGUMENT…`, with stdin a pipe that the parent holds open and never writes to.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

LAST_SECONDS = 5.0  # to end in order


def main() -> None:
    """Take the module's name off the command line and run it as `__main__`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts us in the background ignores it
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with_parent() -> None:
    while os.read(0, 1):  # nothing at all once the parent is gone
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(LAST_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
