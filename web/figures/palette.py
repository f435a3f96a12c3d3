"""The colours of a figure, one set per theme. Run and reference differ in dash too, never by colour alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours as `#rrggbb`. Lines reach 3 : 1 and text 4.5 : 1 against `surface`."""

    surface: str
    ink: str
    muted: str
    grid: str
    run: str
    reference: str
    tolerance: str
    heldout: str
    alert: str
    onset: str
    segment: str
    segment_alternate: str
    branch: str
    runs: tuple[str, ...]  # of a comparison: Okabe and Ito's colours, darkened or lightened to reach 3 : 1


LIGHT = Palette(
    surface="#ffffff",
    ink="#1b1f24",
    muted="#59616b",
    grid="#e7e9ec",
    run="#1a5fb4",
    reference="#5d6670",
    tolerance="#7c8794",
    heldout="#0b7a66",
    alert="#b3261e",
    onset="#c96a00",
    segment="#7b93b5",
    segment_alternate="#a9b8cd",
    branch="#8e4585",
    runs=("#1a5fb4", "#b34700", "#007a5a", "#9c3f7f", "#5d6670", "#7a6a00", "#0f7fa8", "#a31b14"),
)
DARK = Palette(
    surface="#171a1f",
    ink="#e6e9ed",
    muted="#a3abb6",
    grid="#2a2f37",
    run="#6fb1ff",
    reference="#aab3bf",
    tolerance="#8f9aa8",
    heldout="#4fd1b5",
    alert="#ff8a80",
    onset="#ffb454",
    segment="#4d6485",
    segment_alternate="#6f86a8",
    branch="#e39bd8",
    runs=("#6fb1ff", "#ffa04d", "#4fd1a0", "#e39bd8", "#aab3bf", "#e0d24a", "#6cd4f5", "#ff8a80"),
)


def palette_of(theme: str) -> Palette:
    """The colours for `light` or `dark`; anything else is light."""
    return DARK if theme == "dark" else LIGHT


def fade(color: str, opacity: float) -> str:
    """`#rrggbb` with an opacity from 0 to 1, as CSS."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"
