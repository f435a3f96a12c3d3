"""What a series looks like in a picture, and the traces that draw it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from web.figures.palette import Palette, fade

Floats = NDArray[np.float64]
Trace = dict[str, Any]

MAX_POINTS = 2000
MARKED = 150  # above so many points, markers only clutter
RUG_AXIS = "y9"  # an axis from 0 to 1 of its own: what is drawn on it never moves the range of the data


@dataclass(frozen=True, slots=True)
class Curve:
    """One series in at most MAX_POINTS buckets of one or more steps, `x` ascending.

    `x`, `mean`, `minimum`, `maximum`: float64 (n,), over the finite values of a bucket, NaN where it has none.
    `spoilt`: bool (n,), the buckets that hold a NaN or an infinity.
    """

    x: Floats
    mean: Floats
    minimum: Floats
    maximum: Floats
    spoilt: NDArray[np.bool_]

    @classmethod
    def of(cls, x: Sequence[float] | Floats, values: Sequence[float] | Floats) -> Curve:
        """A curve of exact points; more than MAX_POINTS are reduced to equal runs of points, extremes kept."""
        xs, ys = np.asarray(x, np.float64), np.asarray(values, np.float64)
        good = np.isfinite(ys)
        if len(xs) <= MAX_POINTS:
            ys = np.where(good, ys, np.nan)
            return cls(xs, ys, ys, ys, ~good)
        starts = np.linspace(0, len(xs), MAX_POINTS, endpoint=False).astype(np.int64)
        counts = np.add.reduceat(good.astype(np.int64), starts)
        total = np.add.reduceat(np.where(good, ys, 0.0), starts)
        some = counts > 0
        low = np.minimum.reduceat(np.where(good, ys, np.inf), starts)
        high = np.maximum.reduceat(np.where(good, ys, -np.inf), starts)
        return cls(
            xs[starts],
            np.where(some, total / np.maximum(counts, 1), np.nan),
            np.where(some, low, np.nan),
            np.where(some, high, np.nan),
            np.logical_or.reduceat(~good, starts),
        )

    def __len__(self) -> int:
        return len(self.x)

    @property
    def finite(self) -> NDArray[np.bool_]:
        """Buckets with at least one finite value, bool (n,)."""
        return np.isfinite(self.mean)

    def between(self, low: float, high: float) -> Curve:
        """The buckets with low <= x <= high."""
        k = (self.x >= low) & (self.x <= high)
        return Curve(self.x[k], self.mean[k], self.minimum[k], self.maximum[k], self.spoilt[k])

    def near(self, x_range: tuple[float, float] | None) -> Curve:
        """What a picture of `x_range` needs: its buckets, those within its own width to both sides, for a reader who
        moves it, and one more at each end, so that lines leave the picture as they should. All without a range."""
        k = near(self.x, x_range)
        return Curve(self.x[k], self.mean[k], self.minimum[k], self.maximum[k], self.spoilt[k])


EMPTY = Curve.of([], [])


def near(x: Floats, x_range: tuple[float, float] | None) -> slice:
    """Of ascending places (n,) those that `Curve.near` keeps."""
    if x_range is None:
        return slice(None)
    width = x_range[1] - x_range[0]
    first = int(np.searchsorted(x, x_range[0] - width, "left")) - 1
    return slice(max(first, 0), int(np.searchsorted(x, x_range[1] + width, "right")) + 1)


def column(values: Floats) -> dict[str, str]:
    """A float64 column as Plotly's typed array: half the bytes of decimal text, and exact."""
    return {"dtype": "f8", "bdata": base64.b64encode(np.ascontiguousarray(values, "<f8").tobytes()).decode()}


def plain(text: str) -> str:
    """Text that Plotly shows as it is: it reads `<`, `>` and `&` as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def line(curve: Curve, name: str, color: str, *, width: float = 1.6, dash: str = "solid", **more: Any) -> Trace:
    """The bucket means; a bucket without a finite value interrupts the line."""
    trace: Trace = {
        "type": "scatter",
        "mode": "lines" if len(curve) > 1 else "markers",
        "name": plain(name),
        "x": column(curve.x),
        "y": column(curve.mean),
        "line": {"color": color, "width": width, "dash": dash},
        "marker": {"color": color, "size": 6},
    }
    return trace | more


def band(x: Floats, low: Floats, high: Floats, color: str, *, name: str = "", **more: Any) -> list[Trace]:
    """The area between two lines; places that are not finite are left out."""
    keep = np.isfinite(low) & np.isfinite(high)
    edge: Trace = {
        "type": "scatter",
        "mode": "lines",
        "x": column(x[keep]),
        "line": {"width": 0, "color": color},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    upper = edge | {"y": column(high[keep]), "fill": "tonexty", "fillcolor": color}
    if name:
        upper |= {"name": plain(name), "showlegend": True}
    return [edge | {"y": column(low[keep])} | more, upper | more]


def spread(curve: Curve, color: str, **more: Any) -> list[Trace]:
    """Minimum to maximum of each bucket: no spike of one step vanishes. Nothing where buckets are single points."""
    finite = curve.finite
    if not np.any(curve.maximum[finite] > curve.minimum[finite]):
        return []
    return band(curve.x[finite], curve.minimum[finite], curve.maximum[finite], color, **more)


def rug(curve: Curve, palette: Palette, name: str = "") -> list[Trace]:
    """A mark at the foot of the picture for each bucket that holds a NaN or an infinity."""
    if not curve.spoilt.any():
        return []
    x = curve.x[curve.spoilt]
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": plain(f"{name} NaN or infinite".strip()),
            "x": column(x),
            "y": column(np.full(len(x), 0.03)),
            "yaxis": RUG_AXIS,
            "hovertemplate": "NaN or infinite<extra></extra>",
            "marker": {
                "symbol": "line-ns-open",
                "size": 14,
                "color": palette.alert,
                "line": {"width": 2, "color": palette.alert},
            },
        }
    ]


def value_range(curves: Sequence[Curve], *, include: Sequence[float] = (), cut: float = 0.02) -> list[float] | None:
    """A y range [low, high] that shows the curves, with `cut` of the highest and lowest bucket extremes left outside.

    A spike then runs out of the picture instead of flattening everything else. None where there is nothing finite.
    """
    low = [c.minimum[c.finite] for c in curves]
    high = [c.maximum[c.finite] for c in curves]
    wanted = np.asarray([v for v in include if np.isfinite(v)], np.float64)
    ends: list[float] = [float(v) for v in wanted]
    if sum(map(len, low)):
        ends += [float(np.quantile(np.concatenate(low), cut)), float(np.quantile(np.concatenate(high), 1 - cut))]
    if not ends:
        return None
    bottom, top = min(ends), max(ends)
    pad = 0.06 * (top - bottom) or max(abs(top) * 0.05, 0.01)
    return [bottom - pad, top + pad]


__all__ = [
    "EMPTY",
    "MARKED",
    "MAX_POINTS",
    "Curve",
    "Floats",
    "Trace",
    "band",
    "column",
    "fade",
    "line",
    "near",
    "plain",
    "rug",
    "spread",
]
