"""Where the data stand after a restart: behind the weights, ahead of them, or where they should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .batches import ReplayFinding
from .inputs import RunView
from .order import CONFIRM, OrderFinding
from .rows import RowFinding, RowReturn
from .same_rows import Beside

Source = Literal["row fingerprints", "replay in the losses", "rows beside the reference", "order beside the reference"]

MIN_HITS = 5
STEADY = 0.8  # of the rows that came back lie at one distance
BACK = 0.5  # of the readings in the stretch that comes back are returned rows
ENOUGH = 30  # sampled readings behind a restart, none of which had been read: not behind


@dataclass(frozen=True, slots=True)
class Reading:
    """What one source says of the newest restart: the data are `behind` steps behind (negative: ahead, 0: in place).

    `now`: it still shows; `because` gives the numbers."""

    source: Source
    behind: int
    now: bool
    because: str


@dataclass(frozen=True, slots=True)
class Position:
    """All that is said of the newest restart (updates made); `not_behind`: rows show that nothing came back."""

    restart: int
    readings: list[Reading]
    not_behind: str = ""

    @property
    def off(self) -> list[Reading]:
        """What says that the position is wrong now."""
        return [r for r in self.readings if r.behind != 0 and r.now]

    @property
    def right(self) -> list[Reading]:
        """What says that it is right."""
        return [r for r in self.readings if r.behind == 0]


def find(
    view: RunView,
    rows: RowFinding | None,
    replays: ReplayFinding | None,
    ordered: OrderFinding,
    at_step: int,
    expected: Beside | None = None,
) -> Position | None:
    """What is known of the position since the newest restart; None where there was none."""
    starts = sorted({s.start_step for s in view.segments if s.start_step > 0})
    if len(view.segments) < 2 or not starts:
        return None
    restart = starts[-1]
    back = next((r for r in rows.returns if r.restart == restart), None) if rows is not None else None
    readings = [
        r for r in (
            _by_rows(back, at_step), _by_replay(replays, restart),
            _by_expected(expected) or _by_order(ordered, restart),
        ) if r is not None
    ]  # fmt: skip
    not_behind = ""
    if back is not None and back.readings >= ENOUGH and back.hits < MIN_HITS:
        not_behind = f"{back.returned} of {back.readings:,} sampled rows behind it had been read before"
    return Position(restart, readings, not_behind)


def _by_rows(back: RowReturn | None, at_step: int) -> Reading | None:
    if back is None or back.hits < MIN_HITS or back.hits < STEADY * back.returned:
        return None
    # Only `lag` steps hold rows that were read up to the restart; beyond them the data are new again.
    part = min(1.0, back.lag / max(at_step - back.restart, 1))
    if back.hits < BACK * part * back.readings:
        return None
    because = (
        f"{back.hits:,} of {back.readings:,} sampled rows behind it were read exactly {back.lag:,} steps before, the "
        f"first at step {back.first:,}"
    )
    return Reading("row fingerprints", back.lag, at_step <= back.restart + back.lag, because)


def _by_replay(found: ReplayFinding | None, restart: int) -> Reading | None:
    replays = [r for r in found.replays if r.restart == restart and not r.legal] if found is not None else []
    if not replays:
        return None
    last = replays[-1]
    because = (
        f"{last.metric} from step {last.start:,} on repeats that from step {last.source:,} on (correlation "
        f"{last.match.r:.3f} over {last.match.n} points)"
    )
    return Reading("replay in the losses", last.lag, last.end is None, because)


def _by_expected(found: Beside | None) -> Reading | None:
    """By the rows that the reference read; they are those since the newest start."""
    if found is None or found.looked < MIN_HITS or found.steady < STEADY:
        return None
    place = f"{found.steady:.0%} of {found.looked:,} sampled rows since step {found.look_from:,} are what it read "
    side = "later" if found.shift > 0 else "earlier"
    because = place + (f"{abs(found.shift):,} steps {side}" if found.shift else "at the same steps")
    return Reading("rows beside the reference", -found.shift, True, because)


def _by_order(found: OrderFinding, restart: int) -> Reading | None:
    if not found.stretches or found.stretches[-1].last <= restart:
        return None
    newest = found.stretches[-1]
    shown = f"residuals correlate by {newest.r:.3f} over {newest.n:,} steps"
    if found.answer == "same" and newest.last - restart >= CONFIRM:
        return Reading("order beside the reference", 0, True, f"it reads the reference's batches step by step: {shown}")
    if found.shift and found.match is not None:
        side = "later" if found.shift > 0 else "earlier"
        away = f"it reads what the reference read {abs(found.shift):,} steps {side}"
        because = f"{away} (correlation {found.match.r:.3f} over {found.match.n} steps)"
        return Reading("order beside the reference", -found.shift, True, because)
    return None
