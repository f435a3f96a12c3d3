"""What those rules look at that seldom have anything new to say: they are asked again only where it has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import numpy as np

from .findings import TRAIN, Findings
from .inputs import RunView, Series
from .judgement import Judgement
from .parity import FIRST_STEPS
from .rules import definition, downstream, initial_parity

HEAD = 128  # points behind the first steps: by them the usual tokens of a step are known


def _series(view: RunView, first: str, last: str = "") -> tuple[Series, ...]:
    return tuple(s for name, s in view.metrics.items() if name.startswith(first) and name.endswith(last))


def _beginning(view: RunView) -> Series | None:
    """The first points of the train loss, with some behind them."""
    train = view.metrics.get(TRAIN)
    if train is None:
        return None
    start = min((s.start_step for s in view.segments), default=0)
    end = int(np.searchsorted(train.steps, start + FIRST_STEPS, side="right")) + HEAD
    return Series(train.steps[:end], train.tokens[:end], train.values[:end])


_WHOLE = tuple(field.name for field in fields(RunView) if field.name != "arrivals")

# Beside what every answer rests on (see `_common`).
LOOKED_AT: Mapping[str, Callable[[RunView], tuple[object, ...]]] = {
    downstream.RULE: lambda view: _series(view, "downstream/"),
    initial_parity.RULE: lambda view: (_beginning(view), *_series(view, "heldout/"), *_series(view, "parity/")),
    definition.RULE: lambda view: (*_series(view, definition.SCORED), _beginning(view)),
}


def asked(rule: str, judge: Callable[[Findings], Judgement], findings: Findings) -> Judgement:
    """What a rule says; said again, as of now, where nothing that it looks at has changed."""
    looked_at = LOOKED_AT.get(rule)
    if looked_at is None:
        return findings.said(judge)
    view = findings.view
    parts = (*_common(view), *looked_at(view))
    said = findings.cache.unchanged((rule, bool(view.deviations)), parts, lambda: findings.said(judge))
    return said if said.at_step == findings.at_step else replace(said, at_step=findings.at_step)


def whole(view: RunView) -> tuple[object, ...]:
    """Everything that any rule looks at, but for the clock; metrics in their order."""
    return (tuple(view.metrics), *(getattr(view, name) for name in _WHOLE))


def without_rows(view: RunView) -> tuple[object, ...]:
    """The same but for the row readings."""
    return (tuple(view.metrics), *(getattr(view, name) for name in _WHOLE if name not in ("rows", "windows")))


def _common(view: RunView) -> tuple[object, ...]:
    """What every answer rests on beside the run's own series and rows."""
    return (
        tuple(view.metrics), view.reference, view.siblings, view.tolerances, view.segments, view.reference_name,
        view.reference_version, view.heldout, view.data, view.schedule, view.tasks, view.same_order_declared,
        view.settings, view.deviations, view.happenings, view.eval_sets, view.items, view.reference_items, view.recipe,
    )  # fmt: skip
