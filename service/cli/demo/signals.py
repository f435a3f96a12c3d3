"""What asks the demo to end, heard once: a second Ctrl-C must not keep it from ending its children."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # SIGHUP: the terminal was closed


def end_on_signals() -> None:
    """Raise KeyboardInterrupt at the first of these signals; hear none that follow."""
    _answer_with(_interrupt)


def hear_no_signals() -> None:
    """Let nothing interrupt what follows."""
    _answer_with(_pass_over)


def _answer_with(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # what the caller had us ignore (nohup) stays ignored
            signal.signal(number, handler)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    hear_no_signals()
    raise KeyboardInterrupt


def _pass_over(_signal: int, _frame: FrameType | None) -> None:
    """Unlike SIG_IGN, good for signals too that are under way already: Python would complain about those."""
