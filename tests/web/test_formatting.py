"""Numbers and times as people read them."""

from __future__ import annotations

import pytest

from web import formatting as f


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.234e12, "1.23T"),
        (5_929_965_715_456, "5.93T"),
        (999_999_999_999, "1.00T"),
        (45.6e9, "45.6B"),
        (789e6, "789M"),
        (409_600, "410k"),
        (12_345, "12.3k"),
        (999, "999"),
        (0, "0"),
        (None, "–"),
        ("NaN", "–"),
    ],
)
def test_tokens(value: float, text: str) -> None:
    assert f.tokens(value) == text


def test_steps_have_commas_between_thousands() -> None:
    assert f.step(1_413_814) == "1,413,814"
    assert f.step(7) == "7"
    assert f.step(None) == "–"


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (-0.3841, [-0.405, -0.3632], "−0.384 ± 0.021"),
        (0.0451, [0.01, 0.2], "+0.045 (+0.010 to +0.200)"),
        (0.0451, None, "+0.045"),
        (0.0, [0.0, 0.0], "0.000"),
        ("NaN", None, "NaN"),
        (None, None, "–"),
        (1.5, ["NaN", 2.0], "+1.500"),
    ],
)
def test_estimates(value: object, interval: list[object] | None, text: str) -> None:
    assert f.estimate(value, interval) == text


def test_numbers() -> None:
    assert f.number(12_345) == "12,345"
    assert f.number(-3) == "−3"
    assert f.number(0.00001234) == "1.23e−5"
    assert f.number(True) == "True"
    assert f.number("text") == "text"
    assert f.number(float("inf")) == "∞"


def test_shares_and_units() -> None:
    assert f.percent(0.9612) == "96.1\u202f%"
    assert f.percent(0.0001) == "<0.1\u202f%"
    assert f.percent(0.0) == "0.0\u202f%"
    assert f.in_unit(-0.5, "nats", [-0.6, -0.4]) == "−0.500 ± 0.100 nats"
    assert f.in_unit(0.25, "share", [0.2, 0.3]) == "25.0\u202f% (20.0\u202f% to 30.0\u202f%)"
    assert f.in_unit("cannot tell yet", "nats") == "cannot tell yet"
    assert f.in_unit(10.0, "s", sign=False) == "10 s"
    assert f.in_unit(0.25, "s", sign=False) == "0.250 s"
    assert f.in_unit(0.0, "entries", sign=False) == "0 entries"
    assert f.in_unit(7029.5, "tokens/s", sign=False) == "7,030 tokens/s"
    assert f.in_unit(1.0, "nats", sign=False) == "1.000 nats"
    assert f.in_unit("+0.1 (0 … 0.2)", "nats") == "+0.1 (0 to 0.2) nats"


def test_spans() -> None:
    assert f.span([101, 150]) == "101 to 150"
    assert f.span([101, 101]) == "101"
    assert f.span([1.0e11, 2.0e12], "tokens") == "100B to 2.00T"
    assert f.span(None) == "–"


def test_ages() -> None:
    assert f.age(0.1) == "now"
    assert f.age(42) == "42\u202fs ago"
    assert f.age(600) == "10\u202fmin ago"
    assert f.age(7200) == "2\u202fh ago"
    assert f.age(10 * 86400) == "10\u202fd ago"
    assert f.iso(0) == "1970-01-01T00:00:00Z"
    assert f.utc(0) == "1970-01-01 00:00 UTC"


def test_times_of_a_broken_clock_are_written_too() -> None:
    assert f.iso(1_796_004_025.9) == "2026-11-30T02:00:25Z"
    assert f.utc(1_796_004_025.9) == "2026-11-30 02:00 UTC"
    assert f.iso(1e300) == "9999-12-31T23:59:59Z"
    assert f.iso(-1e300) == "0001-01-01T00:00:00Z"
    assert f.utc(-1e300).endswith("00:00 UTC")
