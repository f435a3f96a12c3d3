"""A run's scale and in what it differs from its reference, as the bank of healthy pairs asks for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from service.compare.bank import Scale, bank_tolerance
from service.compare.noise import WANDER_TO_TOLERANCE, HealthyWander
from service.compare.wander import own_wander, wander_tolerance

from .inputs import RunView, Series, Tolerance

TRAIN = "train/ce_loss"
PARAMETERS = ("model.parameters", "parameters")
SCALE_POINTS = 1_000  # first points by which the tokens of a step are known
IN_A_NAME = re.compile(r"(?<![a-z\d.])(\d+(?:\.\d+)?)(b|m)(?![a-z\d])", re.IGNORECASE)


def scale_of(name: str, entries: Mapping[str, Any], run: Series | None) -> Scale:
    """Parameters by the reference's recipe, else by its name (`olmo3-7b`); tokens per step by the run's points."""
    said = (entries.get(key) for key in PARAMETERS)
    parameters = next((float(v) for v in said if isinstance(v, int | float) and v > 0), None)
    if parameters is None and (named := IN_A_NAME.search(name)):
        parameters = float(named[1]) * (1e9 if named[2].lower() == "b" else 1e6)
    tokens: float | None = None
    if run is not None and len(run) > 1:
        steps = np.maximum(np.diff(run.steps[:SCALE_POINTS]), 1)
        found = float(np.median(np.diff(run.tokens[:SCALE_POINTS]) / steps))
        tokens = found if np.isfinite(found) and found > 0.0 else None
    return Scale(parameters, tokens)


def scale_of_view(view: RunView) -> Scale:
    """The same of a view."""
    return scale_of(view.reference_name, view.recipe.entries, view.metrics.get(TRAIN))


def without_siblings(view: RunView, metric: str, assumed: HealthyWander) -> Tolerance:
    """The tolerance where no sibling runs are known: by the reference's own slow wander, where that asks for more than
    the default; by the bank, where the run reads the reference's order and there are pairs of its scale; else the
    default, said to be assumed."""
    window, noise = assumed.window_steps, assumed.noise_sd
    reference = view.reference[metric]
    if not view.same_order_declared:
        wander = own_wander(reference.steps, reference.values, window, noise)
        if wander is not None and (asked := wander_tolerance(wander))[0] > assumed.value:
            return Tolerance(asked[0], asked[1], 0, noise, window)
    else:
        scale = scale_of(view.reference_name, view.recipe.entries, reference)
        found = bank_tolerance(metric, scale, "init", window, WANDER_TO_TOLERANCE)
        if found is not None:
            return Tolerance(found[0], found[2], found[1], noise, window)
    return Tolerance(assumed.value, assumed.source, 0, noise, window)


def heldout_by_bank(view: RunView, metric: str) -> Tolerance | None:
    """The tolerance of a held-out loss by healthy pairs of the run's scale, however they differ: neither another order
    nor other initial weights moves it more than the other. None with fewer than three pairs."""
    scale = scale_of(view.reference_name, view.recipe.entries, view.reference.get(TRAIN))
    found = bank_tolerance(metric, scale, "unknown", 1, WANDER_TO_TOLERANCE)
    return None if found is None else Tolerance(found[0], found[2], found[1])
