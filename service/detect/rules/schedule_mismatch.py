"""Rule `schedule_mismatch`: does the learning rate follow the reference's schedule?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compare.align import Level, level
from service.compare.medians import median
from service.detect import annealing
from service.detect.cache import LevelCache
from service.detect.findings import TRAIN, Findings
from service.detect.inputs import Floats, Ints, Series
from service.detect.judgement import Evidence, Judgement
from service.detect.memory import common_prefix

RULE = "schedule_mismatch"
RATE = "optim/learning_rate"
LIMIT = 0.02  # relative; counting steps from 0 or from 1 makes less from step 50 on
POINTS = 2_000  # places of the run that are compared
ENOUGH = 20
MISSES = 0.05  # nats: a law that misses the reference by more explains nothing
MADE = "gap that the schedule explains"
SHARE = "share of the gap that the schedule explains"
SKIPPED = 0.0005  # of the largest reference rate: a rate that starts at zero has no ratio


def judge(findings: Findings) -> Judgement:
    """`yes` while the rate has been more than 2 % off for 20 compared points; `cannot tell` without either rate."""
    run, reference = findings.view.metrics.get(RATE), reference_rate(findings)
    if run is None or len(run) == 0 or reference is None:
        which = "the run sends no" if run is None or len(run) == 0 else "the reference has no"
        return Judgement(RULE, "cannot tell", findings.at_step, f"Cannot tell: {which} learning rate.")
    limit, source = findings.view.limit(RULE, LIMIT, "2 %, either way")
    steps, tokens, ratio = ratios(run, _base(findings, reference), limit, findings.cache)
    if len(ratio) < ENOUGH:
        summary = f"Cannot tell yet: {len(ratio)} of {ENOUGH} points of the learning rate to compare."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, n=len(ratio))
    off = np.abs(ratio - 1.0) > limit
    good = np.flatnonzero(~off)
    first = int(good[-1]) + 1 if len(good) else 0
    now = median(ratio[-ENOUGH:])
    evidence = [
        Evidence("learning rate", float(run.values[-1]), "", "the run's newest"),
        Evidence("ratio to the reference's", now, "", "median of the newest 20 compared points; 1 is the same"),
    ]
    if len(ratio) - first < ENOUGH:
        summary = f"The learning rate follows the reference's ({now:.3f} of it)."
        return Judgement(RULE, "no", findings.at_step, summary, value=now, limit=limit, n=len(ratio), evidence=evidence,
                         limit_source=source)  # fmt: skip
    since = ratio[first:]
    together = "a rate that differs moves train and held-out together, below or above; it is no memorization"
    evidence.append(Evidence("range of the ratio", f"{since.min():.3f} … {since.max():.3f}", "", together))
    told, made = _explained(findings, run, reference)
    evidence += made
    before = max(first - 1, 0)
    return Judgement(
        RULE, "yes", findings.at_step,
        f"The learning rate is {now:.3f} of the reference's, off by more than {100 * limit:.3g} % since step "
        f"{int(steps[first]):,}.{told}",
        (int(steps[before]), int(steps[first])), (float(tokens[before]), float(tokens[first])), now, None, "", limit,
        source, len(since), evidence + findings.evidence(),
        next_checks=[
            "Compare peak, warm-up, horizon and final fraction of the schedule with the reference's.",
            "If the schedule is meant, expect train and held-out to move together.",
        ],
    )  # fmt: skip


def _explained(findings: Findings, run: Series, reference: Series) -> tuple[str, list[Evidence]]:
    """How much of the train gap this schedule explains by a law of loss and learning rate, in words and numbers."""
    view = findings.view
    curve = view.reference.get(TRAIN)
    if curve is None or len(curve) == 0:
        return "", []
    base = findings.cache.get(TRAIN, curve)
    law = findings.cache.once(
        ("annealing", curve, reference),
        lambda: annealing.fit(np.interp(base.tokens, curve.tokens, curve.steps), base.values, reference),
    )
    made = annealing.explained(law, reference, run) if law is not None else None
    now = findings.gap_now
    if law is None or made is None or law.rms > MISSES or now is None:
        why = "the law does not fit the reference's loss well enough, or its range was not reached"
        return "", [Evidence(MADE, "cannot tell", "nats", f"{why}; {annealing.SOURCE}")]
    evidence = [Evidence(MADE, round(made.gap, 5), "nats", f"{annealing.SOURCE}; it misses that by {law.rms:.4f} nats")]
    value, low, high = now
    if abs(value) <= max(law.rms, (high - low) / 2.0):
        return "", evidence
    share = made.gap / value
    evidence.append(Evidence(SHARE, share, "share", f"of the train gap of {value:+.4f} nats; 1 is all of it"))
    return f" Such a schedule makes {made.gap:+.3f} of the gap of {value:+.3f} nats.", evidence


def reference_rate(findings: Findings) -> Series | None:
    """The reference's learning rate over tokens: as logged, else by its schedule."""
    logged = findings.view.reference.get(RATE)
    if logged is not None and len(logged) > 1:
        return logged
    return findings.view.schedule


def _base(findings: Findings, reference: Series) -> Level:
    return findings.cache.once(("rate", reference), lambda: level(reference, "evaluation"))


def ratios(
    run: Series, base: Level, limit: float = LIMIT, cache: LevelCache | None = None
) -> tuple[Ints, Floats, Floats]:
    """Steps, tokens and run / reference at up to 2,000 of the run's points and its newest ones, at equal tokens.

    The places lie on a grid of points, so that new points leave the old ones where they are."""
    width = 1
    while len(run) // width > POINTS:
        width *= 2
    newest = max(len(run) - ENOUGH, 0)
    grid = Series(run.steps[:newest:width], run.tokens[:newest:width], run.values[:newest:width])
    tail = Series(run.steps[newest:], run.tokens[newest:], run.values[newest:])
    if len(base.points) == 0:
        return run.steps[:0], run.tokens[:0], run.values[:0]
    cache = cache or LevelCache()
    least = SKIPPED * cache.once((RULE, base), lambda: float(base.raw.max()))
    found = _joined(cache.kept(_Kept).ratios(grid, base, limit, least), _ratios(tail, base, limit, least))
    return found.steps, found.tokens, found.values


@dataclass(slots=True)
class _Kept:
    """The ratios of a grid of places while it grows: each rests on its own place alone."""

    grid: Series | None = None
    beside: tuple[Level, float] | None = None
    found: Series | None = None

    def ratios(self, grid: Series, base: Level, limit: float, least: float) -> Series:
        """`_ratios` of the whole grid."""
        same, old, found = 0, self.grid, self.found
        if old is not None and self.beside is not None and self.beside[0] is base and self.beside[1] == limit:
            same = common_prefix(old, grid)
        self.grid, self.beside = grid, (base, limit)
        if old is None or found is None or same == 0:
            found = _ratios(grid, base, limit, least)
        elif same < max(len(old), len(grid)):
            later = _ratios(Series(grid.steps[same:], grid.tokens[same:], grid.values[same:]), base, limit, least)
            keep = np.searchsorted(found.steps, int(grid.steps[same - 1]), side="right")
            found = _joined(found.first(int(keep)), later)
        self.found = found
        return found


def _joined(one: Series, other: Series) -> Series:
    return Series(
        np.concatenate((one.steps, other.steps)), np.concatenate((one.tokens, other.tokens)),
        np.concatenate((one.values, other.values)),
    )  # fmt: skip


def _ratios(points: Series, base: Level, limit: float, least: float) -> Series:
    """Of the points that can be compared: run / reference, as values."""
    tokens, values = points.tokens, points.values
    expected = np.interp(tokens, base.points, base.raw)
    keep = np.isfinite(values) & (tokens >= base.points[0]) & (tokens <= base.points[-1])
    keep &= expected > least
    # Within a step or two of a kink or a warm-up's first steps the rate moves by more than 2 % from step to step.
    slack = _slack(base.points, base.raw, tokens)
    ratio = values[keep] / expected[keep]
    near = np.abs(ratio - 1.0) <= limit + slack[keep]
    ratio = np.where(near & (np.abs(ratio - 1.0) > limit), 1.0, ratio)
    return Series(points.steps[keep], tokens[keep], ratio)


def _slack(points: Floats, rate: Floats, tokens: Floats) -> Floats:
    """The relative difference of the reference's rate between its points on both sides of each token."""
    right = np.clip(np.searchsorted(points, tokens), 1, len(points) - 1) if len(points) > 1 else np.zeros(0, np.int64)
    if len(right) == 0:
        return np.zeros(len(tokens))
    low, high = rate[np.maximum(right - 2, 0)], rate[np.minimum(right + 1, len(points) - 1)]
    return np.abs(high - low) / np.maximum(np.minimum(np.abs(low), np.abs(high)), 1e-300)
