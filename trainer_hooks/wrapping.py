"""`Run.wrap`: a loader that tells which rows it handed out, at the step at which they are trained on."""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, cast

import numpy as np

from trainer_hooks.fingerprints import snapshot
from trainer_hooks.values import is_device_array

Rows = str | Callable[[Any], Any]
REMEMBERED_STATES = 256  # of `get_state`, by digest


class RowsRun(Protocol):
    """The part of a `trainer_hooks.Run` that a wrapped loader calls."""

    def log_rows(self, step: Any, rows: Any, host: int | None = None) -> None: ...

    def refuse(self, call: str, error: Exception) -> None: ...


class _Count:
    """Batches handed out, shared by a loader and its iterators; the next one is number `batches` from 0."""

    def __init__(self, first: int, per_step: int) -> None:
        self.first, self.per_step, self.batches = first, per_step, 0

    def step(self) -> int:
        """The step of the next batch."""
        return self.first + self.batches // self.per_step


class Wrapped:
    """Hands on everything of `source`, a loader or an iterator, and reports the rows of each batch that passes.

    Anything it does not have itself (Grain's `get_state`, an epoch to be set) is the source's, and it passes for an
    instance of the source's class, so that checkpoint handlers take it. Where reporting fails, the batch passes all the
    same, and the failure is counted.
    """

    def __init__(
        self, run: RowsRun, source: Any, rows: Rows, host: int | None, ahead: int, count: _Count,
        states: OrderedDict[bytes, int] | None = None,
    ) -> None:  # fmt: skip
        self._pacenote = (run, rows, host, ahead, count)
        self._source = source
        self._held: deque[tuple[int, Any]] = deque()
        self._pieces: list[tuple[int, Any]] = []  # of the step that is not complete yet
        self._states = states if states is not None else OrderedDict[bytes, int]()

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self._source, "__next__"):
            return self
        run, rows, host, ahead, count = self._pacenote
        return make(run, iter(cast("Iterable[Any]", self._source)), rows, host, ahead, count, self._states)

    def __next__(self) -> Any:
        try:
            batch = next(self._source)
        except StopIteration:
            self._end()
            raise
        self._take(batch)
        return batch

    @property
    def step(self) -> int:
        """The step at which the next batch is trained on. Set it after a rewind that this object cannot know of."""
        return self._pacenote[4].step()

    @step.setter
    def step(self, value: int) -> None:
        count = self._pacenote[4]
        count.first, count.batches = int(value), 0
        self._forget()

    @property
    def unwrapped(self) -> Any:
        """The source."""
        return self._source

    def get_state(self, *arguments: Any, **named: Any) -> Any:
        """The source's; its place in the count of steps is remembered with it."""
        state = self._source.get_state(*arguments, **named)
        try:
            self._states[_digest(state)] = self._pacenote[4].batches
            while len(self._states) > REMEMBERED_STATES:
                self._states.popitem(last=False)
        except Exception as error:
            self._pacenote[0].refuse("wrap", error)
        return state

    def set_state(self, state: Any, *arguments: Any, **named: Any) -> Any:
        """The source's. A state that was taken here puts the count of steps back to where it was then."""
        answer = self._source.set_state(state, *arguments, **named)
        try:
            count, place = self._pacenote[4], self._states.get(_digest(state))
            self._forget()
            if place is not None:
                count.batches = place
            elif count.batches:
                raise ValueError("a loader was set to a state of another process after its first batch; set its `step`")
        except Exception as error:
            self._pacenote[0].refuse("wrap", error)
        return answer

    def __getattr__(self, name: str) -> Any:
        if name == "_source":  # not built yet
            raise AttributeError(name)
        return getattr(self._source, name)

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._source.__class__

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise TypeError("the class of a wrapped loader is its source's")

    def __repr__(self) -> str:
        return f"<wrapped {self._source!r}>"

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        run, rows, host, ahead, count = self._pacenote
        return make, (run, self._source, rows, host, ahead, count, self._states)

    def _take(self, batch: Any) -> None:
        run, rows, _, ahead, count = self._pacenote
        try:
            step = count.step()
            count.batches += 1
            found = _rows_of(batch, rows)
            if (ahead or count.per_step > 1) and not is_device_array(found):
                found = snapshot(found)  # a loader may use its memory again
            self._held.append((step, found))
            self._report(through=ahead)
        except Exception as error:
            run.refuse("wrap", error)

    def _report(self, through: int) -> None:
        """Tells what is held but for the `through` batches pulled last. A step's batches are told at once: of two
        records that say how many rows a step had, the service takes the larger number, not the sum."""
        per_step = self._pacenote[4].per_step
        while len(self._held) > through:
            step, rows = self._held.popleft()
            if self._pieces and self._pieces[0][0] != step:
                self._tell()
            self._pieces.append((step, rows))
            if len(self._pieces) == per_step:
                self._tell()

    def _tell(self) -> None:
        run, _, host, _, _ = self._pacenote
        pieces, self._pieces = self._pieces, []
        batches = [rows for _, rows in pieces]
        if len({getattr(rows, "shape", (0, 0))[1:] for rows in batches}) == 1 and len(batches) > 1:
            batches = [np.concatenate(batches)]
        for rows in batches:
            run.log_rows(pieces[0][0], rows, host)

    def _end(self) -> None:
        """The source has ended: nothing is pulled ahead any more, what is held is trained on."""
        try:
            self._report(through=0)
            if self._pieces:
                self._tell()
        except Exception as error:
            self._pacenote[0].refuse("wrap", error)

    def _forget(self) -> None:
        """What is held is not trained on: the loader went elsewhere."""
        self._held.clear()
        self._pieces.clear()


class _Sized(Wrapped):
    """A source that has a length."""

    def __len__(self) -> int:
        return len(self._source)


def make(
    run: RowsRun, source: Any, rows: Rows, host: int | None, ahead: int, count: _Count,
    states: OrderedDict[bytes, int] | None = None,
) -> Wrapped:  # fmt: skip
    """`source`, wrapped; with a length where it has one."""
    return (_Sized if hasattr(source, "__len__") else Wrapped)(run, source, rows, host, ahead, count, states)


def wrap(
    run: RowsRun, source: Any, rows: Rows, host: int | None, first: int, batches_per_step: int, ahead: int
) -> Wrapped:
    """See `Run.wrap`. Raises ValueError for a bad argument."""
    if batches_per_step < 1 or ahead < 0 or first < 0:
        raise ValueError(f"wrap needs batches_per_step ≥ 1, ahead ≥ 0, step ≥ 0: {batches_per_step}, {ahead}, {first}")
    return make(run, source, rows, host, int(ahead), _Count(int(first), int(batches_per_step)))


def _rows_of(batch: Any, rows: Rows) -> Any:
    if callable(rows):
        return rows(batch)
    if hasattr(batch, "ndim"):
        return batch
    if isinstance(batch, Mapping):
        fields = cast("Mapping[str, Any]", batch)
        if rows not in fields:
            raise KeyError(f"a batch has no {rows!r}, only {', '.join(map(str, fields))}; name its tokens by rows=…")
        return fields[rows]
    return getattr(batch, rows)


def _digest(state: Any) -> bytes:
    return hashlib.blake2b(repr(state).encode("utf-8", "replace"), digest_size=16).digest()
