"""Evaluation sets: points of different sets are never put together, and a change of the set is told."""

from dataclasses import replace

import numpy as np
import pytest

from service.detect.engine import evaluate
from service.detect.facts import Recipe
from service.detect.inputs import RunView
from service.detect.replay import prefix
from service.detect.sets import comparable, on_one_set

from .scenarios import HELD, pair, step_change

A, B = "77bcf27f30a06c6b", "a1b2c3d4e5f60718"


def of(view: RunView, rule: str):
    return next(j for j in evaluate(view) if j.rule == rule)


def with_sets(*sets: tuple[int, str], reference: str = "", **changes) -> RunView:
    recipe = Recipe(sets={HELD: reference} if reference else {})
    return replace(pair(3, **changes), eval_sets={HELD: sets}, recipe=recipe)


def test_one_set_all_along_is_no_change():
    assert of(with_sets((500, A)), "evaluation_changed").state == "no"
    assert of(with_sets((500, A), reference=A), "evaluation_changed").state == "no"


def test_another_id_is_a_change_with_its_place_even_where_the_loss_does_not_jump():
    view = with_sets((500, A), (20_000, B))
    found = of(view, "evaluation_changed")
    assert found.state == "yes"
    assert found.since_step[1] == 20_000
    assert (found.causes[0].weight, f"{B} since step 20,000" in found.summary) == ("shown", True)
    assert of(prefix(view, 19_999), "evaluation_changed").state == "no"


def test_points_of_two_sets_are_not_mixed():
    """The newer set is harder: its higher loss is no regression, and the older points are out of it."""
    view = with_sets((500, A), (20_000, B), reference=A, heldout=step_change(19_999, 0.3))
    assert of(view, "heldout_regression").state == "cannot tell"
    assert of(view, "train_only_drift").state in ("no", "cannot tell")
    cut = on_one_set(view)
    assert cut.metrics[HELD].steps.min() == 20_000
    assert HELD not in cut.reference


def test_a_set_that_comes_back_is_the_first_one_again():
    view = with_sets((500, A), (10_000, B), (20_000, A), reference=A)
    assert of(view, "evaluation_changed").state == "no"
    kept = on_one_set(view).metrics[HELD].steps
    assert ((kept < 10_000) | (kept >= 20_000)).all()
    assert len(kept) == 60


def test_another_set_than_the_references_is_told_where_ids_are_of_one_kind():
    assert of(with_sets((500, B), reference=A), "evaluation_changed").state == "yes"
    assert of(with_sets((500, f"{A}-olmo"), reference=A), "evaluation_changed").state == "yes"
    assert of(with_sets((500, B), reference="c4_en-validation"), "evaluation_changed").state == "no"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [(A, B, True), ("c4-v1", "c4-v2", True), (A, "c4-v2", False), ("", A, False), (A, f"{B}-olmo", True)],
)
def test_ids_made_of_content_are_not_compared_with_names(one, other, expected):
    assert comparable(one, other) == expected


def test_sets_of_metrics_that_are_not_there_do_no_harm():
    view = replace(pair(3), eval_sets={"heldout/none/ce_loss": [(1, A), (2, B)], HELD: []})
    assert on_one_set(view).metrics[HELD].values is not None
    assert of(view, "evaluation_changed").state == "no"
    assert np.array_equal(on_one_set(view).metrics[HELD].steps, view.metrics[HELD].steps)
