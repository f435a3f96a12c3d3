"""What other settings would have raised on the stored points, beside what those in force raise. Saves nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from service.backtests.timeline import Stretch, Timeline, stretches, told
from service.detect.inputs import RuleSetting, RunView


@dataclass(frozen=True, slots=True)
class Preview:
    """Stretches of "yes" with the settings in force (`before`) and with those tried (`after`), looks `every` apart."""

    before: list[Stretch]
    after: list[Stretch]
    every: int


def preview(
    timeline: Timeline, tried: Mapping[str, RuleSetting], every: int | None, rules: Sequence[str] | None = None
) -> Preview:
    """Judge the same timeline twice. `tried` holds the settings of every rule as they would be, by rule."""
    return preview_views(timeline, [replace(view, settings=tried) for view in timeline.views], every, rules)


def preview_views(
    timeline: Timeline, tried: list[RunView], every: int | None, rules: Sequence[str] | None = None
) -> Preview:
    """The same with the timeline's views as they would be."""
    before = told(timeline, every, rules)
    changed = replace(timeline, views=tried, looks=[])
    after = told(changed, every, rules)
    looks = timeline.looks
    spacing = every or max((b.step - a.step for a, b in pairwise(looks)), default=1)
    return Preview(stretches(before), stretches(after), spacing)


def in_words(found: Preview) -> list[str]:
    """What differs, a line per rule; one line where nothing does."""
    lines: list[str] = []
    for rule in dict.fromkeys(s.rule for s in [*found.before, *found.after]):
        was, would = ([s for s in side if s.rule == rule] for side in (found.before, found.after))
        if _spans(was) != _spans(would):
            lines.append(f"{rule}: said yes {_when(was)}; would have said yes {_when(would)}")
    return lines or [f"Nothing would have changed, at looks {found.every:,} steps apart."]


def _spans(found: Sequence[Stretch]) -> list[tuple[int, int | None]]:
    return [(s.from_step, s.to_step) for s in found]


def _when(found: Sequence[Stretch]) -> str:
    if not found:
        return "never"
    spans = [f"from step {s.from_step:,}" + ("" if s.to_step is None else f" to {s.to_step:,}") for s in found]
    return ", ".join(spans[:5]) + (f" and {len(spans) - 5} times more" if len(spans) > 5 else "")
