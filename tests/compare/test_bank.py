"""The bank of healthy pairs: statistics that can be made anew, comparable scales, percentiles."""

import csv
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import bank as making
from service.compare import bank
from service.compare.bank import Group, Scale, Stat, bank_tolerance, comparable, normality, phase_of, statistics

OLMO, SMALL = Scale(7.3e9, 4_194_304.0), Scale(124e6, 524_288.0)
GROUP = Group("g", "a group", "somewhere", "MIT", SMALL, "init")


def stat(offset: float, sd: float, **changes) -> Stat:
    values = {"group": GROUP, "pair": "b / a", "metric": "train", "phase": "late", "window": 100, "n": 9,
              "offset": offset, "sd": sd, "wander": None, "largest": abs(offset) + 2 * sd} | changes  # fmt: skip
    return Stat(**values)


def test_every_group_says_where_its_numbers_come_from():
    named = {s.group.name for s in bank.shipped()}
    assert named <= set(bank.groups())
    assert len(named) >= 10
    for group in bank.groups().values():
        assert group.source
        assert group.licence
        assert group.differs in ("nothing", "hardware", "precision", "init", "order")


def test_the_shipped_statistics_of_the_lab_are_what_its_curves_give():
    text = (resources.files("service.compare") / "bank_pairs.csv").read_text("utf-8")
    shipped = [row for row in csv.DictReader(text.splitlines()) if row["group"] == "lab_1m"]
    group = bank.groups()["lab_1m"]
    made = [
        s
        for pair, run, other in making.pairs(making.runs_of("lab_1m", {}, making.LAB), "lab_1m")
        for s in making.statistics(group, pair, run, other)
    ]
    assert [(r["pair"], r["metric"], r["phase"], int(r["window"])) for r in shipped] == [
        (s.pair, s.metric, s.phase, s.window) for s in made
    ]
    assert [float(r["offset"]) for r in shipped] == pytest.approx([s.offset for s in made], abs=1e-5)
    assert [float(r["sd"]) for r in shipped] == pytest.approx([s.sd for s in made], abs=1e-5)


def test_early_gaps_are_the_largest_and_are_judged_by_their_own_phase():
    early, late = (normality(0.02, "heldout/x/ce_loss", SMALL, "init", p, 1) for p in ("early", "late"))
    assert early.percentile < 95.0 < late.percentile
    assert early.largest > 2.0 * late.largest
    assert early.pairs > 50


def test_what_no_pair_compares_with_is_said():
    small = normality(0.004, "train/ce_loss", SMALL, "init", "late", 100)
    assert small.comparable
    assert {"valueembed_124m", "windowwarmup_124m"} <= set(small.names)
    large = normality(0.004, "train/ce_loss", OLMO, "order", "late", 500)
    assert not large.comparable
    assert "none is known of this scale and difference" in large.source
    assert large.names == ("agndm_124m",)


def test_another_order_is_assumed_for_the_train_loss_where_nothing_is_known():
    assert normality(0.02, "train/ce_loss", SMALL, "unknown", "late", 500).names == ("agndm_124m",)
    assert len(normality(0.02, "heldout/x/ce_loss", SMALL, "unknown", "late", 1).names) > 4


def test_other_metrics_and_no_number_have_no_percentile():
    assert normality(0.1, "optim/grad_norm", SMALL, "init", "late") is None
    assert normality(float("nan"), "train/ce_loss", SMALL, "init", "late") is None


@settings(deadline=None)
@given(st.floats(0.0, 0.2), st.floats(0.0, 0.2))
def test_a_larger_gap_never_has_a_lower_percentile(one, other):
    stats = (stat(0.004, 0.002), stat(-0.01, 0.0, pair="c / b"), stat(0.0, 0.03, pair="d / c"))
    low, high = (normality(g, "train/ce_loss", SMALL, "init", "late", 100, stats) for g in sorted((one, other)))
    assert 0.0 <= low.percentile <= high.percentile <= 100.0


def test_percentile_of_one_pair_is_the_normal_share():
    found = normality(0.02, "train/ce_loss", SMALL, "init", "late", 100, (stat(0.0, 0.01),))
    assert found.percentile == pytest.approx(95.45, abs=0.01)
    assert (found.pairs, found.comparable) == (1, True)
    assert "1 pair of g" in found.source


def test_three_pairs_set_a_tolerance_and_two_do_not():
    three = tuple(stat(o, 0.0, pair=str(o)) for o in (0.004, -0.004, 0.00401))
    value, pairs, source = bank_tolerance("train/ce_loss", SMALL, "init", 100, 3.5, three)
    assert value == pytest.approx(0.014, abs=1e-4)
    assert pairs == 3
    assert "3 pairs of like scale (g)" in source
    assert bank_tolerance("train/ce_loss", SMALL, "init", 100, 3.5, three[:2]) is None
    assert bank_tolerance("train/ce_loss", OLMO, "init", 100, 3.5, three) is None


def test_scales_are_comparable_within_a_factor_of_ten():
    assert comparable(Scale(1e8, None), Scale(9e8, 4e6))
    assert not comparable(Scale(1e8, None), Scale(2e9, None))
    assert not comparable(Scale(1e8, 1e5), Scale(1e8, 4e6))
    assert not comparable(Scale(None, 1e5), Scale(1e8, 1e5))


def test_a_window_that_is_not_evenly_filled_is_no_mean():
    steps = np.array([1, 2, 3, 4, 5, 200, 400, *range(501, 1001, 10)])
    made = statistics(GROUP, "b / a", "train", steps, np.where(steps < 10, 5.0, 0.01), 10_000)
    whole = [s for s in made if s.window == 500]
    assert [s.n for s in whole] == [1]
    assert whole[0].offset == pytest.approx(0.01)


def test_phases():
    assert [phase_of(p) for p in (0.0, 0.0999, 0.1, 0.49, 0.5, 1.0, 2.0)] == [
        "early", "early", "middle", "middle", "late", "late", "late",
    ]  # fmt: skip
