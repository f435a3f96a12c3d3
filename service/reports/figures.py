"""The charts of a report as SVG. Run: a solid line; reference: dashed; tolerance: a grey band with edges. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.reports import words
from service.reports.document import Chart, Line, Mark, Report
from service.reports.svg import Number, Plot, nice_ticks

RUN, REFERENCE, SECOND, BAND, ONSET, ALERT = "#0b4f9e", "#6a6f76", "#0b7a66", "#8d96a0", "#c96a00", "#8f1d16"
WIDE, HIGH = 720, 270
SMALL_WIDE, SMALL_HIGH = 340, 170
MARKED = 60  # points: above, their marks only clutter
EARLY = 0.05  # of the run's width: a loss falls so steeply there that it would flatten the rest
CUT = 0.01


def figure(chart: Chart, report: Report, number: int) -> str:
    """One chart; `number` makes its ids unique on the page."""
    small = chart.key.startswith("task ")
    x_range = _x_range(report)
    if x_range is None:
        return ""
    y_range = _y_range(chart, x_range)
    width, height = (SMALL_WIDE, SMALL_HIGH) if small else (WIDE, HIGH)
    plot = Plot(f"f{number}", width, height, x_range, y_range, small=small)
    _marks(plot, report.marks, x_range)
    _tolerance(plot, chart, x_range)
    faint = chart.smooth is not None
    if chart.reference is not None:
        _curve(plot, chart, chart.reference, REFERENCE, "5 3", "circle", faint=faint and chart.band is not None)
    if chart.second is not None:
        _curve(plot, chart, chart.second, SECOND, "1 3", "square")
    _curve(plot, chart, chart.run, RUN, "", "diamond", faint=faint)
    if chart.smooth is not None:
        if chart.band is not None and chart.reference is not None:
            plot.line(*chart.band, REFERENCE, width=2.0, dash="6 3")
        plot.line(*chart.smooth, RUN, width=2.4)
    _beyond(plot, chart, x_range, y_range)
    if not small:
        inside = [s.start_tokens for s in report.segments if s.start_tokens is not None and s.kind != "evaluator"]
        plot.ticks_on_top([t for t in inside if x_range[0] <= t <= x_range[1]], "#1b1f24")
    digits = _digits(y_range)
    x_text = [(v, words.tokens(v)) for v in nice_ticks(*x_range, 4 if small else 8)]
    y_text = [(v, words.number(v, digits)) for v in nice_ticks(*y_range, 4 if small else 6)]
    return plot.render(chart.title, told(chart), "tokens", x_text, y_text)


def legend(chart: Chart, report: Report) -> list[str]:
    """What the lines mean, in words: they differ in dash and mark, not by colour alone."""
    exact = not chart.reference or len(chart.run.tokens) <= MARKED
    parts = ["solid line, diamonds: run" if exact and chart.key != "train" else "solid line: run"]
    if chart.reference is not None:
        circles = ", circles" if len(chart.reference.tokens) <= MARKED else ""
        parts.append(f"dashed line{circles}: reference")
    if chart.second is not None:
        parts.append("dotted line, squares: held-out loss")
    if chart.tolerance is not None:
        parts.append(f"grey band: tolerance ±{words.number(chart.tolerance, 4)}")
    wide = any(low != high for low, high in zip(chart.run.low, chart.run.high, strict=True))
    if wide and chart.key.startswith(("heldout", "task", "mean")):
        parts.append("whiskers: 95 % interval of the deviation")
    if report.marks and not chart.key.startswith("task "):
        parts.append("shaded and dashed upright: where it began; solid upright: when the alert was raised")
    if chart.run.spoilt or (chart.reference is not None and chart.reference.spoilt):
        parts.append("crosses at the foot: NaN or infinite")
    return parts


def told(chart: Chart) -> str:
    """The chart in a sentence, for who cannot see it."""
    known = [(x, y) for x, y in zip(chart.run.tokens, chart.run.mean, strict=True) if y is not None]
    if not known:
        return f"{chart.title}: no finite value."
    digits = words.DIGITS.get(chart.unit, 4)
    text = (
        f"{chart.title}, in {chart.unit}, over tokens: from {words.number(known[0][1], digits)} at "
        f"{words.tokens(known[0][0])} to {words.number(known[-1][1], digits)} at {words.tokens(known[-1][0])} tokens"
    )
    lows = [v for v in chart.run.low if v is not None]
    highs = [v for v in chart.run.high if v is not None]
    if chart.key == "train" and lows and highs:
        text += f"; single values between {words.number(min(lows), digits)} and {words.number(max(highs), digits)}"
    if chart.reference is not None:
        ends = [y for y in chart.reference.mean if y is not None]
        text += f"; the reference ends at {words.number(ends[-1], digits)}" if ends else ""
    if chart.run.spoilt:
        text += f"; {len(chart.run.spoilt)} places hold NaN or infinite values"
    return f"{text}."


def _curve(plot: Plot, chart: Chart, line: Line, color: str, dash: str, shape: str, *, faint: bool = False) -> None:
    few = len(line.tokens) <= MARKED and chart.key != "train"
    wide = any(low != high for low, high in zip(line.low, line.high, strict=True))
    if wide and few:
        plot.whiskers(line.tokens, line.low, line.high, color)
    elif wide:
        plot.area(line.tokens, line.low, line.high, color, 0.22)
    if faint:
        plot.line(line.tokens, line.mean, color, width=0.8, opacity=0.4)
    else:
        plot.line(line.tokens, line.mean, color, width=1.4 if dash else 1.7, dash=dash)
    if few:
        plot.points(line.tokens, line.mean, color, shape)
    plot.rug([line.tokens[i] for i in line.spoilt], ALERT)


def _tolerance(plot: Plot, chart: Chart, x_range: tuple[float, float]) -> None:
    if chart.tolerance is None:
        return
    if chart.key == "gap":
        plot.area(x_range, [-chart.tolerance] * 2, [chart.tolerance] * 2, BAND, 0.22)
        for y in (-chart.tolerance, chart.tolerance):
            plot.level(y, BAND, "2 2")
        plot.level(0.0, REFERENCE, "5 3")
        return
    if chart.band is None:
        return
    x, middle = chart.band
    low: list[Number] = [y - chart.tolerance for y in middle]
    high: list[Number] = [y + chart.tolerance for y in middle]
    plot.area(x, low, high, BAND, 0.3)
    for edge in (low, high):
        plot.line(x, edge, BAND, width=0.8, dash="2 2")


def _marks(plot: Plot, marks: Sequence[Mark], x_range: tuple[float, float]) -> None:
    for mark in marks:
        low, high = max(mark.onset[0], x_range[0]), min(mark.onset[1], x_range[1])
        if low <= high:
            plot.shade(low, high, ONSET)
            plot.upright(high, ONSET, "4 3")
        if x_range[0] <= mark.raised <= x_range[1]:
            plot.upright(mark.raised, ALERT)


def _beyond(plot: Plot, chart: Chart, x_range: tuple[float, float], y_range: tuple[float, float]) -> None:
    """A spike that runs out of the picture leaves a triangle at the edge. The steep beginning does not."""
    late = x_range[0] + EARLY * (x_range[1] - x_range[0])
    line = chart.run
    up = [x for x, y in zip(line.tokens, line.high, strict=True) if y is not None and y > y_range[1] and x > late]
    down = [x for x, y in zip(line.tokens, line.low, strict=True) if y is not None and y < y_range[0]]
    plot.beyond(up, above=True, stroke=RUN)
    plot.beyond(down, above=False, stroke=RUN)


def _x_range(report: Report) -> tuple[float, float] | None:
    """The same for all: what stands above each other belongs together."""
    x = [v for chart in report.charts for v in chart.run.tokens]
    if not x:
        return None
    low, high = min(x), max(x)
    pad = 0.02 * (high - low) or max(abs(high) * 0.1, 1.0)
    return low - pad, high + pad


def _y_range(chart: Chart, x_range: tuple[float, float]) -> tuple[float, float]:
    """What shows the curves, but for the steep beginning of a training loss and the rarest extremes."""
    late = x_range[0] + EARLY * (x_range[1] - x_range[0]) if chart.key == "train" else -np.inf
    lines = [line for line in (chart.run, chart.reference, chart.second) if line is not None]
    low = [v for one in lines for x, v in zip(one.tokens, one.low, strict=True) if v is not None and x >= late]
    high = [v for one in lines for x, v in zip(one.tokens, one.high, strict=True) if v is not None and x >= late]
    if not low:
        low = high = [v for one in lines for v in one.mean if v is not None] or [0.0]
    cut = CUT if len(low) > MARKED else 0.0
    ends = [float(np.quantile(low, cut)), float(np.quantile(high, 1.0 - cut))]
    if chart.tolerance is not None:
        if chart.key == "gap":
            ends += [-1.15 * chart.tolerance, 1.15 * chart.tolerance]
        elif chart.band is not None:
            kept = [y for x, y in zip(*chart.band, strict=True) if x >= late]
            ends += [min(kept) - chart.tolerance, max(kept) + chart.tolerance] if kept else []
    bottom, top = min(ends), max(ends)
    pad = 0.05 * (top - bottom) or max(abs(top) * 0.05, 0.01)
    return bottom - pad, top + pad


def _digits(y_range: tuple[float, float]) -> int:
    ticks = nice_ticks(*y_range, 6)
    apart = ticks[1] - ticks[0] if len(ticks) > 1 else abs(ticks[0]) or 1.0
    return int(max(0, -np.floor(np.log10(max(apart, 1e-9)) + 1e-9)))
