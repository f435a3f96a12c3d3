"""What the rules share about one view, computed once and only when asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np

from . import (
    batches,
    gaps,
    heldout,
    heldout_pairs,
    heldout_text,
    knots,
    order,
    position,
    repeated_text,
    rows,
    same_rows,
)
from .heldout_gap import HeldoutGap, heldout_gap
from .inputs import Floats, Ints, RunView
from .judgement import Evidence, Judgement
from .pair_drift import PairedDrift, paired_drift
from .visible import VisibleHere, visible_here

TRAIN = "train/ce_loss"


class Findings:
    """Lazily computed analyses of one view. `cache` may be shared between views with the same reference objects."""

    WITHOUT_ROWS = (
        "_measured", "train", "reference_moved", "gap_now", "visible", "order", "paired", "heldout", "heldout_gap",
    )  # fmt: skip

    def __init__(self, view: RunView, cache: gaps.LevelCache | None = None) -> None:
        self.view = view
        self.cache = cache or gaps.LevelCache()
        self._said: dict[Callable[[Findings], Judgement], Judgement] = {}

    def of_losses(self) -> dict[str, object]:
        """What was worked out so far that rests on no row, by name."""
        return {name: self.__dict__[name] for name in self.WITHOUT_ROWS if name in self.__dict__}

    def said(self, judge: Callable[[Findings], Judgement]) -> Judgement:
        """What a rule says of this view: rules ask one another, and each is asked once."""
        if judge not in self._said:
            self._said[judge] = judge(self)
        return self._said[judge]

    @cached_property
    def at_step(self) -> int:
        """The newest step anything is known about."""
        last = [int(s.steps[-1]) for s in self.view.metrics.values() if len(s)]
        if self.view.rows is not None and len(self.view.rows.seen_steps):
            last.append(int(self.view.rows.seen_steps[-1]))
        return max(last, default=0)

    @cached_property
    def train(self) -> gaps.TrainGap | None:
        """The train gap; a drift that the reference alone made by its own move is no episode of it."""
        found = self._measured
        if found is None or self.reference_moved is None:
            return found
        return replace(found, episodes=found.episodes[:-1])

    @cached_property
    def gap_now(self) -> tuple[float, float, float] | None:
        """`current_gap` of the train gap."""
        return current_gap(self.train)

    @cached_property
    def _measured(self) -> gaps.TrainGap | None:
        return gaps.train_gap(self.view, TRAIN, self.cache)

    @cached_property
    def reference_moved(self) -> knots.Moved | None:
        """The move of the reference itself that makes the gap, None where none does."""
        found, view = self._measured, self.view
        if found is None or found.open is None:
            return None
        return knots.moved_at(view.metrics[TRAIN], view.reference[TRAIN], found, view.recipe.knots)

    @cached_property
    def visible(self) -> VisibleHere | None:
        """The smallest gap that the reference can show where the run is now; None where it is too short to say."""
        return visible_here(self.view, self.train, TRAIN, self.cache)

    @cached_property
    def paired(self) -> PairedDrift | None:
        """The gap pair by pair, where the batches are the reference's; None where a declared deviation explains part of
        it, which pairs know nothing of."""
        if any(TRAIN in deviation.budgets for deviation in self.view.deviations):
            return None
        return paired_drift(self.view, self.order, self.cache)

    @cached_property
    def heldout(self) -> heldout.HeldoutFinding:
        found = heldout.find(self.view, self.train, TRAIN, self.cache)
        if found.answer != "cannot tell":
            return found
        return heldout_pairs.find(self.view, self.train, self.paired, self.cache) or found

    @cached_property
    def heldout_gap(self) -> HeldoutGap | None:
        return heldout_gap(self.view, self.train, self.cache)

    @cached_property
    def rows(self) -> rows.RowFinding | None:
        return rows.find(self.view, self.cache)

    @cached_property
    def text(self) -> rows.RowFinding | None:
        """Text that is read again, also in other rows."""
        return repeated_text.find(self.view, self.cache)

    @cached_property
    def same_rows(self) -> same_rows.Beside | None:
        """The run's rows beside those of the reference; None where one of them has no fingerprints."""
        return same_rows.find(self.view, self.cache)

    @cached_property
    def order(self) -> order.OrderFinding:
        return order.find(self.view, self.cache)

    @cached_property
    def replays(self) -> batches.ReplayFinding | None:
        return batches.find_replays(self.view, self.cache)

    @cached_property
    def position(self) -> position.Position | None:
        return position.find(self.view, self.rows, self.replays, self.order, self.at_step, self.same_rows)

    @cached_property
    def heldout_text(self) -> list[heldout_text.SetFinding]:
        return heldout_text.find(self.view)

    def tokens_at(self, step: int) -> float:
        """Tokens of the run at a step, by its train loss's own points; NaN where it has none."""
        series = self.view.metrics.get(TRAIN)
        if series is None or len(series) == 0:
            return float("nan")
        right = int(np.searchsorted(series.steps, step))
        near = slice(max(right - 1, 0), right + 1)
        steps: Ints = series.steps[near]
        tokens: Floats = series.tokens[near]
        return float(np.interp(step, steps, tokens))

    def evidence(self) -> list[Evidence]:
        """The five numbers every alert of curve and data carries."""
        return list(self._evidence)

    @cached_property
    def _evidence(self) -> tuple[Evidence, ...]:
        return (self._train_gap(), self.heldout.evidence(), *rows.evidence(self.rows))

    def _train_gap(self) -> Evidence:
        why = "run minus reference at equal tokens, newest blocks; beyond the tolerance it is a drift"
        now = self.gap_now
        if now is None:
            return Evidence("train gap", "cannot tell yet", "nats", why)
        value, low, high = now
        return Evidence("train gap", f"{value:+.4f} ({low:+.4f} … {high:+.4f})", "nats", why)


def drift_now(train: gaps.TrainGap) -> tuple[float, float, float]:
    """The newest gap with its interval, counted from the run's own offset where that is what it left."""
    now = current_gap(train)
    assert now is not None, "an open episode has blocks"
    moved = train.offset if left_own_offset(train) else None
    value, low, high = now
    return value - (moved or 0.0), low - (moved or 0.0), high - (moved or 0.0)


def left_own_offset(train: gaps.TrainGap) -> bool:
    """Whether the open drift shows only against the run's own offset: the gap itself is within the tolerance."""
    now, episode = current_gap(train), train.open
    if now is None or episode is None or not episode.from_own_offset:
        return False
    return (now[0] if episode.side == "above" else -now[0]) <= train.tolerance.value


def current_gap(train: gaps.TrainGap | None) -> tuple[float, float, float] | None:
    """Mean gap of the newest two blocks (of those since the onset, where a drift is open) with its 95 % interval."""
    if train is None or len(train.blocks) == 0:
        return None
    start = max(len(train.blocks) - 2, train.open.first if train.open else 0)
    mean, se = train.blocks.mean[start:], np.maximum(train.blocks.se[start:], 1e-9)
    weight = 1.0 / se**2
    value = float((mean * weight).sum() / weight.sum())
    # A local level's error is shared by neighbouring blocks: averaging them gains half of what it seems to.
    spread = float(np.sqrt(0.5 / weight.sum() + 0.5 * float(se.min()) ** 2))
    return value, value - 1.96 * spread, value + 1.96 * spread
