"""Memory of a process that lives long and has many threads."""

from __future__ import annotations

import ctypes
import os

M_ARENA_MAX = -8  # of glibc's malloc.h
ARENAS = 2


def share_arenas() -> bool:
    """Let all threads allocate from a few arenas, before the first thread is started. Whether that is so.

    glibc gives nearly every thread its own, and none gives back what its busiest moment took: with the threads that
    judge and deliver a process would grow by a quarter. Not where there is another C library, or where MALLOC_ARENA_MAX
    says how many there are to be."""
    if "MALLOC_ARENA_MAX" in os.environ:
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS))
    except (OSError, AttributeError):
        return False
