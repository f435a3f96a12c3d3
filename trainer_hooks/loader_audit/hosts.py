"""Makes one process answer as any host of a job: to loaders that are told, and to those that ask jax themselves."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True)
class Host:
    """One simulated host of a job, and how many worker processes its loader shall have."""

    index: int
    count: int
    workers: int = 0

    def __str__(self) -> str:
        return f"host {self.index} of {self.count}"


class Simulation:
    """Which host this process plays; None: itself. For all threads at once, since loaders prefetch in their own."""

    def __init__(self) -> None:
        self.host: Host | None = None

    @contextlib.contextmanager
    def playing(self, host: Host) -> Generator[None]:
        """Within it, `jax.process_index()` and `jax.process_count()` are those of `host`."""
        before, self.host = self.host, host
        try:
            yield
        finally:
            self.host = before


@contextlib.contextmanager
def simulated_hosts() -> Generator[Simulation]:
    """Replaces jax's two functions wherever a module holds them, and puts them back.

    jax is imported if it is installed: a loader that imports it later would ask the real one. What a spawned worker
    process asks is not seen here. Flags of absl are marked as parsed meanwhile, as Grain's worker processes ask for.
    """
    simulation = Simulation()
    with contextlib.ExitStack() as undo:
        if importlib.util.find_spec("jax") is not None:
            jax = importlib.import_module("jax")
            own = {name: getattr(jax, name) for name in _ANSWERS}
            pairs = [(own[name], _stand_in(simulation, own[name], answer)) for name, answer in _ANSWERS.items()]
            undo.callback(_replace, {id(new): old for old, new in pairs})  # also where it was imported meanwhile
            _replace({id(old): new for old, new in pairs})
        flags = getattr(sys.modules.get("absl.flags") or _imported("absl.flags"), "FLAGS", None)
        if flags is not None and not flags.is_parsed():
            flags.mark_as_parsed()
            undo.callback(flags.unparse_flags)
        yield simulation


def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_ANSWERS: dict[str, Callable[[Host], int]] = {
    "process_index": lambda host: host.index,
    "process_count": lambda host: host.count,
}


def _stand_in(
    simulation: Simulation, original: Callable[..., int], answer: Callable[[Host], int]
) -> Callable[..., int]:
    def asked(*arguments: Any, **named: Any) -> int:
        host = simulation.host
        return original(*arguments, **named) if host is None else answer(host)

    return asked


def _replace(by_id: dict[int, object]) -> None:
    """Every name of any loaded module that stands for one of these objects stands for another."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        for name in [name for name, value in list(names.items()) if id(value) in by_id]:
            setattr(module, name, by_id[id(names[name])])


class Factory:
    """A loader factory and which of the arguments that `audit` can give it takes."""

    def __init__(self, make_loader: Callable[..., Any]) -> None:
        if not callable(make_loader):
            raise TypeError(f"make_loader must be a function that makes a loader, not {make_loader!r:.60}")
        self._make = make_loader
        try:
            parameters = inspect.signature(make_loader).parameters.values()
        except (TypeError, ValueError) as error:
            raise TypeError(f"the arguments of {make_loader!r:.60} cannot be read; wrap it in a function") from error
        everything = any(p.kind is p.VAR_KEYWORD for p in parameters)
        by_name = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        wanted = ("process_index", "process_count", "worker_count", "start_step")
        self.takes = set(wanted) if everything else by_name & set(wanted)
        needed = [
            p.name
            for p in parameters
            if p.default is p.empty
            and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
            and (p.name not in wanted or p.kind is p.POSITIONAL_ONLY)
        ]
        if needed:
            raise TypeError(
                f"make_loader needs {', '.join(needed)}, which an audit does not know: it gives process_index, "
                "process_count, worker_count and start_step by name, where the factory takes them"
            )

    @property
    def takes_workers(self) -> bool:
        """Whether it can be told how many workers to use."""
        return "worker_count" in self.takes

    @property
    def takes_step(self) -> bool:
        """Whether it can be told at which step to begin."""
        return "start_step" in self.takes

    def make(self, host: Host, start_step: int = 0) -> Any:
        """The loader of `host`. Raises what the factory raises."""
        known = {
            "process_index": host.index,
            "process_count": host.count,
            "worker_count": host.workers,
            "start_step": start_step,
        }
        return self._make(**{name: value for name, value in known.items() if name in self.takes})
