"""The curves of a report, from the overviews that the store keeps: buckets whose extremes hold every spike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.database.models import Run
from service.judgements.view import ReferenceView
from service.reports.beside import TRAIN, Compared, Comparison
from service.reports.document import Chart, Line
from service.series.repository import Overview, SeriesRepository

POINTS = 500  # buckets of a curve: as many as a printed column can show
SMALL = 160  # of a small picture
AROUND = 0.02  # of the run's width: so far the reference is drawn beyond it
FAR = 3.0  # usual distances between two blocks beyond which no line joins them
SETS = 6  # held-out losses that are drawn

Floats = NDArray[np.float64]


def charts(
    store: SeriesRepository, run: Run, curve: Run | None, reference: ReferenceView | None, found: Comparison
) -> list[Chart]:
    """Training loss over the reference, the gap, held-out losses, the mean of the accuracies, then each task."""
    made: list[Chart] = []
    train = store.overview(run.id, TRAIN, points=POINTS)
    span = _span(train, found)
    if train is not None and len(train):
        tolerance = found.train.tolerance if found.train is not None else None
        made.append(
            Chart(
                key="train",
                title="Training loss",
                unit="nats per token",
                run=_line(train),
                reference=_reference(store, curve, TRAIN, span, POINTS),
                second=None,
                tolerance=None if tolerance is None else tolerance.value,
                smooth=_smooth(found.train),
                band=_band(reference, TRAIN, span),
                note="Faint: single steps, or means of neighbouring steps with the area from their least to their "
                "largest value; strong: means of blocks.",
            )
        )
    if found.train is not None:
        first = next((one for one in found.heldout if np.isfinite(one.deviation).any()), None)
        made.append(_gap(found.train, first))
    for one in found.heldout[:SETS]:
        made.append(_evaluated(store, curve, one, f"heldout {one.metric}", POINTS, span))
    if found.mean is not None:
        made.append(_evaluated(store, None, found.mean, "mean", POINTS, span))
    made += [_evaluated(store, curve, one, f"task {one.metric}", SMALL, span) for one in found.tasks]
    return made


def _gap(train: Compared, heldout: Compared | None) -> Chart:
    return Chart(
        key="gap", title="Gap to the reference at equal tokens", unit="nats",
        run=_gap_line(train), reference=None, second=None if heldout is None else _gap_line(heldout),
        tolerance=None if train.tolerance is None else train.tolerance.value, smooth=None, band=None,
        note=f"Means of blocks of {train.window:,} steps with their 95 % intervals"
        + ("." if heldout is None else f"; squares: {heldout.title[:1].lower()}{heldout.title[1:]}."),
    )  # fmt: skip


def _smooth(train: Compared | None) -> tuple[list[float], list[float | None]] | None:
    """Block means at the middle of their blocks, thinned where they are many, with breaks where some are missing."""
    if train is None or len(train.steps) < 2:
        return None
    half = float(np.min(np.diff(train.tokens))) / 2.0
    k = np.flatnonzero(np.isfinite(train.values) & np.isfinite(train.tokens))
    k = k[np.unique(np.linspace(0, len(k) - 1, min(POINTS, len(k))).round().astype(np.int64))] if len(k) else k
    tokens, values = _broken(train.tokens[k], train.values[k])
    return rounded(tokens - half), _gaps(values)


def _gap_line(one: Compared) -> Line:
    """Deviations with their intervals; more than POINTS are drawn together, the widest interval kept."""
    half = np.nan_to_num(one.half)
    k = np.isfinite(one.deviation) & np.isfinite(one.tokens)
    tokens, mean = one.tokens[k], one.deviation[k]
    low, high = mean - half[k], mean + half[k]
    if len(mean) > POINTS:
        starts = np.linspace(0, len(mean), POINTS, endpoint=False).astype(np.int64)
        sizes = np.diff(np.append(starts, len(mean)))
        mean = np.add.reduceat(mean, starts) / sizes
        low, high, tokens = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts), tokens[starts]
    tokens, mean, low, high = _broken(tokens, mean, low, high) if one.window else (tokens, mean, low, high)
    return line(tokens, mean, low, high, np.zeros(len(mean), np.bool_))


def _broken(tokens: Floats, *columns: Floats) -> list[Floats]:
    """Columns with a NaN in the middle of each stretch that is much longer than usual: no line is drawn over it."""
    apart = np.diff(tokens)
    wide = np.flatnonzero(apart > FAR * np.median(apart)) + 1 if len(apart) else np.zeros(0, np.int64)
    middles = (tokens[wide - 1] + tokens[wide]) / 2.0
    return [np.insert(tokens, wide, middles), *(np.insert(column, wide, np.nan) for column in columns)]


def _evaluated(
    store: SeriesRepository, curve: Run | None, one: Compared, key: str, points: int,
    span: tuple[float, float] | None,
) -> Chart:  # fmt: skip
    """Evaluations as they were made, thinned where they are many; the whiskers are the interval of the deviation."""
    half = np.nan_to_num(one.half)
    if len(one.steps) > points:
        starts = np.linspace(0, len(one.steps), points, endpoint=False).astype(np.int64)
        finite = np.isfinite(one.values)
        some = np.add.reduceat(finite.astype(np.int64), starts)
        mean = np.add.reduceat(np.where(finite, one.values, 0.0), starts) / np.maximum(some, 1)
        low = np.minimum.reduceat(np.where(finite, one.values, np.inf), starts)
        high = np.maximum.reduceat(np.where(finite, one.values, -np.inf), starts)
        mean, low, high = (np.where(some > 0, part, np.nan) for part in (mean, low, high))
        spoilt = np.logical_or.reduceat(~finite, starts)
        run = line(one.tokens[starts], mean, low, high, spoilt)
    else:
        run = line(one.tokens, one.values, one.values - half, one.values + half, ~np.isfinite(one.values))
    if curve is not None:
        reference = _reference(store, curve, one.metric, span, points)
    else:
        k = np.isfinite(one.reference)
        values = one.reference[k]
        reference = line(one.tokens[k], values, values, values, np.zeros(len(values), np.bool_)) if k.any() else None
    band = None
    tolerance = None if one.tolerance is None else one.tolerance.value
    if reference is not None and tolerance is not None:
        kept = [(x, y) for x, y in zip(reference.tokens, reference.mean, strict=True) if y is not None]
        band = ([x for x, _ in kept], [y for _, y in kept])
    return Chart(
        key=key, title=one.title, unit=one.unit, run=run, reference=reference, second=None, tolerance=tolerance,
        smooth=None, band=band, note="" if reference is not None else "The reference has no values of it here.",
    )  # fmt: skip


def _span(train: Overview | None, found: Comparison) -> tuple[float, float] | None:
    """First and last token of what the run has."""
    parts = [train.tokens] if train is not None else []
    parts += [one.tokens for one in found.all]
    known = [part[np.isfinite(part)] for part in parts]
    ends = [float(e) for part in known if len(part) for e in (part.min(), part.max())]
    return (min(ends), max(ends)) if ends else None


def _reference(
    store: SeriesRepository, curve: Run | None, metric: str, span: tuple[float, float] | None, points: int
) -> Line | None:
    """The reference over the run's tokens and a little beyond, read no finer than it is drawn."""
    if curve is None or span is None:
        return None
    whole = store.overview(curve.id, metric, points=points)
    if whole is None or not len(whole):
        return None
    pad = AROUND * (span[1] - span[0])
    near = np.flatnonzero((whole.tokens >= span[0] - pad) & (whole.tokens <= span[1] + pad))
    if len(near):
        first = int(whole.steps[max(int(near[0]) - 1, 0)])
        last = int(whole.steps[min(int(near[-1]) + 1, len(whole) - 1)])
        fine = store.overview(curve.id, metric, points=points, from_step=first, to_step=last)
        whole = fine if fine is not None and len(fine) else whole
    keep = (whole.tokens >= span[0] - pad) & (whole.tokens <= span[1] + pad)
    return _line(whole, keep) if keep.any() else None


def _band(
    reference: ReferenceView | None, metric: str, span: tuple[float, float] | None
) -> tuple[list[float], list[float]] | None:
    """The reference's local level, about which the tolerance is drawn."""
    series = reference.metrics.get(metric) if reference else None
    if reference is None or series is None or span is None or not len(series):
        return None
    level = reference.levels.get(metric, series)
    pad = AROUND * (span[1] - span[0])
    k = np.flatnonzero((level.tokens >= span[0] - pad) & (level.tokens <= span[1] + pad) & np.isfinite(level.values))
    k = k[np.unique(np.linspace(0, len(k) - 1, min(POINTS, len(k))).round().astype(np.int64))] if len(k) else k
    return rounded(level.tokens[k]), rounded(level.values[k])


def _line(overview: Overview, keep: NDArray[np.bool_] | None = None) -> Line:
    k = np.isfinite(overview.tokens) if keep is None else keep & np.isfinite(overview.tokens)
    return line(
        overview.tokens[k], overview.mean[k], overview.minimum[k], overview.maximum[k], overview.non_finite[k] > 0
    )


def line(tokens: Floats, mean: Floats, low: Floats, high: Floats, spoilt: NDArray[np.bool_]) -> Line:
    """Columns as a document has them; points without a place on the axis are left out."""
    k = np.isfinite(tokens)
    return Line(
        tokens=rounded(tokens[k]), mean=_gaps(mean[k]), low=_gaps(low[k]), high=_gaps(high[k]),
        spoilt=[int(i) for i in np.flatnonzero(spoilt[k])],
    )  # fmt: skip


def rounded(values: Floats | Sequence[float]) -> list[float]:
    """Seven significant digits: finer than any picture shows."""
    return [float(f"{value:.7g}") for value in np.asarray(values, np.float64).tolist()]


def _gaps(values: Floats) -> list[float | None]:
    return [float(f"{v:.7g}") if np.isfinite(v) else None for v in values.tolist()]
