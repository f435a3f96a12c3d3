"""Reads the loader of one simulated host, and keeps 8 bytes of each row."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer_hooks.loader_audit.hosts import Factory, Host, Simulation
from trainer_hooks.loader_audit.keys import RowKeys

MOST_ROWS = 2**27  # that one host may yield; 1 GB of keys
FIRST_LOOK = 2**13  # rows after which, and again at each doubling, a loader is asked whether it only repeats itself
EMPTY_BATCHES = 1000  # in a row, after which a loader counts as one that never ends

Progress = Callable[[str], None]


class AuditError(ValueError):
    """What was asked for cannot be audited; the message is one line."""


class LoaderError(Exception):
    """A loader or its factory raised; the message says on which host."""


class Stream(NamedTuple):
    """What one host read.

    keys: uint64 (rows,), in order. sizes: rows of each batch, int64 (batches,), whole even where `keys` are cut.
    ended: the loader ended by itself. states: those that were asked for, by number of batches read.
    """

    keys: NDArray[np.uint64]
    sizes: NDArray[np.int64]
    ended: bool
    states: dict[int, Any]

    @property
    def batch(self) -> int:
        """Rows of a whole batch."""
        return int(self.sizes.max(initial=0))

    @property
    def steps(self) -> NDArray[np.int64]:
        """The batch that each row came in, int64 (rows,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)[: len(self.keys)]

    def rows_of(self, batches: int) -> int:
        """How many rows the first `batches` batches hold."""
        return int(self.sizes[:batches].sum())

    def first(self, rows: int) -> Stream:
        """The same, but only so many rows."""
        return self._replace(keys=self.keys[:rows])


class Reader:
    """Makes loaders and reads them, one after another."""

    def __init__(self, factory: Factory, row_keys: RowKeys, simulation: Simulation, progress: Progress | None) -> None:
        self.factory = factory
        self._keys = row_keys
        self._simulation = simulation
        self._progress = progress

    def read(
        self, host: Host, most: int | None, state: Any = None, start_step: int = 0, save_at: int | None = None
    ) -> Stream:
        """The rows of `host`: to the end of its loader, or the whole batches that hold the first `most`.

        `state`: put into its iterator first; `save_at`: a state is kept after so many batches.

        Raises:
            LoaderError: the factory or the loader raised, or a batch holds no rows.
            AuditError: it does not end, as far as its rows show (each came three times and more) or 2**27 rows may.
        """
        if self._progress is not None:
            self._progress(f"{host}, {host.workers} workers" if host.workers else str(host))
        iterator: Any = None
        try:
            with self._simulation.playing(host):
                iterator = iter(self.factory.make(host, start_step))
                if state is not None:
                    iterator.set_state(copy.deepcopy(state))
                return self._drain(iterator, most, save_at)
        except AuditError:
            raise
        except (Exception, SystemExit) as error:  # a loader that ends the process would end the audit, with its status
            text = " ".join(str(error).split())
            raise LoaderError(f"{host}: {type(error).__name__}: {text[:300]}") from error
        finally:
            close = getattr(iterator, "close", None)
            if callable(close):
                close()

    def _drain(self, iterator: Iterator[Any], most: int | None, save_at: int | None) -> Stream:
        keys, sizes, states = array("Q"), array("q"), dict[int, Any]()
        ended, empty, look = False, 0, FIRST_LOOK
        while most is None or len(keys) < most:
            if len(sizes) == save_at and hasattr(iterator, "get_state"):
                states[save_at] = copy.deepcopy(iterator.get_state())  # pyright: ignore
            try:
                batch = next(iterator)
            except StopIteration:
                ended = True
                break
            found = self._keys(batch)
            keys.frombytes(found.tobytes())
            sizes.append(len(found))
            empty = 0 if len(found) else empty + 1
            repeats = False
            if most is None and len(keys) >= look:
                look = 2 * len(keys)
                repeats = 3 * len(np.unique(np.array(keys, np.uint64))) <= len(keys)
            if repeats or len(keys) > MOST_ROWS or empty > EMPTY_BATCHES:
                raise AuditError(
                    f"the loader did not end after {len(keys):,} rows: give records=, the rows of one pass"
                )
        return Stream(np.array(keys, np.uint64), np.array(sizes, np.int64), ended, states)
