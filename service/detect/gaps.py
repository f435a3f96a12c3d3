"""The gap of one metric of a run to its reference, ready to be judged: blocks, tolerance in force, drift episodes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.compare.align import Aligned, Level, align, kind_of, level
from service.compare.gap import Blocks, block_gaps
from service.compare.noise import assumed_tolerance, default_window, sibling_tolerance, step_noise

from .inputs import Floats, Ints, RunView, Series, Tolerance
from .sequential import Episode, episodes

SD_PER_TOLERANCE = 3.75  # a healthy run's block means are taken to have this many sd inside the tolerance
ALARM = 4.0  # excess over the limit, in sd of a healthy block mean, that opens an episode
EARLY_SHARE = 0.03  # of the reference's tokens: there healthy runs wander up to three times as far
OFFSET_SPAN = (0.10, 0.25)  # of the reference's tokens: where a run's own settled offset is measured
OFFSET_BLOCKS = 4


@dataclass(slots=True)
class LevelCache:
    """Levels of a reference that stays the same while a run is judged again and again (replay, live)."""

    levels: dict[str, tuple[Series, Level]] = field(default_factory=dict[str, tuple[Series, Level]])

    def get(self, metric: str, reference: Series) -> Level:
        held = self.levels.get(metric)
        if held is None or held[0] is not reference:
            held = (reference, level(reference, kind_of(metric)))
            self.levels[metric] = held
        return held[1]


@dataclass(frozen=True, slots=True)
class DriftEpisode:
    """Blocks `first` (first beyond the limit), `alarm` and `end` (None: still open) of one drift; `before` is the last
    block that showed no drift (-1: none); `from_own_offset` tells the channel that found it."""

    side: str
    first: int
    alarm: int
    end: int | None
    before: int
    from_own_offset: bool


@dataclass(frozen=True, slots=True)
class TrainGap:
    """Block gaps of the train loss. `limit` (m,): what a block mean must exceed; `sd` (m,): of a healthy block mean;
    `offset`: the run's own settled gap, once known. `episodes` in order."""

    blocks: Blocks
    tolerance: Tolerance
    limit: Floats
    sd: Floats
    offset: float | None
    episodes: list[DriftEpisode]

    @property
    def open(self) -> DriftEpisode | None:
        """The episode that holds now."""
        return self.episodes[-1] if self.episodes and self.episodes[-1].end is None else None


def tolerance_of(view: RunView, metric: str, cache: LevelCache) -> Tolerance:
    """The tolerance in force: declared with the reference, else from sibling runs, else assumed."""
    declared = view.tolerances.get(metric)
    if declared is not None and np.isfinite(declared.value) and declared.value > 0.0:
        return declared
    reference = view.reference.get(metric)
    noise = step_noise(reference.values[len(reference) // 10 :]) if reference is not None else None
    length = int(reference.steps[-1] - reference.steps[0]) if reference is not None and len(reference) else None
    wander = assumed_tolerance(noise, length)
    change: float | None = None
    siblings = [s[metric] for s in view.siblings if metric in s and len(s[metric])]
    if siblings and reference is not None:
        window = wander.window_steps
        base = cache.get(metric, reference)
        early = _early_end(base)
        means: list[Floats] = []
        moved: list[Floats] = []
        for sibling in siblings:
            blocks = block_gaps(align(sibling, base), window)
            means.append(blocks.mean[blocks.last_tokens > early])
            measured, settled = _offset_spans(blocks, base.points)
            if len(measured) >= OFFSET_BLOCKS and len(settled):
                moved.append(blocks.mean[settled] - np.median(blocks.mean[measured]))
        if any(len(m) for m in means):
            wander = sibling_tolerance(means, window, noise)
        if moved:
            change = sibling_tolerance(moved, window, noise).value
    return Tolerance(wander.value, wander.source, wander.runs, wander.noise_sd, wander.window_steps, change)


def aligned(view: RunView, metric: str, cache: LevelCache) -> Aligned | None:
    """The metric beside the reference; None where either is missing or no point lies in the reference's range."""
    run, reference = view.metrics.get(metric), view.reference.get(metric)
    if run is None or reference is None or len(run) == 0 or len(reference) == 0:
        return None
    placed = align(run, cache.get(metric, reference))
    return placed if len(placed) else None


def train_gap(view: RunView, metric: str, cache: LevelCache) -> TrainGap | None:
    """Block gaps and drift episodes of a train metric; None where nothing can be compared."""
    placed = aligned(view, metric, cache)
    if placed is None:
        return None
    tolerance = tolerance_of(view, metric, cache)
    window = tolerance.window_steps or default_window(tolerance.noise_sd, tolerance.value, len(view.reference[metric]))
    blocks = block_gaps(placed, window)
    return judge_blocks(blocks, tolerance, cache.get(metric, view.reference[metric]).points)


def judge_blocks(blocks: Blocks, tolerance: Tolerance, reference_tokens: Floats) -> TrainGap:
    """Sequential test of block means against a tolerance. Causal: block i's answer depends on blocks 0…i only."""
    wander = tolerance.value / SD_PER_TOLERANCE
    # Sibling block means carry their step noise already; an assumed tolerance is about wander alone.
    sd = np.maximum(blocks.se, wander) if tolerance.runs else np.hypot(blocks.se, wander)
    limit = SD_PER_TOLERANCE * sd
    if len(blocks) and len(reference_tokens) > 1:
        span = reference_tokens[-1] - reference_tokens[0]
        place = (blocks.last_tokens - reference_tokens[0]) / span
        early = 1.0 + 2.0 * np.clip(1.0 - place / EARLY_SHARE, 0.0, 1.0)
        sd, limit = sd * early, limit * early
    measured, settled = _offset_spans(blocks, reference_tokens)
    offset: float | None = None
    found: list[DriftEpisode] = []
    for sign, side in ((-1.0, "below"), (1.0, "above")):
        found += _episodes(sign * blocks.mean, limit, sd, side, 0, from_own_offset=False)
    if len(measured) >= OFFSET_BLOCKS and len(settled):
        offset = float(np.median(blocks.mean[measured]))
        start = int(settled[0])
        for sign, side in ((-1.0, "below"), (1.0, "above")):
            moved = sign * (blocks.mean[start:] - offset)
            wide = 1.25 * sd[start:]  # the offset is itself measured
            if tolerance.change is not None:
                wide = np.maximum(blocks.se[start:], tolerance.change / SD_PER_TOLERANCE)
            found += _episodes(moved, SD_PER_TOLERANCE * wide, wide, side, start, from_own_offset=True)
    return TrainGap(blocks, tolerance, limit, sd, offset, _in_order(found))


def _episodes(
    gap: Floats, limit: Floats, sd: Floats, side: str, shift: int, *, from_own_offset: bool
) -> list[DriftEpisode]:
    if len(gap) == 0:
        return []
    found = episodes((gap - limit) / sd, ALARM)
    return [_described(episode, gap, sd, side, shift, own=from_own_offset) for episode in found]


def _described(episode: Episode, gap: Floats, sd: Floats, side: str, shift: int, *, own: bool) -> DriftEpisode:
    """An abrupt onset lies between neighbouring blocks; a gradual one began when the gap last was within one sd."""
    before = _last(gap[: episode.onset] <= SD_PER_TOLERANCE / 2.0 * sd[: episode.onset])
    if episode.onset - before > 2:
        before = _last(gap[: episode.onset] <= sd[: episode.onset])
    end = None if episode.end is None else episode.end + shift
    return DriftEpisode(side, episode.onset + shift, episode.alarm + shift, end, before + shift, own)


def _last(holds: NDArray[np.bool_]) -> int:
    where = np.flatnonzero(holds)
    return int(where[-1]) if len(where) else -1


def _in_order(found: list[DriftEpisode]) -> list[DriftEpisode]:
    """Closed ones first, then the open one that began first; against the reference before against the own offset."""
    still = [e for e in found if e.end is None]
    closed = sorted((e for e in found if e.end is not None), key=lambda e: e.alarm)
    still.sort(key=lambda e: (e.from_own_offset, e.alarm))
    return closed + still[:1]


def _offset_spans(blocks: Blocks, reference_tokens: Floats) -> tuple[Ints, Ints]:
    """Indices of the blocks that give the run's own offset, and of those after them."""
    if len(blocks) == 0 or len(reference_tokens) < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    place = (blocks.last_tokens - reference_tokens[0]) / (reference_tokens[-1] - reference_tokens[0])
    return np.flatnonzero((place >= OFFSET_SPAN[0]) & (place <= OFFSET_SPAN[1])), np.flatnonzero(place > OFFSET_SPAN[1])


def _early_end(base: Level) -> float:
    return float(base.points[0] + EARLY_SHARE * (base.points[-1] - base.points[0]))


def heldout_metrics(view: RunView) -> list[str]:
    """Held-out losses the run has, the one that counts first in front."""
    names = sorted(m for m in view.metrics if m.startswith("heldout/") and m.endswith("/ce_loss"))
    first = [view.heldout] if view.heldout in names else []
    return first + [m for m in names if m not in first]


def shared_heldout(view: RunView) -> str | None:
    """The first held-out loss that run and reference both have."""
    return next((m for m in heldout_metrics(view) if m in view.reference and len(view.reference[m])), None)
