"""What held-out losses and tasks have in common: when they run, and that nothing of them reaches the training loop."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

from trainer_hooks.evals.vote import vote
from trainer_hooks.tally import LOG, text_of
from trainer_hooks.values import as_step, is_device_array

Result = TypeVar("Result")


class EvaluatedRun(Protocol):
    """The part of a `trainer_hooks.Run` that an evaluation calls."""

    def log(
        self,
        step: Any,
        metrics: Mapping[str, Any],
        tokens: Any = None,
        weights_segment: str | None = None,
        eval_sets: Mapping[str, str] | None = None,
    ) -> None: ...

    def log_items(self, step: Any, task: str, correct: Any) -> None: ...

    def event(self, step: Any, kind: str, value: Any = None) -> None: ...


class Report:
    """What one evaluation says at one step, put together before any of it is logged."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.eval_sets: dict[str, str] = {}
        self.items: dict[str, Any] = {}


class Evaluation(ABC, Generic[Result]):
    """One evaluation that runs every so many steps.

    Call it at every step on every process, on the thread that trains. What can go wrong on one process alone (its data
    at construction, its compilation) is found before the vote, and skips the evaluation on all. After the vote there is
    nothing but running compiled programs; a process that fails there all the same (a device out of memory) can still
    leave the others waiting, as in a training step.
    """

    name: str
    eval_set_id: str = ""

    def __init__(self, name: str, every: int | Collection[int], strict: bool) -> None:
        if not name or "/" in name:
            raise ValueError(f"an evaluation needs a name without slashes, not {name!r:.60}")
        if isinstance(every, int):
            if every < 1:
                raise ValueError(f"every must be a number of steps ≥ 1 or a collection of steps, not {every}")
            self._every, self._steps = every, None
        else:
            self._every, self._steps = 0, frozenset(as_step(step) for step in every)
        self.name = name
        self.fault = ""
        self._strict = strict

    def due(self, step: int) -> bool:
        """Whether an evaluation of the weights after `step` updates was asked for."""
        return step in self._steps if self._steps is not None else step > 0 and step % self._every == 0

    def __call__(
        self,
        run: EvaluatedRun,
        step: Any,
        weights: Any,
        *,
        force: bool = False,
        tokens: Any = None,
        weights_segment: str | None = None,
    ) -> Result | None:
        """Evaluates `weights` (any pytree) after `step` updates if it is due or `force`d, and reports to `run`.

        Waits for the devices; for a `step` that is a device array at every call, so give a number. `tokens` and
        `weights_segment` are handed on to `run.log`. Never raises (unless `strict`): what goes wrong is logged, sent as
        a note of the run, and None is returned. A value that is not finite is a result.
        """
        try:
            number = _updates(step)
        except Exception as error:
            return self._refuse(run, 0, "skipped", text_of(error), error)
        if not force and not self.due(number):
            return None
        began = time.perf_counter()
        fault: Exception | None = None
        reason = self.fault
        if not reason:
            try:
                self._prepare(weights)
            except Exception as error:
                reason, fault = text_of(error), error
        try:
            against = vote(reason, self._identity())
        except Exception as error:
            against, fault = f"the vote failed: {text_of(error)}", error
        if against:
            return self._refuse(run, number, "skipped", against, fault)
        try:
            report = Report()
            result = self._measure(weights, report)
            report.metrics[f"throughput/evaluation_seconds/{self.name}"] = time.perf_counter() - began
            run.log(number, report.metrics, tokens, weights_segment, report.eval_sets)
            for task, correct in report.items.items():
                run.log_items(number, task, correct)
            return result
        except Exception as error:
            return self._refuse(run, number, "failed", text_of(error), error)

    def _load(self, load: Callable[[], None]) -> None:
        """Runs what may fail on one process alone; keeps the reason for the vote."""
        try:
            load()
        except Exception as error:
            if self._strict:
                raise
            self.fault = text_of(error)
            LOG.warning("pacenote: evaluation %s cannot run: %s", self.name, self.fault)

    def _refuse(self, run: EvaluatedRun, step: int, what: str, reason: str, error: Exception | None) -> None:
        if self._strict:
            raise RuntimeError(f"evaluation {self.name} at step {step} {what}: {reason}") from error
        LOG.warning("pacenote: evaluation %s at step %d %s: %s", self.name, step, what, reason)
        try:
            run.event(step, "note", {"evaluation": self.name, what: reason})
        except Exception as again:
            LOG.warning("pacenote: evaluation %s could not be noted: %s", self.name, text_of(again))

    @abstractmethod
    def _identity(self) -> str:
        """What all processes have to agree on: the set and the shapes of its batches."""

    @abstractmethod
    def _prepare(self, weights: Any) -> None:
        """Whatever can fail on one process alone: shapes, compilation. No collective."""

    @abstractmethod
    def _measure(self, weights: Any, report: Report) -> Result:
        """The evaluation itself, the same on all processes."""


def _updates(step: Any) -> int:
    """`step` as a number. One that a device still computes (`state.step`) is waited for: it may be ready on one process
    and not on another, and then only some of them would vote."""
    if is_device_array(step):
        step.block_until_ready()
    return as_step(step)


def callable_or(value: Any) -> Any:
    """`value()` where it is a function, else `value`: lets the data be loaded where a failure is caught."""
    return cast("Callable[[], Any]", value)() if callable(value) else value
