"""Gaps for pictures, worked out once for each state of a run's data: all who look at a run see the same one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from service.database.models import Run
from service.judgements.gap import Gap, read_gap
from service.judgements.view import ReferenceView, reference_view
from service.rules.reading import settings_in_force
from service.series.repository import SeriesRepository

KEPT = 200  # gaps of one database: of 2,000 blocks each takes 130 kB


@dataclass(frozen=True, slots=True)
class _Kept:
    """A gap, and what it was worked out of."""

    version: str
    reference: ReferenceView
    settings: dict[str, Any]
    gap: Gap


_kept: WeakKeyDictionary[Engine, OrderedDict[tuple[int, str, int], _Kept]] = WeakKeyDictionary()
_lock = threading.Lock()


def gap_of(session: Session, run: Run, metric: str, points: int) -> Gap:
    """As `read_gap`, out of this process's memory while nothing has changed.

    Raises:
        UnknownReferenceError: the run names no reference, or none that is installed.
    """
    engine = session.get_bind().engine
    key = (run.id, metric, points)
    version = SeriesRepository(session).version(run.id)
    reference, settings = reference_view(session, run), settings_in_force(session, run)
    with _lock:
        kept = _kept.setdefault(engine, OrderedDict())
        known = kept.get(key)
        if known is not None:
            kept.move_to_end(key)
    if known and known.version == version and known.reference is reference and known.settings == settings:
        return known.gap
    gap, _ = read_gap(session, run, metric, points)
    with _lock:
        kept[key] = _Kept(version, reference, settings, gap)
        kept.move_to_end(key)
        while len(kept) > KEPT:
            kept.popitem(last=False)
    return gap


def gap_change(train: Gap, heldout: Gap) -> Gap:
    """The train gap less the held-out gap at each of its places that the train gap spans, both independent.

    Between the middles of its blocks the train gap is read along a line.
    """
    middles = (train.first_step + train.last_step) / 2
    at = (heldout.first_step + heldout.last_step) / 2
    within = (at >= train.first_step[0]) & (at <= train.last_step[-1]) if len(middles) else np.zeros(len(at), np.bool_)
    at = at[within]
    kept = [getattr(heldout, name)[within] for name in ("first_step", "last_step", "first_tokens", "last_tokens", "n")]
    if not len(at):
        value = half = np.empty(0)
    else:
        value = np.interp(at, middles, train.gap) - heldout.gap[within]
        half = np.hypot(
            np.interp(at, middles, (train.high - train.low) / 2), (heldout.high[within] - heldout.low[within]) / 2
        )
    first_step, last_step, first_tokens, last_tokens, n = kept
    return replace(
        heldout,
        first_step=first_step,
        last_step=last_step,
        first_tokens=first_tokens,
        last_tokens=last_tokens,
        n=n,
        gap=value,
        low=value - half,
        high=value + half,
        normality=None,
    )
