"""What all adapters share: a run that is opened once it is known where it starts, and methods that never raise."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

import trainer_hooks
from trainer_hooks.names import NameMap, load

LOG = logging.getLogger("trainer_hooks")
MAX_HELD = 100  # calls that wait for the segment to be opened
_said: set[str] = set()


def harmless(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, but an exception in it is said once and ends here."""

    @functools.wraps(call)
    def guarded(*arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        except Exception as error:
            where = f"{call.__module__}.{call.__qualname__}"
            if where not in _said:
                _said.add(where)
                LOG.warning("pacenote: %s failed, training goes on: %s: %s", where, type(error).__name__, error)
            return None

    return guarded


def around(
    owner: Any, method: str, before: Callable[..., Any] | None = None, after: Callable[..., Any] | None = None
) -> None:
    """Replaces a method of a class, or a function of a module, by itself with `before` and `after`.

    Both get its arguments and are harmless; `after` is left out where it raises. One that this version of the trainer
    lacks is named in a warning.
    """
    original = getattr(owner, method, None)
    if original is None:
        where = f"{getattr(owner, '__module__', '')}.{owner.__name__}".lstrip(".")  # a module has no module
        LOG.warning("pacenote: %s has no %s: part of the run is not recorded", where, method)
        return
    first, last = (call and harmless(call) for call in (before, after))

    @functools.wraps(original)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        if first is not None:
            first(*arguments, **named)
        result = original(*arguments, **named)
        if last is not None:
            last(*arguments, **named)
        return result

    setattr(owner, method, wrapped)


def scalars(values: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """The numbers of `values`, nested mappings joined with slashes; texts, images and histograms are left out."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}" if prefix else key
        if type(value) is float:  # most are; the rest of the order goes by what asking costs
            found[name] = value
        elif hasattr(value, "dtype"):
            if value.size == 1:
                found[name] = value
        elif isinstance(value, (int, float)):
            found[name] = value
        elif isinstance(value, Mapping):
            found |= scalars(cast("Mapping[Any, Any]", value), f"{name}/")
    return found


class Attached:
    """The run of one trainer, in the trainer's own names and steps.

    `arguments` are those of `trainer_hooks.start`, with `name`; what the adapter finds out itself fills in what is not
    given. Where the trainer does not say at which step it starts, and `start_step` is not given, the segment is opened
    by the first call that brings a metric of the name map: what writers say before (a count of parameters, at step 0)
    says nothing of where a restart begins. Until then up to 100 calls wait.
    """

    def __init__(self, names: str, arguments: Mapping[str, Any], shift: int = 0, **parameters: float) -> None:
        self.names: NameMap = load(names).given(**parameters)
        self._shifts = (self.names.shift + shift, self.names.eval_shift + shift)
        self.arguments = dict(arguments)
        self.run: Any = None
        self.start_step = 0  # as the trainer found it
        self.ended = False
        self._held: list[tuple[str, Any, tuple[Any, ...], bool]] = []

    def open(self, **found: Any) -> None:
        """Starts the segment, once; `found` is overruled by what the user gave."""
        if self.run is None and not self.ended:
            given: dict[str, Any] = {**found, "names": self.names, **self.arguments}
            self.start_step = found.get("start_step", given.get("start_step", 0))
            self.run = trainer_hooks.start(given.pop("name", "run"), **given)
            held, self._held = self._held, []
            for method, step, arguments, since_start in held:
                self.call(method, step, *arguments, since_start=since_start)

    @harmless
    def log(self, step: int, values: Mapping[str, Any], evaluation: bool = False) -> None:
        """Records metrics under the trainer's names at the trainer's step."""
        numbers = scalars(values)
        shift = self._shifts[evaluation]
        updates = step + shift if shift else step  # a step on a device must not begin a computation there
        if self.run is None and ("start_step" in self.arguments or self.names.knows(numbers)):
            self.open(start_step=max(0, int(updates) - (not evaluation)))
        if self.run is not None:
            self.run.log(updates, numbers)
        else:
            self.call("log", updates, numbers)

    @harmless
    def call(self, method: str, step: Any, *arguments: Any, since_start: bool = False) -> None:
        """Calls `method` of the run at `step`, or at so many updates since the start, once there is a run."""
        if self.run is not None:
            getattr(self.run, method)(self.start_step + step if since_start else step, *arguments)
        elif len(self._held) < MAX_HELD and not self.ended:
            self._held.append((method, step, arguments, since_start))

    @harmless
    def finish(self, failed: bool = False) -> None:
        """Ends the segment, for good: what comes late opens no other. One that failed is only delivered."""
        run, self.run, self.ended = self.run, None, True
        if run is not None:
            run.__exit__(Exception if failed else None, None, None)


_shared: dict[tuple[Any, ...], Attached] = {}


def shared(names: str, arguments: Mapping[str, Any], **parameters: float) -> Attached:
    """The one of this process for a run, where a trainer's writer and its evaluators' feed one; new after its end."""
    key = (names, *(arguments.get(field) for field in ("name", "project", "stage")))
    if key not in _shared or _shared[key].ended:
        _shared[key] = Attached(names, arguments, 0, **parameters)
    return _shared[key]
