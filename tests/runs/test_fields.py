"""How times and numbers look in answers, at the edges of what can be stored."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from service.runs.fields import Number, Time, rfc3339


class Answer(BaseModel):
    at: Time
    value: Number


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"),
        (1_796_004_025.25, "2026-11-30T02:00:25.250Z"),
        (-1.0, "1969-12-31T23:59:59.000Z"),
        (253_402_300_799.0, "9999-12-31T23:59:59.000Z"),
        (253_402_300_800.0, "9999-12-31T23:59:59.000Z"),
        (1e300, "9999-12-31T23:59:59.000Z"),
        (math.inf, "9999-12-31T23:59:59.000Z"),
        (-1e300, "0001-01-01T00:00:00.000Z"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert rfc3339(seconds) == text


@given(st.floats(allow_nan=False), st.floats())
def test_every_stored_number_can_be_answered(at: float, value: float) -> None:
    answer = Answer(at=at, value=value).model_dump(mode="json")
    assert answer["at"].endswith("Z")
    assert len(answer["at"]) == 24
    read = float(answer["value"])
    assert read == value or (math.isnan(read) and math.isnan(value))
