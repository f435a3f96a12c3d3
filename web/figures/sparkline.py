"""A gap as a small picture for a list: no axes, the tolerance as a band, the line of nought."""

from __future__ import annotations

import numpy as np

from web.figures.curve import Floats

WIDTH, HEIGHT = 132, 34  # pixels
PAD = 3
# One picture serves both themes: these reach 3 : 1 on white and on the dark surface.
LINE, BAND, NOUGHT, BEYOND = "#4a88c7", "#8a93a0", "#8a93a0", "#d2691e"


def sparkline(gap: Floats, tolerance: float | None) -> str:
    """An SVG of `gap` (n,), in nats, in the order of tokens; values beyond ± `tolerance` are drawn thicker, in
    another colour, and the scale holds two tolerances at least, so that a quiet run looks quiet."""
    value = gap[np.isfinite(gap)]
    body = ""
    if len(value):
        reach = max(2 * (tolerance or 0.0), float(np.max(np.abs(value))), 1e-12)
        y = HEIGHT / 2 - value / reach * (HEIGHT / 2 - PAD)
        x = np.linspace(PAD, WIDTH - PAD, len(value)) if len(value) > 1 else np.array([WIDTH / 2])
        if tolerance is not None:
            half = tolerance / reach * (HEIGHT / 2 - PAD)
            top = HEIGHT / 2 - half
            body += f'<rect x="0" y="{top:.1f}" width="{WIDTH}" height="{2 * half:.1f}" fill="{BAND}" opacity=".25"/>'
        body += f'<path d="M0 {HEIGHT / 2}H{WIDTH}" stroke="{NOUGHT}" stroke-width=".7" stroke-dasharray="3 3"/>'
        places = [f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True)]
        if len(places) > 1:
            body += f'<path d="M{"L".join(places)}" fill="none" stroke="{LINE}" stroke-width="1.5"/>'
        beyond = np.abs(value) > tolerance if tolerance is not None else np.zeros(len(value), np.bool_)
        body += _beyond(places, beyond)
        color = BEYOND if beyond[-1] else LINE
        body += f'<circle cx="{x[-1]:.1f}" cy="{y[-1]:.1f}" r="2.2" fill="{color}"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}">{body}</svg>'
    )


def _beyond(places: list[str], beyond: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> str:
    pieces: list[list[str]] = [[]]
    for place, outside in zip(places, beyond, strict=True):
        if outside:
            pieces[-1].append(place)
        elif pieces[-1]:
            pieces.append([])
    paths = "".join(f"M{'L'.join(piece)}" for piece in pieces if len(piece) > 1)
    return f'<path d="{paths}" fill="none" stroke="{BEYOND}" stroke-width="2.4"/>' if paths else ""
