"""Receipts are joined, and a repeat is known all the same."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, func, select

from service.database.engine import reading, writing
from service.database.models import Receipt, Run
from service.ingest import receipts
from service.ingest.receipts import _ranges  # pyright: ignore[reportPrivateUsage]
from tests.ingest.store_client import Store


def post(store: Store, segment: str, seq: int, process: int = 0) -> Any:
    return store.post(segment, "events", seq=seq, process=process, step=seq, kind="note", value=seq, at=1.0)


def join(engine: Engine) -> int:
    with writing(engine) as session:
        return receipts.join_receipts(session, session.scalars(select(Run.id)).one())


def test_old_receipts_become_ranges_and_repeats_stay_harmless(
    store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "KEPT", 5)
    monkeypatch.setattr(receipts, "JOINED_FROM", 10)
    segment = store.start()
    gap = 7  # dropped by the hook under a full disk
    for seq in range(20):
        if seq != gap:
            assert post(store, segment, seq).json() == {"accepted": 1, "duplicate": False}
    post(store, segment, 3, process=1)  # a lane with few receipts stays as it is
    assert join(engine) == 14 - 2
    with reading(engine) as session:
        assert session.scalar(select(func.count()).select_from(Receipt)) == 2 + 5 + 1
    assert join(engine) == 0
    for seq in (0, 6, 8, 14, 15, 19):
        assert post(store, segment, seq).json() == {"accepted": 1, "duplicate": True}, seq
    assert post(store, segment, 3, process=1).json()["duplicate"] is True
    assert post(store, segment, 0, process=1).json()["duplicate"] is False
    recent = store.post(segment, "events", seq=19, step=1, kind="note", value="other", at=1.0)
    assert recent.status_code == 409
    assert post(store, segment, gap).json()["duplicate"] is False  # it was never there
    assert post(store, segment, 20).json()["duplicate"] is False
    for seq in range(21, 30):
        post(store, segment, seq)
    join(engine)
    with reading(engine) as session:
        assert session.scalar(select(func.count()).where(Receipt.kind == "events+")) == 1
    assert all(post(store, segment, seq).json()["duplicate"] for seq in range(30))


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_ranges_hold_exactly_the_numbers(first: set[int], second: set[int]) -> None:
    import numpy as np

    before = _ranges(np.array(sorted(first), np.int64), [])
    after = _ranges(np.array(sorted(second), np.int64), before)
    assert [n for low, high in after for n in range(low, high + 1)] == sorted(first | second)
    assert all(low > end + 1 for (_, end), (low, _) in pairwise(after))
