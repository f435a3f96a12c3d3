"""The ribbons of segments under the curves."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from service.runs.repository import RunRepository, SegmentRow
from web import formatting
from web.content.panels import Group, Panel
from web.content.scene import Scene
from web.figures.segments import SegmentBar, add_strip, segments_figure, strip

DETAILS = 6  # lines of topology and versions in a hover box


def segments(scene: Scene) -> Group:
    """The live trainer starts, each up to where the next one took over."""
    bars, superseded = _bars(scene)
    if not bars:
        return Group()
    words = f"1 segment, {bars[0].details[0]}" if len(bars) == 1 else f"{len(bars)} segments, the newest "
    words += bars[-1].details[0] if len(bars) > 1 else ""
    if superseded:
        words += f", {superseded} more wholly superseded by later starts"
    words += ". The same blocks lie under every chart; the table of starts has them in words."
    figure = segments_figure(bars, palette=scene.palette, axis=scene.axis, x_range=scene.x_range)
    return Group([Panel("segments", "Segments", words, figure)])


def with_ribbon(group: Group, scene: Scene) -> Group:
    """The same figures with the run's segments at the foot of each."""
    bars, _ = _bars(scene)
    if not bars or not group.panels:
        return group
    for panel in group.panels:
        add_strip(panel.figure["layout"])
    return replace(group, ribbon=strip(bars, scene.palette))


def _bars(scene: Scene) -> tuple[list[SegmentBar], int]:
    """The live segments, and how many are wholly superseded."""
    rows = [r for r in RunRepository(scene.session).segments(scene.run.id) if r.segment.kind != "evaluator"]
    live = [row for row in rows if not row.superseded]
    if not live or len(scene.ruler.steps) == 0:
        return [], 0
    newest = float(scene.ruler.steps[-1])
    bars = [_bar(scene, row, number, newest) for number, row in enumerate(live, 1)]
    return bars, len(rows) - len(live)


def _bar(scene: Scene, row: SegmentRow, number: int, newest: float) -> SegmentBar:
    segment = row.segment
    end = newest if row.live_to_step is None else min(float(row.live_to_step), newest)
    details = [f"from step {formatting.step(segment.start_step + 1)} to {formatting.step(end)}"]
    if segment.started_at > 1e6:
        details.append(f"started {formatting.utc(segment.started_at)}")
    details += [f"{name}: {_text(value)}" for name, value in [*segment.topology.items(), *segment.versions.items()]]
    start = scene.ruler.of_step(max(float(segment.start_step), float(scene.ruler.steps[0])))
    return SegmentBar(start, scene.ruler.of_step(end), _label(segment.topology, number), details[: 2 + DETAILS])


def _label(topology: dict[str, Any], number: int) -> str:
    kind, devices = topology.get("device_kind"), topology.get("devices")
    return f"{number}: {devices} × {kind}" if kind and devices else str(number)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:120] + "…"
