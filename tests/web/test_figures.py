"""Figures are pure: arrays in, Plotly dictionaries out, with numbers that can be checked by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.web.decoding import decode, shapes, trace
from web.figures.curve import MARKED, MAX_POINTS, RUG_AXIS, Curve, plain, value_range
from web.figures.downstream import Accuracy, accuracy_figure, mean_of
from web.figures.gap import Gap, gap_figure
from web.figures.heldout import heldout_figure
from web.figures.layout import Mark
from web.figures.loss import loss_figure
from web.figures.palette import DARK, LIGHT, Palette
from web.figures.schedule import curve_figure
from web.figures.segments import SegmentBar, segments_figure

X = np.array([1.0, 2.0, 3.0, 4.0])
MARK = Mark((2.0, 3.0), 3.5, "since step 2 to 3")


def points(x: np.ndarray, *values: float) -> Curve:
    return Curve.of(x, values)


def test_the_curve_of_few_points_is_those_points() -> None:
    curve = points(X, 4.0, 3.0, 2.0, 1.0)
    assert curve.mean.tolist() == curve.minimum.tolist() == curve.maximum.tolist() == [4.0, 3.0, 2.0, 1.0]
    assert not curve.spoilt.any()


@settings(deadline=None)
@given(
    arrays(np.float64, st.integers(MAX_POINTS - 3, 3 * MAX_POINTS), elements=st.floats(-50, 50, width=32)),
    st.integers(0, MAX_POINTS - 4),
)
def test_reduction_keeps_extremes_and_marks_what_is_not_finite(values: np.ndarray, bad: int) -> None:
    x = np.arange(len(values), dtype=np.float64)
    values = values.copy()
    values[bad] = np.nan
    curve = Curve.of(x, values)
    assert len(curve) <= MAX_POINTS
    assert np.nanmin(curve.minimum) == np.nanmin(values)
    assert np.nanmax(curve.maximum) == np.nanmax(values)
    assert int(curve.spoilt.sum()) == 1
    assert (np.diff(curve.x) > 0).all()


@settings(deadline=None)
@given(
    st.lists(st.floats(-1000, 1000), max_size=60, unique=True).map(sorted), st.floats(-800, 800), st.floats(0.001, 500)
)
def test_a_picture_of_a_window_draws_the_same_lines_as_the_whole_curve(
    places: list[float], low: float, width: float
) -> None:
    whole = Curve.of(places, np.sin(places))
    near = whole.near((low, low + width))
    assert whole.near(None).x.tolist() == places
    assert near.between(low, low + width).x.tolist() == whole.between(low, low + width).x.tolist()
    assert set(whole.between(low - width, low + 2 * width).x) <= set(near.x)
    inside = np.linspace(low, low + width, 7)
    known = [x for x in inside if len(places) > 1 and places[0] <= x <= places[-1]]
    if known:
        assert np.interp(known, near.x, near.mean).tolist() == np.interp(known, whole.x, whole.mean).tolist()
    outside = len(near) - len(whole.between(low - width, low + 2 * width))
    assert outside <= 2


def test_many_evaluations_are_a_line_in_a_band_and_few_are_marked() -> None:
    x = np.arange(1.0, 1001.0)
    many = Gap(x, np.sin(x), np.sin(x) - 1, np.sin(x) + 1)
    whole = gap_figure(Gap(X, X, X, X), palette=LIGHT, axis="steps", heldout=many)
    shown = trace(whole, "held-out gap")
    assert (shown["mode"], len(decode(shown["x"])), "error_y" in shown) == ("lines", 1000, False)
    zoomed = gap_figure(Gap(X, X, X, X), palette=LIGHT, axis="steps", heldout=many, x_range=(500.0, 530.0))
    shown = trace(zoomed, "held-out gap")
    assert shown["mode"] == "lines+markers"
    assert len(decode(shown["error_y"]["array"])) == len(decode(shown["x"])) < MARKED
    assert decode(shown["x"])[[0, -1]].tolist() == [469.0, 561.0]


def test_loss_lays_the_run_over_the_reference_with_its_tolerance() -> None:
    figure = loss_figure(
        points(X, 4.0, 3.0, 2.0, 1.0),
        points(X, 4.1, 3.1, 2.1, 1.1),
        palette=LIGHT,
        axis="tokens",
        tolerance=0.5,
        marks=[MARK],
    )
    assert decode(trace(figure, "run")["y"]).tolist() == [4.0, 3.0, 2.0, 1.0]
    assert decode(trace(figure, "reference")["y"]).tolist() == [4.1, 3.1, 2.1, 1.1]
    assert trace(figure, "reference")["line"]["dash"] == "dash"
    upper = trace(figure, "tolerance ±0.5")
    lower = figure["data"][figure["data"].index(upper) - 1]
    assert decode(upper["y"]) == pytest.approx([4.6, 3.6, 2.6, 1.6])
    assert decode(lower["y"]) == pytest.approx([3.6, 2.6, 1.6, 0.6])


def test_alert_is_marked_at_its_onset_and_where_it_was_raised() -> None:
    figure = gap_figure(
        Gap(X, X, X - 0.1, X + 0.1), palette=LIGHT, axis="steps", marks=[MARK, Mark((1, 1), 2, "old", open=False)]
    )
    rect, line = shapes(figure, "onset")[:2]
    assert (rect["x0"], rect["x1"]) == (2.0, 3.0)
    assert (line["x0"], line["x1"]) == (3.0, 3.0)
    assert [shape["x0"] for shape in shapes(figure, "alert")] == [3.5, 2]
    assert [shape["line"]["dash"] for shape in shapes(figure, "alert")] == ["solid", "dot"]
    assert [a["text"] for a in figure["layout"]["annotations"]] == ["since step 2 to 3", "old"]


def test_values_that_are_not_finite_are_a_rug_and_never_move_the_range() -> None:
    run = points(np.arange(6.0), 2.0, float("nan"), 2.1, float("inf"), float("-inf"), 2.2)
    figure = loss_figure(run, None, palette=LIGHT, axis="steps")
    rug = trace(figure, "NaN or infinite")
    assert rug["yaxis"] == RUG_AXIS
    assert decode(rug["x"]).tolist() == [1.0, 3.0, 4.0]
    low, high = figure["layout"]["yaxis"]["range"]
    assert 1.8 < low < 2.0
    assert 2.2 < high < 2.4
    drawn = decode(trace(figure, "run")["y"])
    assert np.isnan(drawn).tolist() == [False, True, False, True, True, False]


def test_a_spike_of_one_step_stays_in_the_band() -> None:
    values = np.full(50_000, 2.0)
    values[31_415] = 9.0
    figure = loss_figure(Curve.of(np.arange(50_000.0), values), None, palette=LIGHT, axis="steps")
    upper = next(t for t in figure["data"] if t.get("fill") == "tonexty")
    assert decode(upper["y"]).max() == 9.0
    assert figure["layout"]["yaxis"]["range"][1] < 3.0  # it runs out of the picture instead of flattening the rest


def test_gap_shows_tolerance_about_zero_and_both_gaps() -> None:
    gap = np.array([0.0, -0.1, -0.2, -0.3])
    held = Gap(X[1:], np.array([0.0, 0.01, np.nan]), np.full(3, np.nan), np.full(3, np.nan))
    figure = gap_figure(Gap(X, gap, gap - 0.02, gap + 0.02), palette=LIGHT, axis="tokens", heldout=held, tolerance=0.05)
    (band,) = shapes(figure, "tolerance")
    assert (band["y0"], band["y1"], band["xref"]) == (-0.05, 0.05, "paper")
    assert decode(trace(figure, "train gap")["y"]).tolist() == gap.tolist()
    assert decode(trace(figure, "held-out gap")["y"]).tolist() == [0.0, 0.01]
    assert "error_y" not in trace(figure, "held-out gap")
    low, high = figure["layout"]["yaxis"]["range"]
    assert low < -0.3
    assert high > 0.05


def test_heldout_marks_each_evaluation() -> None:
    figure = heldout_figure(
        points(X, 3.5, 3.4, 3.3, 3.2), points(X, 3.5, 3.3, 3.1, 2.9), palette=DARK, axis="steps", tolerance=0.1
    )
    assert trace(figure, "run")["mode"] == "lines+markers"
    assert trace(figure, "run")["marker"]["symbol"] != trace(figure, "reference")["marker"]["symbol"]
    assert figure["layout"]["yaxis"]["range"][0] < 2.9


def test_accuracy_carries_the_binomial_error() -> None:
    task = Accuracy.of_task(X, np.array([0.5, 0.8, 1.0, np.nan]), 100)
    assert task.error[:3] == pytest.approx([0.05, 0.04, 0.0])
    figure = accuracy_figure(task, task, palette=LIGHT, axis="tokens", tolerance=0.02)
    run = trace(figure, "run ± standard error")
    assert decode(run["error_y"]["array"]) == pytest.approx([0.05, 0.04, 0.0])
    assert decode(trace(figure, "tolerance ±0.02")["y"])[:2] == pytest.approx([0.52, 0.82])


def test_many_accuracies_are_a_line_in_a_band() -> None:
    x = np.arange(400.0)
    figure = accuracy_figure(Accuracy.of_task(x, np.full(400, 0.5), 100), None, palette=LIGHT, axis="steps")
    assert "error_y" not in trace(figure, "run ± standard error")
    upper = next(t for t in figure["data"] if t.get("fill") == "tonexty")
    assert decode(upper["y"])[0] == pytest.approx(0.55)


def test_mean_of_tasks_where_all_have_a_value() -> None:
    first = Accuracy(np.array([1.0, 2.0, 3.0]), np.array([0.2, 0.4, 0.6]), np.array([0.03, 0.03, 0.03]))
    second = Accuracy(np.array([2.0, 3.0, 4.0]), np.array([0.6, 0.8, 1.0]), np.array([0.04, 0.04, 0.04]))
    mean = mean_of({"first": first, "second": second})
    assert mean.x.tolist() == [2.0, 3.0]
    assert mean.value == pytest.approx([0.5, 0.7])
    assert mean.error == pytest.approx([0.025, 0.025])  # sqrt(0.03² + 0.04²) / 2


def test_segments_are_bars_from_start_to_end() -> None:
    bars = [SegmentBar(0, 100, "1: 8 × TPU", ["from step 1"]), SegmentBar(100, 250, "<b>2</b>")]
    figure = segments_figure(bars, palette=LIGHT, axis="steps", x_range=(0, 250))
    (trace_,) = figure["data"]
    assert decode(trace_["base"]).tolist() == [0.0, 100.0]
    assert decode(trace_["x"]).tolist() == [100.0, 150.0]
    assert trace_["text"] == ["1: 8 × TPU", "&lt;b&gt;2&lt;/b&gt;"]
    assert trace_["marker"]["color"][0] != trace_["marker"]["color"][1]


@pytest.mark.parametrize("palette", [LIGHT, DARK])
@pytest.mark.parametrize("size", [0, 1, 3, 100_000])
def test_every_figure_of_any_size_is_json_and_bounded(palette: Palette, size: int) -> None:
    x = np.arange(size, dtype=np.float64)
    rng = np.random.default_rng(7)
    values = rng.normal(2.0, 0.1, size)
    values[: size // 3 : 7] = np.nan
    curve = Curve.of(x, values)
    gap = Gap(curve.x, curve.mean, curve.minimum, curve.maximum)
    task = Accuracy.of_task(curve.x, curve.mean / 4, 48)
    figures: list[dict[str, Any]] = [
        loss_figure(
            curve, curve, palette=palette, axis="tokens", tolerance=0.1, run_means=curve, reference_means=curve
        ),
        gap_figure(gap, palette=palette, axis="steps", heldout=gap, tolerance=0.1, x_range=(0, 10)),
        heldout_figure(curve, curve, palette=palette, axis="steps", tolerance=0.1),
        accuracy_figure(task, task, palette=palette, axis="steps", legend=False),
        curve_figure(curve, palette=palette, axis="tokens", y_title="nats", name="loss"),
        segments_figure([SegmentBar(i, i + 1, str(i)) for i in range(min(size, 9_000))], palette=palette, axis="steps"),
    ]
    for figure in figures:
        json.dumps(figure, allow_nan=False)
        for each in figure["data"]:
            assert len(decode(each["x"])) <= MAX_POINTS
            if each["type"] == "scatter" and each["x"] != [None]:
                assert len(decode(each["x"])) == len(decode(each["y"]))
                assert np.isfinite(decode(each["x"])).all()


def test_names_are_shown_as_text() -> None:
    assert plain('<script>alert("a&b")</script>') == '&lt;script&gt;alert("a&amp;b")&lt;/script&gt;'
    figure = loss_figure(points(X, 1, 2, 3, 4), None, palette=LIGHT, axis="steps", run_name="<b>x</b>")
    assert trace(figure, "&lt;b&gt;x&lt;/b&gt;")


def test_the_range_of_nothing_is_left_to_plotly() -> None:
    assert value_range([Curve.of([], [])]) is None
    assert value_range([points(np.array([1.0]), float("nan"))]) is None
    low, high = value_range([points(np.array([1.0]), 2.0)]) or (0, 0)
    assert low < 2.0 < high


def test_new_data_keeps_the_reader_s_zoom_and_another_axis_does_not() -> None:
    def layout(axis: str, *values: float) -> dict[str, Any]:
        x = np.arange(float(len(values)))
        return loss_figure(points(x, *values), None, palette=LIGHT, axis=axis)["layout"]  # type: ignore[arg-type]

    assert layout("steps", 1, 2, 3)["uirevision"] == layout("steps", 1, 2, 3, 4)["uirevision"]
    assert layout("steps", 1, 2, 3)["uirevision"] != layout("tokens", 1, 2, 3)["uirevision"]


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_colours_stand_out_from_the_ground(palette: Palette) -> None:
    for name in ("run", "reference", "heldout", "alert"):
        assert contrast(getattr(palette, name), palette.surface) >= 3.0, name
    for name in ("ink", "muted"):
        assert contrast(getattr(palette, name), palette.surface) >= 4.5, name


def contrast(first: str, second: str) -> float:
    """WCAG 2 contrast ratio of two `#rrggbb` colours."""
    one, two = sorted((_luminance(first), _luminance(second)))
    return (two + 0.05) / (one + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
