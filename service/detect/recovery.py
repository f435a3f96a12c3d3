"""What now: the last checkpoint before a fault began, and what a restart from it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights that were saved after `step` updates and `tokens`; `where` as the trainer said; `at` in unix seconds."""

    step: int
    tokens: float | None = None
    where: str = ""
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the run trains: seconds a step, and what that was measured on."""

    seconds_per_step: float
    source: str


@dataclass(frozen=True, slots=True)
class Cost:
    """What is done again after a restart: updates, tokens (None: not known), hours of the run's own pace."""

    steps: int
    tokens: float | None
    hours: float | None
    hours_source: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """Where to go back to after a fault that began within `since_step` (earliest, latest first wrong update).

    `clean` is the newest checkpoint that surely holds no wrong update; `unsure` may hold some, ascending; `affected`
    counts those that surely do. `cost` is that of a restart from `clean`. `summary` is one or two sentences."""

    since_step: tuple[int, int]
    clean: Checkpoint | None
    unsure: tuple[Checkpoint, ...]
    affected: int
    cost: Cost | None
    summary: str


def recovery(
    since_step: tuple[int, int], checkpoints: Sequence[Checkpoint], newest: Checkpoint, pace: Pace | None
) -> Recovery:
    """Sort live checkpoints by the onset of a fault; `newest` is where the run is now.

    The weights of step S hold the updates 1 … S: they are surely clean where S lies before the earliest update that may
    be wrong, and surely affected from the latest on."""
    low, high = since_step
    known = sorted({c.step: c for c in checkpoints if c.step <= newest.step}.values(), key=lambda c: c.step)
    before = [c for c in known if c.step < low]
    unsure = tuple(c for c in known if low <= c.step < high)
    affected = sum(c.step >= high for c in known)
    clean = before[-1] if before else None
    cost = _cost(clean, newest, pace) if clean is not None else None
    return Recovery(since_step, clean, unsure, affected, cost, _words(since_step, known, clean, unsure, cost))


def _cost(clean: Checkpoint, newest: Checkpoint, pace: Pace | None) -> Cost:
    steps = newest.step - clean.step
    tokens = None if newest.tokens is None or clean.tokens is None else newest.tokens - clean.tokens
    hours = None if pace is None else steps * pace.seconds_per_step / 3600.0
    return Cost(steps, tokens, hours, pace.source if pace else "the run's pace is not known")


def _words(
    since: tuple[int, int],
    known: Sequence[Checkpoint],
    clean: Checkpoint | None,
    unsure: Sequence[Checkpoint],
    cost: Cost | None,
) -> str:
    began = f"step {since[0]:,}" if since[0] == since[1] else f"step {since[0]:,} to {since[1]:,}"
    if not known:
        return "No live checkpoint was reported, so none can be named; send them with run.event(step, 'checkpoint', …)."
    also = ""
    if unsure:
        also = f" It cannot be told whether {_steps(unsure)} {'is' if len(unsure) == 1 else 'are'} clean."
    if clean is None or cost is None:
        return f"No reported checkpoint is surely from before the onset ({began}).{also}"
    price = [f"{cost.steps:,} steps"]
    if cost.tokens is not None:
        price.append(f"{cost.tokens:,.0f} tokens")
    if cost.hours is not None:
        price.append(f"{cost.hours:,.1f} h" if cost.hours >= 1.0 else f"{60.0 * cost.hours:,.1f} min")
    where = f" ({clean.where})" if clean.where else ""
    return (
        f"The last checkpoint that is surely clean is step {clean.step:,}{where}; a restart from it does "
        f"{', '.join(price)} again.{also}"
    )


def _steps(checkpoints: Sequence[Checkpoint]) -> str:
    shown = [f"{c.step:,}" for c in checkpoints[-3:]]
    more = len(checkpoints) - len(shown)
    return ("step " if len(checkpoints) == 1 else "steps ") + ", ".join(shown) + (f" and {more:,} more" if more else "")
