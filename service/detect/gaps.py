"""The gap of one metric of a run to its reference, ready to be judged: blocks, tolerance in force, drift episodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from service.compare.align import Aligned, align
from service.compare.gap import Blocks, block_gaps
from service.compare.noise import assumed_tolerance, default_window, sibling_tolerance, step_noise
from service.compare.units import other_unit

from .bank import without_siblings
from .cache import LevelCache
from .deviations import Allowance, allowance
from .inputs import Floats, RunView, Tolerance
from .offset import Offsets, place_of, settled_offsets
from .sequential import Episode, episodes

SD_PER_TOLERANCE = 3.75  # a healthy run's block means are taken to have this many sd inside the tolerance
ALARM = 4.0  # excess over the limit, in sd of a healthy block mean, that opens an episode
MOST = 3.0  # what one block may add: a single odd block opens nothing
EARLY_SHARE = 0.03  # of the reference's tokens: there healthy runs wander up to three times as far
# An assumed tolerance leaves two thirds of itself to a constant offset, which a healthy run keeps for good; its wander
# comes on top. Offset and wander together may pass the tolerance for a while, but not on average.
OFFSET_SHARE = 2.0 / 3.0
FEWEST_SIBLINGS = 3  # healthy runs that a tolerance below the assumed one must rest on
LONG_ALARM = 60.0  # excess over the tolerance itself, in sd: the settled offset of a long run lies beyond it


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
    """Block gaps of the train loss. `sd` (m,): of a healthy block mean about its run's offset; `limit` (m,): 3.75 of
    these, the tolerance in force; `offsets`: the run's own settled gap, as known at each block. `episodes` in order."""

    blocks: Blocks
    tolerance: Tolerance
    limit: Floats
    sd: Floats
    offsets: Offsets
    episodes: list[DriftEpisode]

    @property
    def offset(self) -> float | None:
        """The run's own settled gap, once known."""
        return self.offsets.newest

    @property
    def open(self) -> DriftEpisode | None:
        """The episode that holds now."""
        return self.episodes[-1] if self.episodes and self.episodes[-1].end is None else None


def tolerance_of(view: RunView, metric: str, cache: LevelCache) -> Tolerance:
    """The tolerance in force: declared with the reference, else from sibling runs, else from the reference's own wander
    or the bank of healthy pairs, else assumed. Siblings go before one that was declared as assumed."""
    declared = view.tolerances.get(metric)
    if declared is not None and np.isfinite(declared.value) and declared.value > 0.0:
        measured = None
        if not declared.runs and any(len(s.get(metric, ())) for s in view.siblings) and not _set_by_people(view):
            measured = cache.tolerance(metric, view, lambda: _measured_tolerance(view, metric, cache))
        return measured if measured is not None and measured.runs else declared
    return cache.tolerance(metric, view, lambda: _measured_tolerance(view, metric, cache))


def _set_by_people(view: RunView) -> bool:
    setting = view.settings.get("train_drift")
    return setting is not None and setting.tolerance is not None


def _measured_tolerance(view: RunView, metric: str, cache: LevelCache) -> Tolerance:
    reference = view.reference.get(metric)
    noise = step_noise(reference.values[len(reference) // 10 :]) if reference is not None else None
    length = int(reference.steps[-1] - reference.steps[0]) if reference is not None and len(reference) else None
    wander = assumed_tolerance(noise, length)
    change: float | None = None
    siblings = [s[metric] for s in view.siblings if metric in s and len(s[metric])]
    base = cache.get(metric, reference) if reference is not None else None
    if siblings and base is not None and len(base.points):
        window = wander.window_steps
        early = base.points[0] + EARLY_SHARE * (base.points[-1] - base.points[0])
        means: list[Floats] = []
        moved: list[Floats] = []
        for sibling in siblings:
            blocks = block_gaps(align(sibling, base), window)
            means.append(blocks.mean[blocks.last_tokens > early])
            offsets = settled_offsets(blocks.mean, place_of(blocks, base.points), blocks.se)
            known = ~np.isnan(offsets.value)
            if known.any():
                moved.append(blocks.mean[known] - offsets.value[known])
        if any(len(m) for m in means):
            measured = sibling_tolerance(means, window, noise)
            if measured.runs < FEWEST_SIBLINGS and measured.value < wander.value:  # two may lie close by chance
                source = f"{wander.source.split(';')[0]}; {measured.runs} healthy runs tell too little"
                measured = replace(measured, value=wander.value, source=source)
            wander = measured
        if len(moved) >= FEWEST_SIBLINGS:
            change = sibling_tolerance(moved, window, noise, from_own_offset=True).value
    if not wander.runs and reference is not None:
        return without_siblings(view, metric, wander)
    return Tolerance(wander.value, wander.source, wander.runs, wander.noise_sd, wander.window_steps, change)


def aligned(view: RunView, metric: str, cache: LevelCache) -> Aligned | None:
    """The metric beside the reference; None where either is missing, no point lies in the reference's range, or the
    losses are in another unit."""
    run, reference = view.metrics.get(metric), view.reference.get(metric)
    if run is None or reference is None or len(run) == 0 or len(reference) == 0:
        return None
    base = cache.get(metric, reference)
    if metric.endswith("/ce_loss") and other_unit(run, base) is not None:
        return None
    placed = align(run, base)
    return placed if len(placed) else None


def unit_of(view: RunView, metric: str, cache: LevelCache) -> str | None:
    """What a loss of the run seems to be in, where the reference's is in nats per token and it is not."""
    run, reference = view.metrics.get(metric), view.reference.get(metric)
    if run is None or reference is None or len(run) == 0 or len(reference) == 0:
        return None
    unit = cache.other_unit(metric, run, cache.get(metric, reference))
    return f"in {unit}" if unit and unit.startswith("bits") else f"a {unit}" if unit else None


def heldout_unit(view: RunView, cache: LevelCache) -> str | None:
    """That the shared held-out loss is not in nats per token, in words; None where it seems to be."""
    metric = shared_heldout(view)
    unit = None if metric is None else unit_of(view, metric, cache)
    return None if unit is None else f"{metric} seems to be {unit}; that of the reference is in nats per token"


def unexplained(view: RunView, metric: str, placed: Aligned) -> Floats:
    """The gap (n,) of a metric that is evaluated now and then, less what declared deviations explain of it."""
    allowed = allowance(view.deviations, metric, placed.steps, placed.steps, placed.tokens)
    return placed.gap if allowed is None else allowed.unexplained(placed.gap)


def train_gap(view: RunView, metric: str, cache: LevelCache) -> TrainGap | None:
    """Block gaps and drift episodes of a train metric; None where nothing can be compared (`other_unit` included)."""
    run, reference = view.metrics.get(metric), view.reference.get(metric)
    if run is None or reference is None or len(run) == 0 or len(reference) == 0:
        return None
    base = cache.get(metric, reference)
    if cache.other_unit(metric, run, base) is not None:
        return None
    tolerance = tolerance_of(view, metric, cache)
    window = tolerance.window_steps or default_window(tolerance.noise_sd, tolerance.value, len(reference))
    blocks = cache.blocks(run, base, window)
    if blocks is None:
        return None
    deviations = tuple(view.deviations)

    def judged() -> TrainGap:
        allowed = allowance(deviations, metric, blocks.first_step, blocks.last_step, blocks.last_tokens)
        return judge_blocks(blocks, tolerance, base.points, allowed)

    return cache.unchanged(("train gap", metric, bool(deviations)), (blocks, tolerance, base, deviations), judged)


def judge_blocks(
    blocks: Blocks, tolerance: Tolerance, reference_tokens: Floats, allowed: Allowance | None = None
) -> TrainGap:
    """Sequential tests of block means. Causal: block i's answer depends on blocks 0…i only.

    Three charts on each side, each a CUSUM of (excess over a limit) / sd. Against the reference, quickly: the limit
    leaves room for a healthy offset. Against the reference, slowly: is the offset itself beyond the tolerance? Against
    the run's own settled offset: has it moved by more than healthy wander? A tolerance measured on siblings holds their
    offsets already; there the first chart has no extra room, and the second is not needed.

    What declared deviations explain (`allowed`, per block) is taken out of the gap first; the result's blocks are what
    is left. The distance from the run's own offset is judged in the same way."""
    measured = blocks
    if allowed is not None:
        blocks = replace(blocks, mean=allowed.unexplained(blocks.mean))
    sd = healthy_sd(blocks.se, tolerance)
    place = place_of(blocks, reference_tokens)
    early = 1.0 + 2.0 * np.clip(1.0 - place / EARLY_SHARE, 0.0, 1.0)
    sd = sd * early
    limit = SD_PER_TOLERANCE * sd
    room = 0.0 if tolerance.runs else OFFSET_SHARE * tolerance.value
    found = _both_sides(blocks.mean, limit + room, sd, ALARM, own=False)
    if not tolerance.runs:
        found += _both_sides(blocks.mean, limit, sd, LONG_ALARM, own=False)
    offsets = settled_offsets(blocks.mean, place, sd)
    first = min([e.alarm for e in found + _moved(measured, offsets, sd, tolerance, allowed)], default=None)
    if first is not None:
        offsets = offsets.frozen(first)  # what drifts is no offset
    found += _moved(measured, offsets, sd, tolerance, allowed)
    return TrainGap(blocks, tolerance, limit, sd, offsets, _in_order(found))


def healthy_sd(se: Floats, tolerance: Tolerance) -> Floats:
    """Standard deviation of a healthy run's block means with standard errors `se` about its own offset."""
    wander = tolerance.value / SD_PER_TOLERANCE
    # Sibling block means carry their step noise already; an assumed tolerance is about wander alone.
    return np.maximum(se, wander) if tolerance.runs else np.hypot(se, wander)


def _moved(
    blocks: Blocks, offsets: Offsets, sd: Floats, tolerance: Tolerance, allowed: Allowance | None
) -> list[DriftEpisode]:
    """Drifts from the run's own offset."""
    known = np.flatnonzero(~np.isnan(offsets.value))
    if len(known) == 0:
        return []
    start = int(known[0])
    wide = sd_of_move(blocks.se, sd, offsets, tolerance)[start:]
    moved = blocks.mean - offsets.value
    moved = (moved if allowed is None else allowed.unexplained(moved))[start:]
    return _both_sides(moved, SD_PER_TOLERANCE * wide, wide, ALARM, own=True, shift=start)


def sd_of_move(se: Floats, sd: Floats, offsets: Offsets, tolerance: Tolerance) -> Floats:
    """Standard deviation of a healthy block mean less its run's offset, the offset's own error included: as measured
    on siblings in the same way, or from `sd` of a block mean about the true offset."""
    if tolerance.change is not None:
        return np.maximum(se, tolerance.change / SD_PER_TOLERANCE)
    return np.hypot(sd, offsets.error)


def _both_sides(
    gap: Floats, limit: Floats, sd: Floats, alarm: float, *, own: bool, shift: int = 0
) -> list[DriftEpisode]:
    found: list[DriftEpisode] = []
    for sign, side in ((-1.0, "below"), (1.0, "above")):
        charted = episodes(np.minimum((sign * gap - limit) / sd, MOST), alarm) if len(gap) else []
        found += [_described(episode, sign * gap, sd, side, shift, own=own) for episode in charted]
    return found


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
    """Closed ones first, then of the open ones that which was found first, so that it stays the one told of."""
    still = sorted((e for e in found if e.end is None), key=lambda e: (e.alarm, e.from_own_offset))
    closed = sorted((e for e in found if e.end is not None), key=lambda e: e.alarm)
    return closed + still[:1]


def heldout_metrics(view: RunView) -> list[str]:
    """Held-out losses the run has, the one that counts first in front."""
    names = sorted(m for m in view.metrics if m.startswith("heldout/") and m.endswith("/ce_loss"))
    first = [view.heldout] if view.heldout in names else []
    return first + [m for m in names if m not in first]


def shared_heldout(view: RunView) -> str | None:
    """The first held-out loss that run and reference both have."""
    return next((m for m in heldout_metrics(view) if m in view.reference and len(view.reference[m])), None)
