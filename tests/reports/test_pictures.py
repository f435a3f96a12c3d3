"""The SVG of a report: well formed, nothing that runs, and no spike lost."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.reports.curves import line
from service.reports.svg import Plot, nice_ticks

maybe = st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=40)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 12))
def test_ticks_are_few_and_within(low: float, span: float, most: int) -> None:
    found = nice_ticks(low, low + span, most)
    assert len(found) <= most + 1
    assert all(low - 1e-6 * abs(low) - span * 1e-6 <= tick <= low + span * 1.000001 + 1e-6 * abs(low) for tick in found)


@given(maybe)
def test_every_picture_is_well_formed_whatever_is_missing(values: list[float | None]) -> None:
    x = [float(i) for i in range(len(values))]
    plot = Plot("f1", 720, 270, (-1.0, float(len(values))), (-10.0, 10.0))
    plot.line(x, values, "#000000")
    plot.area(x, values, values, "#000000", 0.2)
    plot.points(x, values, "#000000", "diamond")
    plot.whiskers(x, values, values, "#000000")
    root = ET.fromstring(plot.render('<script>"&', "told", "tokens", [(0.0, "<0>")], [(0.0, "0")]))
    assert not [e for e in root.iter() if e.tag.endswith("script")]
    assert not any(name.startswith("on") or name == "style" for e in root.iter() for name in e.attrib)
    assert root[0].text == '<script>"&'


def test_a_spike_of_one_step_is_in_the_area_of_its_bucket() -> None:
    high = np.full(500, 2.5)
    high[123] = 11.0
    made = line(np.arange(500.0), np.full(500, 2.5), np.full(500, 2.4), high, np.zeros(500, np.bool_))
    assert max(v for v in made.high if v is not None) == 11.0
    plot = Plot("f1", 720, 270, (0.0, 499.0), (2.0, 12.0))
    plot.area(made.tokens, made.low, made.high, "#000000", 0.2)
    text = plot.render("t", "d", "tokens", [], [])
    assert f"{plot.px(123.0):.1f} {plot.py(11.0):.1f}" in text
