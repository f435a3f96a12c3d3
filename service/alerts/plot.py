"""A small picture of a run's gap to its reference, as PNG, without a browser.

Chats show it on a light or a dark ground, so it has a ground of its own.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from service.compare.bank import Floats

WIDTH, HEIGHT = 600, 240
SCALE = 2  # drawn larger and scaled down, which smooths lines
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 34, 30  # around the plot, in pixels
GROUND, INK, FAINT, FRAME = "#ffffff", "#1f2933", "#616e7c", "#9aa5b1"
BAND, LINE, HAZE, ONSET = "#d9ead3", "#1565c0", "#bbd4f0", "#c62828"
OUTLIER = 8.0  # tolerances beyond which a single value no longer sets the scale


@dataclass(frozen=True, slots=True)
class Curve:
    """A gap by step, with its interval, all of one length; NaN where there is none. `tolerance` None: not known."""

    title: str
    steps: Floats
    gap: Floats
    low: Floats
    high: Floats
    unit: str = "nats"
    tolerance: float | None = None
    since: tuple[float, float] | None = None  # steps between which it began


def draw(curve: Curve) -> bytes:
    """The picture: 600 × 240 pixels."""
    image = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), GROUND)
    _Plot(ImageDraw.Draw(image), curve).draw()
    written = io.BytesIO()
    small = image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS).quantize(128)
    small.save(written, "PNG", optimize=True)
    return written.getvalue()


class _Plot:
    def __init__(self, canvas: ImageDraw.ImageDraw, curve: Curve) -> None:
        self._canvas, self._curve = canvas, curve
        self._first, self._last = float(curve.steps[0]), float(curve.steps[-1])
        self._bottom, self._top = _bounds(curve)

    def draw(self) -> None:
        curve = self._curve
        edges = (self._x(self._first), self._x(self._last))
        if curve.tolerance is not None:
            band = (edges[0], self._y(curve.tolerance), edges[1], self._y(-curve.tolerance))
            self._canvas.rectangle(band, fill=BAND)
        if curve.since is not None:
            self._onset(curve.since)
        for run in _whole_runs(curve):
            xs = [self._x(step) for step in curve.steps[run]]
            upper = list(zip(xs, (self._y(value) for value in curve.high[run]), strict=True))
            lower = list(zip(xs, (self._y(value) for value in curve.low[run]), strict=True))
            if len(xs) > 1:
                self._canvas.polygon([*upper, *reversed(lower)], fill=HAZE)
        self._canvas.line((edges[0], self._y(0.0), edges[1], self._y(0.0)), fill=INK, width=SCALE)
        for run in _whole_runs(curve):
            points = [(self._x(s), self._y(v)) for s, v in zip(curve.steps[run], curve.gap[run], strict=True)]
            if len(points) > 1:
                self._canvas.line(points, fill=LINE, width=2 * SCALE, joint="curve")
            else:
                x, y = points[0]
                self._canvas.ellipse((x - 2 * SCALE, y - 2 * SCALE, x + 2 * SCALE, y + 2 * SCALE), fill=LINE)
        frame = (edges[0], TOP * SCALE, edges[1], (HEIGHT - BOTTOM) * SCALE)
        self._canvas.rectangle(frame, outline=FRAME, width=SCALE)
        self._canvas.rectangle((0, 0, WIDTH * SCALE - 1, HEIGHT * SCALE - 1), outline=FRAME, width=SCALE)
        self._words()

    def _onset(self, since: tuple[float, float]) -> None:
        low, high = (min(max(step, self._first), self._last) for step in since)
        top, bottom = TOP * SCALE, (HEIGHT - BOTTOM) * SCALE
        x = self._x(low)
        self._canvas.rectangle((x, top, max(self._x(high), x + 2 * SCALE), bottom), fill="#f7d4d4")
        self._canvas.line((x, top, x, bottom), fill=ONSET, width=2 * SCALE)

    def _words(self) -> None:
        curve = self._curve
        self._say(12, 8, curve.title, INK, 15)
        if curve.tolerance is not None:
            self._say(WIDTH - RIGHT, 10, f"green: ±{curve.tolerance:.3g} {curve.unit}", FAINT, 12, "ra")
        for value in _ticks(self._bottom, self._top):
            self._say(LEFT - 6, self._y(value) / SCALE, f"{value:+.3g}" if value else "0", FAINT, 12, "rm")
        below = HEIGHT - BOTTOM + 8
        self._say(LEFT, below, f"{self._first:,.0f}", FAINT, 12)
        self._say(WIDTH - RIGHT, below, f"step {self._last:,.0f}", FAINT, 12, "ra")
        if curve.since is not None:
            x = min(max(self._x(curve.since[0]) / SCALE, LEFT + 110), WIDTH - RIGHT - 130)
            self._say(x, below, f"since {curve.since[0]:,.0f}", ONSET, 12, "ma")

    def _say(self, x: float, y: float, text: str, ink: str, size: int, anchor: str = "la") -> None:
        font = ImageFont.load_default(size * SCALE)
        self._canvas.text((x * SCALE, y * SCALE), text, fill=ink, font=font, anchor=anchor)

    def _x(self, step: float) -> float:
        share = (step - self._first) / max(self._last - self._first, 1.0)
        return SCALE * (LEFT + share * (WIDTH - LEFT - RIGHT))

    def _y(self, value: float) -> float:
        share = (min(max(value, self._bottom), self._top) - self._bottom) / (self._top - self._bottom)
        return SCALE * (HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM))


def _bounds(curve: Curve) -> tuple[float, float]:
    """Lowest and highest value that is shown: zero, the tolerance, and the gap but for its wildest points."""
    seen = curve.gap[np.isfinite(curve.gap)]
    shown = [0.0, 1e-6]
    if len(seen):
        usual = np.percentile(seen, [1.0, 99.0])
        room = OUTLIER * (curve.tolerance or float(np.ptp(usual)) or 1e-6)
        shown += [float(seen[seen >= usual[0] - room].min()), float(seen[seen <= usual[1] + room].max())]
    if curve.tolerance is not None:
        shown += [1.3 * curve.tolerance, -1.3 * curve.tolerance]
    margin = 0.06 * (max(shown) - min(shown))
    return min(shown) - margin, max(shown) + margin


def _whole_runs(curve: Curve) -> list[slice]:
    """Stretches without a hole."""
    whole = np.isfinite(curve.gap) & np.isfinite(curve.low) & np.isfinite(curve.high)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], whole, [False])).astype(np.int8)))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _ticks(bottom: float, top: float) -> Sequence[float]:
    """Three to six round values between these."""
    rough = (top - bottom) / 4.0
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough)
    return [float(step * i) for i in range(int(np.ceil(bottom / step)), int(np.floor(top / step)) + 1)]
