"""Has the held-out loss followed the train loss? Against the reference, or against the run's own early gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from service.compare.gap import Change, change
from service.compare.noise import ANCHOR_EVALUATION_NOISE, EVALUATION_NOISE_PER_STEP_NOISE, step_noise

from .gaps import (
    SD_PER_TOLERANCE,
    LevelCache,
    TrainGap,
    aligned,
    heldout_metrics,
    heldout_unit,
    shared_heldout,
    unexplained,
    unit_of,
)
from .inputs import Floats, Ints, RunView
from .judgement import Evidence

Answer = Literal["flat", "follows", "cannot tell"]

MIN_EVALUATIONS = 3  # since the onset: one evaluation may jump by itself
SURE = 3.0  # standard errors between the held-out improvement and a third of the train change
FLAT_SHARE = 1.0 / 3.0
MIN_QUIET = 2  # blocks before the onset
BEFORE = 20  # evaluations before the onset that make the baseline
OWN_WINDOW_POINTS = 20  # train points before an evaluation that it is compared with, where there is no reference
FEW_POINTS = 4  # train points an evaluation below which the noise of the train level is not known
FEW_LIMIT = 0.25  # nats, assumed: second passes of fine-tunings lower train by 0.2 while held-out stays as good as ever
OWN_LIMIT = 0.08  # nats; AI2's own held-out - train gap moved by 0.04 from step 10,000 to the end


@dataclass(frozen=True, slots=True)
class HeldoutFinding:
    """What held-out says since a drift's onset: changes of the `train` and of the `heldout` gap.

    `own`: judged on the run's own held-out - train gap, with its `excess` and `limit`. `onset` (steps): where it is not
    the drift's. `n`: evaluations it rests on."""

    answer: Answer
    why: str
    metric: str = ""
    train: Change | None = None
    heldout: Change | None = None
    own: bool = False
    onset: tuple[int, int] | None = None
    excess: float | None = None
    limit: float | None = None
    n: int = 0

    def evidence(self) -> Evidence:
        """The named number `held-out change`."""
        why = "change of the held-out gap since the onset; memorization leaves it flat or rising while train falls"
        if self.heldout is None:
            return Evidence("held-out change", "cannot tell yet", "nats", f"{why}; {self.why}")
        low, high = self.heldout.interval
        text = f"{self.heldout.value:+.4f} ({low:+.4f} … {high:+.4f})"
        if self.answer == "cannot tell":
            text = f"cannot tell yet ({text})"
        return Evidence("held-out change", text, "nats", f"{why}; {self.heldout.after} evaluations of {self.metric}")


def find(view: RunView, train: TrainGap | None, train_metric: str, cache: LevelCache) -> HeldoutFinding:
    """Judge held-out against the open drift below the reference; without one there is nothing to follow."""
    metric = shared_heldout(view)
    unit = unit_of(view, train_metric, cache) if train is None else None
    if unit is not None:
        return HeldoutFinding("cannot tell", f"the train loss seems to be {unit}, not in nats per token", metric or "")
    if train is None or metric is None:
        return own_gap(view, train_metric)
    episode = train.open
    if episode is None or episode.side != "below":
        return HeldoutFinding("cannot tell", "the train loss has not sunk below the reference's", metric)
    placed = aligned(view, metric, cache)
    blocks = train.blocks
    start = int(blocks.first_step[episode.first])
    if placed is None:
        why = heldout_unit(view, cache) or "no held-out evaluation inside the reference's range"
        return HeldoutFinding("cannot tell", why, metric)
    finite = np.isfinite(placed.gap)
    steps, gap = placed.steps[finite], unexplained(view, metric, placed)[finite]
    noise = evaluation_noise(view, metric, train.tolerance.noise_sd, gap, cache)
    quiet = np.arange(max(episode.before - BEFORE + 1, 0), episode.before + 1)
    before = gap[steps <= blocks.last_step[episode.before]][-BEFORE:] if len(quiet) else gap[:0]
    if len(quiet) < MIN_QUIET or len(before) < MIN_EVALUATIONS:
        # A run that drifts from its first blocks on has no settled time before: it began where the reference did.
        quiet, before = quiet[:0], gap[:0]
    after = gap[steps >= start]
    if len(after) == 0:
        return HeldoutFinding("cannot tell", f"no evaluation since step {start:,}", metric)
    wander = train.tolerance.value / SD_PER_TOLERANCE
    moved = change(before, after, noise, assumed_sd=wander)
    base = float(np.median(blocks.mean[quiet])) if len(quiet) else 0.0
    base_se = float(np.sqrt(np.pi / 2 / len(quiet)) * np.median(blocks.se[quiet])) if len(quiet) else wander
    since = np.arange(episode.first, len(blocks))
    depth = float(np.median(blocks.mean[since])) - base
    depth_se = float(np.hypot(base_se, np.sqrt(np.pi / 2 / len(since)) * np.median(blocks.se[since])))
    sunk = Change(depth, depth_se, len(quiet), len(since))
    answer, why = ratio(moved, sunk)
    return HeldoutFinding(answer, why, metric, sunk, moved, n=moved.after)


def ratio(moved: Change, sunk: Change) -> tuple[Answer, str]:
    """Whether held-out, that `moved`, improved by a third of what train has `sunk`, and the words for it."""
    needed = FLAT_SHARE * -sunk.value
    lead = -moved.value - needed
    spread = SURE * float(np.hypot(moved.se, FLAT_SHARE * sunk.se))
    if moved.after < MIN_EVALUATIONS:
        return "cannot tell", f"{moved.after} of {MIN_EVALUATIONS} evaluations since the onset"
    if lead + spread < 0.0:
        return "flat", f"held-out improved by less than a third of the train change ({needed:.4f} nats)"
    if lead - spread > 0.0:
        return "follows", f"held-out improved by more than a third of the train change ({needed:.4f} nats)"
    return (
        "cannot tell",
        f"the interval of the held-out change straddles a third of the train change ({needed:.4f} nats)",
    )


def evaluation_noise(view: RunView, metric: str, step: float | None, gap: Floats, cache: LevelCache) -> float:
    """Standard deviation of one held-out gap: measured on siblings and this run, never below half the one assumed from
    `step`, the noise of one step's train loss."""
    declared = view.tolerances.get(metric)
    assumed = max(ANCHOR_EVALUATION_NOISE, EVALUATION_NOISE_PER_STEP_NOISE * (step or 0.0))
    if declared is not None and declared.noise_sd:
        assumed = declared.noise_sd
    assumed *= float(np.sqrt(2.0))
    measured: list[float] = []
    for sibling in view.siblings:
        if metric in sibling:
            placed = aligned(RunView({metric: sibling[metric]}, view.reference, {}, ()), metric, cache)
            noise = step_noise(placed.gap) if placed is not None else None
            if noise is not None:
                measured.append(noise)
    own = step_noise(gap) if len(gap) >= 8 else None
    if own is not None:
        measured.append(own)
    if not measured:
        return assumed
    return max(float(np.max(measured)), 0.5 * assumed)


def own_gap(view: RunView, train_metric: str) -> HeldoutFinding:
    """The run's own held-out - train gap against its early value, evaluation by evaluation. Causal.

    The baseline is the median of three evaluations. Once the gap has grown beyond the limit, what train and held-out
    did since it last was near the baseline decides. Held-out improved by less than a third of the train change, three
    times: train sinks alone. By two thirds or more (early training, another domain): the baseline moves on.
    Where there are fewer than four train points an evaluation, train must also have sunk since held-out's best."""
    names = heldout_metrics(view)
    train = view.metrics.get(train_metric)
    if not names or train is None or len(train) == 0:
        return HeldoutFinding("cannot tell", "no held-out loss" if not names else "no train loss")
    metric = names[0]
    held = view.metrics[metric]
    steps, level, loss, noise = _beside(train.steps, train.values, held.steps, held.values)
    if len(steps) < 2 * MIN_EVALUATIONS:
        why = f"{len(steps)} of {2 * MIN_EVALUATIONS} evaluations with train points before them"
        return HeldoutFinding("cannot tell", why, metric, own=True)
    gap = loss - level
    early, near = float(np.median(gap[:MIN_EVALUATIONS])), MIN_EVALUATIONS - 1
    alone: list[int] = []
    limit, spread = OWN_LIMIT, 0.0
    for i in range(MIN_EVALUATIONS, len(steps)):
        spread = float(np.hypot(np.median(noise[: i + 1]), step_noise(gap[: i + 1]) or 0.0))
        limit = max(OWN_LIMIT, 1.5 * SURE * spread)
        excess = float(gap[i]) - early
        if excess <= limit:
            alone = []
            near = i if excess <= limit / 2.0 else near
            continue
        start = _until(near)
        sunk = float(np.median(level[start]) - level[i])
        improved = float(np.median(loss[start]) - loss[i])
        if sunk <= 0.0 or improved >= 2.0 * FLAT_SHARE * sunk:
            early, near, alone = float(np.median(gap[_until(i)])), i, []
        elif improved < FLAT_SHARE * sunk:
            alone.append(i)
    excess = float(gap[-1]) - early
    if len(alone) < MIN_EVALUATIONS:
        answer: Answer = "cannot tell" if excess > limit else "follows"
        beyond = f"{len(alone)} of {MIN_EVALUATIONS} evaluations show train sinking alone"
        why = beyond if excess > limit else "own gap within its limit"
        return HeldoutFinding(answer, why, metric, own=True, excess=excess, limit=limit, n=len(steps))
    start, newest = _until(near), slice(-MIN_EVALUATIONS, None)
    sunk = float(np.median(level[start]) - np.median(level[newest]))
    improved = float(np.median(loss[start]) - np.median(loss[newest]))
    unsure = SURE * (step_noise(loss) or 0.0) * float(np.sqrt(np.pi / MIN_EVALUATIONS))
    if improved + unsure >= FLAT_SHARE * sunk:
        why = "held-out may have followed by a third of the train change by now"
        return HeldoutFinding("cannot tell", why, metric, own=True, excess=excess, limit=limit, n=len(steps))
    few = len(train) < FEW_POINTS * len(held)
    if few and not _best_is_behind(level, loss):
        why = "fewer than four train points an evaluation, and held-out is about as good as it ever was"
        return HeldoutFinding("cannot tell", why, metric, own=True, excess=excess, limit=limit, n=len(steps))
    after = slice(alone[0], None)
    return HeldoutFinding(
        "flat", "train sank alone", metric, change(level[start], level[after], spread),
        change(loss[start], loss[after], spread), own=True, onset=(int(steps[near]), int(steps[alone[0]])),
        excess=excess, limit=limit, n=len(steps),
    )  # fmt: skip


def _best_is_behind(level: Floats, loss: Floats) -> bool:
    """Whether train sank by more than its noise and 0.25 nats since held-out was at its best (median of three)."""
    smooth = np.array([np.median(loss[_until(i)]) for i in range(MIN_EVALUATIONS - 1, len(loss))])
    best = int(np.argmin(smooth)) + MIN_EVALUATIONS - 1
    sunk = float(np.median(level[_until(best)]) - np.median(level[-MIN_EVALUATIONS:]))
    return sunk > max(FEW_LIMIT, SURE * (step_noise(level) or 0.0))


def _until(i: int) -> slice:
    return slice(max(i - MIN_EVALUATIONS + 1, 0), i + 1)


def _beside(steps: Ints, values: Floats, held_steps: Ints, held: Floats) -> tuple[Ints, Floats, Floats, Floats]:
    """Per evaluation: its step, the local train level before it, its loss, and the level's standard error."""
    keep = np.isfinite(values)
    steps, values = steps[keep], values[keep]
    good = np.isfinite(held)
    held_steps, held = held_steps[good], held[good]
    ends: Ints = np.searchsorted(steps, held_steps, side="right").astype(np.int64)
    held_steps, held, ends = held_steps[ends > 0], held[ends > 0], ends[ends > 0]
    level, noise = np.zeros(len(ends)), np.zeros(len(ends))
    for i, end in enumerate(ends):
        # Points since the last evaluation, so that a thin log is not averaged over half the run; at least one.
        before = ends[i - 1] if i else 0
        window = values[max(min(before, end - 1), end - OWN_WINDOW_POINTS) : end]
        level[i] = np.median(window)
        noise[i] = 1.25 * (step_noise(window) or 0.0) / np.sqrt(len(window))
    return held_steps, level, held, noise
