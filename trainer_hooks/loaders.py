"""What a run offers to data loaders: wrap them, and look for held-out text in what they hand out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from trainer_hooks.heldout_windows import windows_of
from trainer_hooks.pipeline import Pipeline
from trainer_hooks.segment import NAME_BYTES
from trainer_hooks.wrapping import Rows, wrap


class ReadsRows(ABC):
    """The part of a `trainer_hooks.Run` that has to do with loaders."""

    _pipeline: Pipeline | None
    _start_step: int

    @abstractmethod
    def log_rows(self, step: Any, rows: Any, host: int | None = None) -> None:
        """See `Run`."""

    @abstractmethod
    def refuse(self, call: str, error: Exception) -> None:
        """See `Run`."""

    def wrap(
        self,
        source: Any,
        rows: Rows = "inputs",
        *,
        host: int | None = None,
        step: int | None = None,
        batches_per_step: int = 1,
        ahead: int = 0,
    ) -> Any:
        """`source`, a Grain loader or iterator or any other of batches, that calls `log_rows` for what it hands out.

        The k-th batch counts as read at the k-th step after the start (`step`: that of the first batch, by default
        `start_step` + 1; `batches_per_step` with gradient accumulation), however early it was pulled. So wrap the
        outermost iterator on the host, behind filters and packing. What a loop has pulled and never trained on counts
        too, unless `ahead` says how many batches it pulls ahead: these are told when they are left behind. `rows`: the
        batch's key, or a function of the batch, that gives int (batch, length). Never raises; what it cannot wrap it
        gives back.
        """
        try:
            first = self._start_step + 1 if step is None else step
            return wrap(self, source, rows, host, first, batches_per_step, ahead)
        except Exception as error:
            self.refuse("wrap", error)
            return source

    def watch_heldout(self, name: str, batches: Any) -> None:
        """Looks for the text of a held-out set in all rows from now on: call it on every process, before training.

        `batches`: token arrays, {"tokens", "mask"} mappings, an iterable of them, a function that gives one, or a
        `trainer_hooks.evals.HeldOut`. Some 0.1 s for a million tokens, on the calling thread.
        """
        try:
            if not name or len(name.encode()) > NAME_BYTES or "\0" in name:
                raise ValueError(f"a held-out set needs a name of at most 256 bytes without NUL, not {name!r:.60}")
            if self._pipeline is None:
                return
            numbers = windows_of(batches)
            if not len(numbers):
                raise ValueError(f"{name} has no window of 32 tokens to look for")
            self._pipeline.writer.heldout.add(name, numbers)
        except Exception as error:
            self.refuse("watch_heldout", error)
