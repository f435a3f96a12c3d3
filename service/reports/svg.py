"""Pictures as plain SVG: no script, no style, vectors only, told apart without colour. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
INK, MUTED, RULE = "#1b1f24", "#59616b", "#dfe3e7"
Number = float | None
Ticks = Sequence[tuple[float, str]]


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers in [low, high], at most `most`, 1, 2 or 5 times a power of ten apart."""
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return [low]
    base = 10.0 ** math.floor(math.log10(span / most))
    step = next(base * factor for factor in (1.0, 2.0, 5.0, 10.0) if span / (base * factor) <= most)
    first = math.ceil(low / step - 1e-9)
    return [round(step * i, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


class Plot:
    """One picture, `width` × `height`, whose plane shows `x` and `y` (low, high). Shapes lie in order of the calls."""

    def __init__(
        self, key: str, width: int, height: int, x: tuple[float, float], y: tuple[float, float], *, small: bool = False
    ) -> None:
        self._key, self._width, self._height = key, width, height
        self._x, self._y = x, y
        self._small = small
        self._left, self._right, self._top, self._bottom = (44, 6, 8, 30) if small else (58, 10, 12, 38)
        self._under: list[str] = []
        self._over: list[str] = []
        self.labels: list[str] = []

    def px(self, x: float) -> float:
        """A place on the horizontal axis in the picture's units."""
        low, high = self._x
        return self._left + (x - low) / (high - low) * (self._width - self._left - self._right)

    def py(self, y: float) -> float:
        """The same for the vertical axis; far outside stops a little outside."""
        low, high = self._y
        share = min(max((y - low) / (high - low), -2.0), 3.0)
        return self._height - self._bottom - share * (self._height - self._top - self._bottom)

    def area(
        self, x: Sequence[float], low: Sequence[Number], high: Sequence[Number], fill: str, opacity: float
    ) -> None:
        """The area between two lines; it stops where either has no value."""
        for run in _runs(x, low, high):
            up = [self._at(x[i], high[i]) for i in run]
            down = [self._at(x[i], low[i]) for i in reversed(run)]
            if len(run) == 1:  # one bucket: a thin stroke, not nothing
                self._under.append(f'<path d="M{up[0]}L{down[0]}" stroke="{fill}" stroke-opacity="{opacity:g}"/>')
                continue
            self._under.append(f'<path d="M{"L".join(up + down)}Z" fill="{fill}" fill-opacity="{opacity:g}"/>')

    def line(self, x: Sequence[float], y: Sequence[Number], stroke: str, *, width: float = 1.6, dash: str = "",
             opacity: float = 1.0) -> None:  # fmt: skip
        """A line that stops where there is no value; a single point becomes a dot."""
        pattern = f' stroke-dasharray="{dash}"' if dash else ""
        pattern += f' stroke-opacity="{opacity:g}"' if opacity < 1.0 else ""
        parts: list[str] = []
        for run in _runs(x, y):
            at = [self._at(x[i], y[i]) for i in run]
            parts.append(f"M{'L'.join(at)}" if len(at) > 1 else f"M{at[0]}h.01")
        if parts:
            self._under.append(
                f'<path d="{"".join(parts)}" fill="none" stroke="{stroke}" stroke-width="{width:g}"{pattern} '
                'stroke-linejoin="round" stroke-linecap="round"/>'
            )

    def points(self, x: Sequence[float], y: Sequence[Number], stroke: str, shape: str) -> None:
        """Marks at single values: a filled diamond, a hollow circle, or a hollow square."""
        size = 2.4 if self._small else 3.2
        parts: list[str] = []
        for i in (i for run in _runs(x, y) for i in run):
            px, py = self.px(x[i]), self.py(_value(y[i]))
            if shape == "diamond":
                parts.append(f"M{px - size:.1f} {py:.1f}l{size} {-size}l{size} {size}l{-size} {size}z")
            elif shape == "square":
                side = size * 0.8
                parts.append(f"M{px - side:.1f} {py - side:.1f}h{2 * side:g}v{2 * side:g}h{-2 * side:g}z")
            else:
                r = size * 0.9
                parts.append(f"M{px - r:.1f} {py:.1f}a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0")
        fill = stroke if shape == "diamond" else "#ffffff"
        if parts:
            self._under.append(f'<path d="{"".join(parts)}" fill="{fill}" stroke="{stroke}" stroke-width="1"/>')

    def whiskers(self, x: Sequence[float], low: Sequence[Number], high: Sequence[Number], stroke: str) -> None:
        """A vertical stroke from low to high at each place."""
        parts = [
            f"M{self._at(x[i], low[i])}V{self.py(_value(high[i])):.1f}" for run in _runs(x, low, high) for i in run
        ]
        if parts:
            self._under.append(f'<path d="{"".join(parts)}" fill="none" stroke="{stroke}" stroke-width="1"/>')

    def level(self, y: float, stroke: str, dash: str) -> None:
        """A horizontal line over the whole plane."""
        at = f"M{self._left} {self.py(y):.1f}H{self._width - self._right}"
        self._under.append(f'<path d="{at}" fill="none" stroke="{stroke}" stroke-width="1" stroke-dasharray="{dash}"/>')

    def upright(self, x: float, stroke: str, dash: str = "") -> None:
        """A vertical line over the whole plane."""
        pattern = f' stroke-dasharray="{dash}"' if dash else ""
        at = f"M{self.px(x):.1f} {self._top}V{self._height - self._bottom}"
        self._under.append(f'<path d="{at}" fill="none" stroke="{stroke}" stroke-width="1.2"{pattern}/>')

    def shade(self, low: float, high: float, fill: str) -> None:
        """A span of the horizontal axis."""
        x = self.px(low)
        size = f'width="{max(self.px(high) - x, 1.5):.1f}" height="{self._height - self._top - self._bottom}"'
        self._under.append(f'<rect x="{x:.1f}" y="{self._top}" {size} fill="{fill}" fill-opacity=".18"/>')

    def beyond(self, x: Sequence[float], *, above: bool, stroke: str) -> None:
        """Triangles at the edge where something runs out of the picture."""
        edge, tip = (self._top + 6, -6) if above else (self._height - self._bottom - 6, 6)
        parts = [f"M{self.px(v) - 3:.1f} {edge}h6l-3 {tip}z" for v in x]
        if parts:
            self._over.append(f'<path d="{"".join(parts)}" fill="{stroke}"/>')

    def rug(self, x: Sequence[float], stroke: str) -> None:
        """Crosses at the foot of the plane."""
        foot = self._height - self._bottom - 5
        parts = [f"M{self.px(v) - 3:.1f} {foot - 3}l6 6m0 -6l-6 6" for v in x]
        if parts:
            self._over.append(f'<path d="{"".join(parts)}" fill="none" stroke="{stroke}" stroke-width="1.4"/>')

    def ticks_on_top(self, x: Sequence[float], stroke: str) -> None:
        """Short strokes down from the upper edge."""
        parts = [f"M{self.px(v):.1f} {self._top}v7" for v in x]
        if parts:
            self._over.append(f'<path d="{"".join(parts)}" fill="none" stroke="{stroke}" stroke-width="1.4"/>')

    def render(self, title: str, told: str, x_title: str, x_text: Ticks, y_text: Ticks) -> str:
        """The picture. `told` is what a reader who cannot see it is told."""
        right, foot = self._width - self._right, self._height - self._bottom
        size = 10 if self._small else 11
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" role="img" '
            f'aria-labelledby="{self._key}-t {self._key}-d" font-family="{FONT}" font-size="{size}">',
            f'<title id="{self._key}-t">{escape(title)}</title><desc id="{self._key}-d">{escape(told)}</desc>',
            f'<clipPath id="{self._key}-c"><rect x="{self._left}" y="{self._top - 1}" width="{right - self._left}" '
            f'height="{foot - self._top + 2}"/></clipPath>',
            f'<rect x="0" y="0" width="{self._width}" height="{self._height}" fill="#ffffff"/>',
        ]
        grid: list[str] = []
        words: list[str] = []
        for value, text in y_text:
            at = self.py(value)
            grid.append(f"M{self._left} {at:.1f}H{right}")
            words.append(f'<text x="{self._left - 5}" y="{at + 3.5:.1f}" text-anchor="end">{escape(text)}</text>')
        for value, text in x_text:
            at = self.px(value)
            grid.append(f"M{at:.1f} {self._top}V{foot}")
            anchor = "end" if at > right - 14 else "middle"
            words.append(f'<text x="{at:.1f}" y="{foot + 14}" text-anchor="{anchor}">{escape(text)}</text>')
        parts.append(f'<path d="{"".join(grid)}" fill="none" stroke="{RULE}" stroke-width="1"/>')
        parts.append(f'<g clip-path="url(#{self._key}-c)">{"".join(self._under)}</g>{"".join(self._over)}')
        parts.append(
            f'<path d="M{self._left} {self._top}V{foot}H{right}" fill="none" stroke="{MUTED}" stroke-width="1"/>'
        )
        parts.append(f'<g fill="{MUTED}">{"".join(words)}')
        middle = (self._left + right) / 2
        parts.append(f'<text x="{middle:.0f}" y="{foot + 27}" text-anchor="middle">{escape(x_title)}</text></g></svg>')
        return "".join(parts)

    def _at(self, x: float, y: Number) -> str:
        return f"{self.px(x):.1f} {self.py(_value(y)):.1f}"


def _runs(x: Sequence[float], *columns: Sequence[Number]) -> list[list[int]]:
    """Indices without a missing value, in unbroken runs."""
    found: list[list[int]] = [[]]
    for i in range(len(x)):
        if all(column[i] is not None for column in columns):
            found[-1].append(i)
        elif found[-1]:
            found.append([])
    return [run for run in found if run]


def _value(value: Number) -> float:
    assert value is not None
    return value
