"""A few answers awaited at once, taken in the order they were asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

AT_ONCE = 4  # few enough for a public service, and for memory: so many answers are held

Given = TypeVar("Given")
Got = TypeVar("Got")


def side_by_side(
    call: Callable[[Given], Got], given: Iterable[Given], stop: Callable[[], None], at_once: int = AT_ONCE
) -> Iterator[tuple[Given, Got]]:
    """(one, call(one)) for each of `given`, in order; at most `at_once` calls run or wait to be taken.

    Where one fails, or the taking ends early, `stop` is called, the others end, and the failure is raised.
    """
    waiting: deque[tuple[Given, Future[Got]]] = deque()
    pool = ThreadPoolExecutor(at_once)
    try:
        for one in given:
            waiting.append((one, pool.submit(call, one)))
            if len(waiting) >= at_once:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    except BaseException:
        stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
