"""Onsets of several rules, seen together."""

from __future__ import annotations

from typing import Any

from service.detect.onset import joint_onset


def body(low: int, high: int, *, tokens: bool = True) -> dict[str, Any]:
    return {"since_step": [low, high], "since_tokens": [low * 10.0, high * 10.0] if tokens else None}


def test_an_exact_onset_narrows_a_drift_that_contains_it() -> None:
    assert joint_onset([body(51, 150), body(101, 101)]) == ([101, 101], [1010.0, 1010.0])
    assert joint_onset([body(101, 101), body(51, 150)]) == ([101, 101], [1010.0, 1010.0])


def test_overlapping_onsets_meet() -> None:
    assert joint_onset([body(51, 150), body(120, 300), body(90, 140)]) == ([120, 140], [1200.0, 1400.0])


def test_an_onset_that_lies_later_changes_nothing() -> None:
    assert joint_onset([body(51, 60), body(101, 101)]) == ([51, 60], [510.0, 600.0])


def test_without_onset_or_tokens() -> None:
    assert joint_onset([{"since_step": None}, {}]) is None
    assert joint_onset([body(5, 9, tokens=False)]) == ([5, 9], None)
    assert joint_onset([body(5, 9), body(6, 8, tokens=False)]) == ([6, 8], None)
