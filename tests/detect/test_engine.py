"""All rules together: the lab run, verdicts, prefixes, and input that is empty, short or not finite."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.detect.engine import FAMILY_OF_RULE, RULES, evaluate, verdict
from service.detect.facts import Arrivals, Happening, HeldoutHits, Items, Knot, Loss, Recipe
from service.detect.inputs import DeclaredData, RowReadings, RunView, Segment, Series, Tolerance
from service.detect.judgement import Evidence, Judgement
from service.detect.recipe import flat
from service.detect.recovery import Checkpoint, recovery
from service.detect.replay import judge_prefixes, prefix

from .scenarios import HELD, TRAIN, lab, pair, step_change

LAB = Tolerance(0.052, "3.5 sd of 50-step mean gaps of 3 healthy siblings", 3, 0.115, 50)


def states(judgements: list[Judgement]) -> dict[str, str]:
    return {j.rule: j.state for j in judgements}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tolerance", [LAB, None])
def test_the_lab_s_double_sharded_run_is_named_well_before_its_end(seed, tolerance):
    at = [101, 300]
    first, later = judge_prefixes(lab(seed, double=True, tolerance=tolerance), at)
    assert states(first)["repeated_rows"] == "yes"
    opened = next(j for j in first if j.rule == "repeated_rows")
    assert str(next(e.value for e in opened.evidence if e.name == "held-out change")) == "cannot tell yet"
    expected = {"train_drift": "yes", "train_only_drift": "yes", "repeated_rows": "yes", "non_finite": "no"}
    assert states(later).items() >= expected.items()
    extra = {rule for rule, state in states(later).items() if state == "yes"} - expected.keys()
    assert extra <= {"heldout_regression"}  # held-out rises well above the reference's, sooner or later
    named = next(j for j in later if j.rule == "train_only_drift")
    assert (named.causes[0].name, named.causes[0].weight) == ("double shard by factor 4", "shown")
    assert "held-out did not follow" in named.causes[0].because
    assert verdict(later, "lab", "1").state == ("diverged" if extra else "drifting")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tolerance", [LAB, None])
def test_the_lab_s_healthy_run_raises_nothing_at_any_time(seed, tolerance):
    for said in judge_prefixes(lab(100 + seed, double=False, tolerance=tolerance), range(50, 401, 25)):
        assert "yes" not in states(said).values()
    assert verdict(said, "lab", "1").state == "consistent"


def test_drift_without_repeats_rules_repeats_out():
    view = lab(7, double=True)
    said = evaluate(replace(view, rows=lab(7, double=False).rows))
    named = next(j for j in said if j.rule == "train_only_drift")
    assert named.state == "yes"
    assert named.causes[-1].name == "repeated rows (double shard, replay)"
    assert named.causes[-1].weight == "ruled out"


def judgement(rule: str, state: str, order: str = "same") -> Judgement:
    evidence = [Evidence("order", order, "", "for the verdict")] if rule == "data_order" else []
    return Judgement(rule, state, 1, f"{rule} says {state}.", evidence=evidence)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"non_finite": "yes", "train_drift": "yes"}, "diverged"),
        ({"train_drift": "yes"}, "drifting"),
        ({"train_drift": "cannot tell", "repeated_rows": "yes"}, "drifting"),
        ({"train_drift": "cannot tell"}, "not enough data"),
        ({}, "matching"),
        ({"definition": "cannot tell"}, "consistent"),
        ({"recipe": "yes"}, "consistent"),  # another experiment, and no drift
        ({"plateau": "cannot tell", "data_stopped": "yes"}, "matching"),  # they stand beside the verdict
        ({"train_only_drift": "cannot tell"}, "consistent"),
        ({"data_order": "no", "definition": "no", "recipe": "no"}, "matching"),
        ({"data_order": "no", "definition": "no", "recipe": "cannot tell"}, "consistent"),
    ],
)
def test_verdict_first_that_holds(said, expected):
    quiet = {rule.name: "no" for rule in RULES}
    found = verdict([judgement(r, s) for r, s in {**quiet, **said}.items()], "olmo3-7b", "2")
    assert found.state == expected
    assert (found.reference, found.version) == ("olmo3-7b", "2")
    assert found.because
    assert verdict([]).state == "not enough data"


def test_another_order_is_no_fault_and_yet_not_the_same_experiment():
    quiet = {rule.name: "no" for rule in RULES} | {"definition": "no", "recipe": "no"}
    assert verdict([judgement(r, s) for r, s in quiet.items()]).state == "matching"
    assert verdict([judgement(r, s, order="different") for r, s in quiet.items()]).state == "consistent"


def test_a_diverged_verdict_tells_the_drift_as_well():
    said = [judgement("train_drift", "yes"), judgement("heldout_regression", "yes"), judgement("loss_spike", "yes")]
    found = verdict(said)
    assert found.state == "diverged"
    assert found.because == "heldout_regression says yes. train_drift says yes."


def test_every_rule_has_a_family_and_answers_in_json():
    said = evaluate(lab(8, double=True))
    assert [j.rule for j in said] == list(FAMILY_OF_RULE)
    assert FAMILY_OF_RULE["non_finite"] == "stability"
    for j in said:
        assert j.to_json()["summary"].endswith(".")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_loss_that_is_not_finite_is_named_at_its_first_step_and_recovers(bad):
    view = pair(1, steps=2000)
    train = view.metrics[TRAIN]
    values = train.values.copy()
    values[1500:] = bad
    said = of("non_finite", replace(view, metrics={**view.metrics, TRAIN: Series(train.steps, train.tokens, values)}))
    assert (said.state, said.since_step) == ("yes", (1500, 1501)), "the update of the last finite loss may have done it"
    assert said.summary == f"{TRAIN} is not a finite number since step 1,501."
    values[1510:] = train.values[1510:]
    cured = replace(view, metrics={**view.metrics, TRAIN: Series(train.steps, train.tokens, values)})
    assert of("non_finite", cured).state == "no"
    held = view.metrics[HELD]
    ending = Series(held.steps, held.tokens, np.append(held.values[:-1], bad))
    assert of("non_finite", replace(view, metrics={**view.metrics, HELD: ending})).state == "yes"


def test_no_checkpoint_behind_the_last_finite_loss_of_a_sparse_log_is_called_clean():
    every_tenth = np.arange(10, 2_001, 10)
    view = pair(1, steps=2000)
    values = np.where(every_tenth >= 1_510, np.nan, 2.0)
    sparse = Series(every_tenth, every_tenth * 4.0, values)
    said = of("non_finite", replace(view, metrics={TRAIN: sparse}))
    assert (said.since_step, said.since_tokens) == ((1_500, 1_510), (6_000.0, 6_040.0))
    found = recovery(said.since_step, [Checkpoint(step) for step in (1_490, 1_505, 1_515)], Checkpoint(2_000), None)
    assert found.clean == Checkpoint(1_490)
    assert found.unsure == (Checkpoint(1_505),)
    never = Series(every_tenth, every_tenth * 4.0, np.full(200, np.nan))
    assert of("non_finite", replace(view, metrics={TRAIN: never})).since_step == (1, 10)


def test_a_gradient_norm_that_is_not_finite_is_shown_but_is_no_loss():
    view = pair(2, steps=2000)
    norm = Series(view.metrics[TRAIN].steps, view.metrics[TRAIN].tokens, np.full(2000, np.nan))
    said = of("non_finite", replace(view, metrics={**view.metrics, "optim/grad_norm": norm}))
    assert said.state == "no"
    assert said.evidence[0].name == "non-finite values of optim/grad_norm"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 400), st.integers(0, 50), st.booleans())
def test_replaying_a_prefix_says_what_was_said_at_that_time(step, seed, double):
    """What is said after `step` may not depend on what came later, however wild."""
    view = lab(seed, double=double)
    rng = np.random.default_rng(seed)
    wild = {
        m: Series(s.steps, s.tokens, np.where(s.steps > step, rng.normal(0, 50, len(s)), s.values))
        for m, s in view.metrics.items()
    }
    hashes = np.where(view.rows.steps > step, np.uint64(1), view.rows.hashes)
    other = replace(view, metrics=wild, rows=replace(view.rows, hashes=hashes))
    assert judge_prefixes(view, [step]) == judge_prefixes(other, [step]) == [evaluate(prefix(view, step))]


def test_a_prefix_holds_all_that_was_logged_up_to_its_step_and_nothing_later():
    cut = prefix(replace(lab(1, double=True), segments=[Segment(0, 0.0, 4), Segment(150, 1.0, 4)]), 150)
    assert cut.metrics[TRAIN].steps.tolist() == list(range(1, 151))
    assert cut.metrics[HELD].steps.tolist() == [0, 50, 100, 150]
    assert (cut.rows.steps.max(), cut.rows.seen_steps.max()) == (150, 150)
    assert [s.start_step for s in cut.segments] == [0]
    assert HELD not in prefix(pair(1, steps=2000), 100).metrics


def test_an_open_episode_stays_open_with_the_same_onset_while_the_drift_lasts():
    view = pair(3, train=step_change(20_000, -0.05))
    said = [j[0] for j in judge_prefixes(view, range(22_000, 40_001, 2_000))]
    assert {j.state for j in said} == {"yes"}
    assert len({j.since_step for j in said}) == 1


def of(rule: str, view: RunView) -> Judgement:
    return next(j for j in evaluate(view) if j.rule == rule)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NUMBERS = st.one_of(st.floats(-10, 10), st.sampled_from([np.nan, np.inf, -np.inf, 0.0]))


def any_series(draw: st.DrawFn) -> Series:
    values = draw(st.lists(NUMBERS, max_size=120))
    steps = np.cumsum(draw(st.lists(st.integers(1, 40), min_size=len(values), max_size=len(values)))).astype(np.int64)
    steps = steps.reshape(-1)
    return Series(steps, steps * draw(st.sampled_from([0.0, 1.0, 4e6])), np.array(values, float))


@st.composite
def views(draw: st.DrawFn) -> RunView:
    names = st.sampled_from([TRAIN, HELD, "optim/grad_norm"])
    metrics = {n: any_series(draw) for n in draw(st.sets(names))}
    reference = {n: any_series(draw) for n in draw(st.sets(names))}
    n = draw(st.integers(0, 60))
    hashes = np.array(draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)), np.uint64)
    at = np.sort(np.array(draw(st.lists(st.integers(0, 30), min_size=n, max_size=n)), np.int64))
    seen = np.arange(draw(st.integers(0, 30)))
    rows = RowReadings(at, at % 3, hashes, draw(st.sampled_from([1, 4])), seen, np.full(len(seen), 8))
    tolerances = {TRAIN: Tolerance(draw(st.sampled_from([0.0, 0.01, np.nan])), "x", draw(st.integers(0, 3)))}
    task, rate = "downstream/a/accuracy", "optim/learning_rate"
    for name in draw(st.sets(st.sampled_from([task, rate, "parity/kl", "train/scored_tokens"]))):
        metrics[name] = any_series(draw)
        reference[name] = any_series(draw)
    config = draw(st.dictionaries(st.sampled_from(["lr", "data", "loss", "recipe"]), JSON, max_size=3))
    starts = [[], [Segment(0, 0.0, 3)], [Segment(0, 0.0, 3), Segment(20, 1.0, 3, config, config, config, ((1, 4),))]]
    right = np.array(draw(st.lists(st.booleans(), max_size=9)), bool)
    steps = [int(s) for s in metrics[task].steps] if task in metrics else [5]
    items = {"a": [Items(step, right) for step in steps]}
    knots = tuple(Knot(draw(NUMBERS), "a place") for _ in range(draw(st.integers(0, 2))))
    recipe = Recipe(flat(config), Loss("words", z_loss=draw(st.sampled_from([None, True])), scored_share=0.5),
                    draw(st.sampled_from([{}, {HELD: "a"}])), knots)  # fmt: skip
    clock = Arrivals(draw(NUMBERS), draw(NUMBERS), draw(NUMBERS), np.array(draw(st.lists(NUMBERS, max_size=40)), float))
    return RunView(
        metrics, reference, draw(st.sampled_from([{}, tolerances])), draw(st.sampled_from(starts)),
        tasks={"a": 9}, items=draw(st.sampled_from([{}, items])), reference_items=items,
        recipe=draw(st.sampled_from([Recipe(), recipe])), arrivals=draw(st.sampled_from([None, clock])),
        happenings=[Happening(20, "data", "new")], same_order_declared=draw(st.booleans()),
        eval_sets=draw(st.sampled_from([{}, {HELD: [(1, "a"), (20, "b")]}])),
        heldout_hits=draw(st.sampled_from([None, {}, {"c4": HeldoutHits(at, hashes, 2, seen, np.full(len(seen), 8))}])),
        heldout=draw(st.sampled_from(["", HELD])), siblings=draw(st.sampled_from([[], [metrics]])),
        rows=draw(st.sampled_from([None, rows])), data=draw(st.sampled_from([None, DeclaredData(0), DeclaredData(20)])),
    )  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(views())
def test_nothing_that_is_empty_short_or_not_finite_raises(view):
    said = evaluate(view)
    assert len(said) == len(RULES)
    verdict(said)
