"""What a reader has chosen to see; it lives in the address, so that a link shows the same view."""

from __future__ import annotations

from dataclasses import dataclass

from web.figures.layout import AxisKind


@dataclass(frozen=True, slots=True)
class Choices:
    """`window` is the part of the horizontal axis that is shown, in its unit (tokens, steps, or milliseconds since
    1970); None: all. `smooth` draws means over the points, `superseded` also what later starts replaced."""

    axis: AxisKind = "tokens"
    window: tuple[float, float] | None = None
    log: bool = False
    smooth: bool = True
    superseded: bool = False

    @classmethod
    def of(
        cls,
        axis: AxisKind = "tokens",
        *,
        low: float | None = None,
        high: float | None = None,
        log: bool = False,
        smooth: bool = True,
        superseded: bool = False,
    ) -> Choices:
        """Choices of an address; a window that is none is left out."""
        window = (low, high) if low is not None and high is not None and low < high else None
        return cls(axis, window, log, smooth, superseded)
