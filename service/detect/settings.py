"""What people have set for rules, applied to a view before it is judged and to answers after."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from .cache import LevelCache
from .gaps import shared_heldout, tolerance_of
from .heldout_gap import heldout_tolerance
from .inputs import RuleSetting, RunView, Tolerance
from .judgement import Judgement

TRAIN = "train/ce_loss"
MEAN = "downstream/mean/accuracy"
# Which unit each rule's tolerance has; the other rules have none of their own.
UNITS = {
    "train_drift": "nats",
    "heldout_regression": "nats",
    "downstream": "accuracy",
    "repeated_rows": "share",
    "throughput_changed": "share",
    "schedule_mismatch": "share",
    "data_stopped": "s",
    "heldout_text": "share",
}
# Limits that are set by a name of their own beside that of the rule that asks them; the unit is the rule's.
LIMITS = {"repeated_text": "repeated_rows"}
HELD_BY = {"train_only_drift": "train_drift", "improvement": "train_drift", "definition_changed": "train_drift",
           "plateau": "train_drift", "evaluation_changed": "heldout_regression"}  # fmt: skip


def with_tolerances(view: RunView, cache: LevelCache) -> RunView:
    """The view with the tolerances that were set in place of the shipped ones. Noise, block width and the kind of the
    shipped tolerance (measured on siblings, or assumed) stay, so that only the limit moves."""
    if not view.settings:
        return view
    made = dict(view.tolerances)
    train = _of(view, "train_drift")
    if train is not None and TRAIN in view.metrics:
        made[TRAIN] = _moved(tolerance_of(view, TRAIN, cache), *train)
    held, metric = _of(view, "heldout_regression"), shared_heldout(view)
    if held is not None and metric is not None:
        made[metric] = _moved(heldout_tolerance(view, metric, None, cache), *held)
    mean = _of(view, "downstream")
    if mean is not None:
        made[MEAN] = _moved(view.tolerances.get(MEAN) or Tolerance(mean[0], ""), *mean)
    return view if made == view.tolerances else replace(view, tolerances=made)


def turned_off(rule: str, view: RunView, at_step: int) -> Judgement | None:
    """The answer of a rule that is turned off; None of one that is not."""
    setting = view.settings.get(rule)
    if setting is None or not setting.off:
        return None
    return Judgement(rule, "cannot tell", at_step, f"Not judged: turned off, {setting.off}.")


def with_minimum(judgement: Judgement, setting: RuleSetting | None) -> Judgement:
    """The answer, or "cannot tell" where it rests on fewer observations than were asked for."""
    if setting is None or setting.minimum is None or judgement.state == "cannot tell":
        return judgement
    if judgement.n >= setting.minimum:
        return judgement
    summary = (
        f"Cannot tell yet: {judgement.n:,} of {setting.minimum:,} observations ({setting.minimum_source}); "
        f"by them the answer would be {judgement.state}: {judgement.summary}"
    )
    return replace(judgement, state="cannot tell", summary=summary, since_step=None, since_tokens=None, causes=[],
                   next_checks=[])  # fmt: skip


def _of(view: RunView, rule: str) -> tuple[float, str] | None:
    setting = view.settings.get(rule)
    return None if setting is None or setting.tolerance is None else (setting.tolerance, setting.tolerance_source)


@lru_cache(maxsize=256)
def _moved(shipped: Tolerance, value: float, source: str) -> Tolerance:
    # The same object for the same numbers: caches know a tolerance by its identity.
    change = None if shipped.change is None else shipped.change * value / shipped.value
    was = f"; shipped: {shipped.value:.4g}, {shipped.source}" if shipped.source else ""
    return replace(shipped, value=value, source=f"{source}{was}", change=change)
