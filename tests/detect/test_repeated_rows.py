"""Repeated rows: loaders simulated by index arithmetic, natural twins, planned passes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.detect import rows, sharing
from service.detect.engine import evaluate
from service.detect.inputs import DeclaredData, RowReadings, RunView, Segment
from service.detect.judgement import Judgement
from service.detect.replay import prefix

from .scenarios import lab, leaking_loader, pool_loader, readings, strided_loader


def view_of(
    read: RowReadings | None, hosts: int = 4, restarts: tuple[int, ...] = (), data: DeclaredData | None = None
) -> RunView:
    segments = [Segment(s, float(s), hosts) for s in (0, *restarts)]
    return RunView({}, {}, {}, segments, rows=read, data=data)


def repeated(view: RunView) -> Judgement:
    return next(j for j in evaluate(view) if j.rule == "repeated_rows")


def weights(said: Judgement) -> dict[str, str]:
    return {c.name: c.weight for c in said.causes}


def test_the_lab_s_double_shard_opens_at_the_step_that_repeats():
    view = lab(1, double=True)
    assert repeated(prefix(view, 100)).state == "no"
    at_once = repeated(prefix(view, 101))
    assert (at_once.state, at_once.since_step) == ("yes", (101, 101))
    assert (at_once.causes[0].name, at_once.causes[0].weight) == ("double shard by factor 4", "likely")
    said = repeated(view)
    assert (said.causes[0].name, said.causes[0].weight) == ("double shard by factor 4", "shown")
    assert "800 distinct of 3,200 declared rows" in said.causes[0].because
    assert said.value == 1.0
    numbers = {e.name: e.value for e in said.evidence}
    assert (numbers["rows read"], numbers["distinct rows"], numbers["share of repeated rows"]) == (3200, 800, 1.0)
    assert weights(said)["natural twins in the corpus"] == "ruled out"


def test_a_correct_loader_repeats_nothing_in_one_pass():
    assert repeated(lab(2, double=False)).state == "no"


def test_without_declared_rows_a_double_shard_is_likely_and_a_second_pass_possible():
    said = repeated(replace(lab(3, double=True), data=None))
    assert (said.causes[0].name, said.causes[0].weight) == ("double shard by factor 4", "likely")
    assert weights(said)["a further pass over the whole data set, not declared"] == "possible"


def test_every_host_reading_the_same_rows_is_shown():
    same = np.repeat(np.random.default_rng(4).permutation(1000).reshape(250, 1, 4), 4, axis=1)[:50]
    said = repeated(view_of(readings(same), data=DeclaredData(1000)))
    assert said.state == "yes"
    assert said.since_step[1] <= 2
    assert (said.causes[0].name, said.causes[0].weight) == ("every host reads the same rows", "shown")
    assert said.value == pytest.approx(0.75, abs=0.02)
    assert weights(said)[sharing.NAME] == "possible"
    assert "host=SHARD" in said.next_checks[0]


def test_hosts_that_share_rows_in_groups_are_told_how_to_say_so():
    order = np.random.default_rng(4).permutation(4000).reshape(250, 4, 4)
    pairs = readings(np.repeat(order[:, :2], 2, axis=1)[:60])  # hosts 0 and 1, hosts 2 and 3
    said = repeated(view_of(pairs, data=DeclaredData(4000)))
    assert (said.causes[0].name, said.causes[0].weight) == (sharing.NAME, "shown")
    assert "hosts 0, 1; hosts 2, 3" in said.causes[0].because
    assert weights(said)["every host reads the same rows"] == "ruled out"
    assert "context parallelism" in said.summary
    assert "host=SHARD" in said.next_checks[0]
    declared = replace(pairs, hosts=pairs.hosts // 2)  # what the service makes of it: one reading of each shard
    once = np.unique(np.column_stack((declared.steps, declared.hosts, declared.hashes.astype(np.int64))), axis=0)
    rows_once = replace(declared, steps=once[:, 0], hosts=once[:, 1], hashes=once[:, 2].astype(np.uint64))
    assert repeated(view_of(rows_once, data=DeclaredData(4000))).state == "no"


def test_hosts_that_share_some_rows_are_no_groups():
    order = np.random.default_rng(4).permutation(16_000).reshape(1000, 4, 4)
    order[:, 1, :2] = order[:, 0, :2]  # half of what host 1 reads
    said = repeated(view_of(readings(order[:200]), data=DeclaredData(16_000)))
    assert sharing.NAME not in weights(said)


def test_a_replay_after_a_restart_keeps_its_distance():
    order = np.random.default_rng(5).permutation(40_000).reshape(-1, 4, 4)
    replayed = np.concatenate([order[:600], order[200:500]])
    said = repeated(view_of(readings(replayed), restarts=(600,), data=DeclaredData(40_000)))
    assert (said.causes[0].name, said.causes[0].weight) == ("replay since the restart at step 600", "shown")
    assert "exactly 400 steps behind" in said.causes[0].because
    assert said.since_step == (601, 601)


def test_sampling_with_replacement_grows_from_nothing():
    drawn = np.random.default_rng(6).integers(0, 20_000, (800, 4, 4))
    said = repeated(view_of(readings(drawn), data=DeclaredData(20_000)))
    assert (said.causes[0].name, said.causes[0].weight) == ("sampling with replacement", "shown")
    shares = [rows.find(view_of(readings(drawn[:n]))).repeats / (16 * n) for n in (100, 400, 800)]
    assert shares == sorted(shares)


def test_the_real_incident_strides_through_a_block_and_replays_at_each_restart():
    read = strided_loader(16, 2, 16_384, [(0, 256), (256, 512)], seed=7)
    view = view_of(readings(read), hosts=16, restarts=(256,), data=DeclaredData(16_384))
    before = repeated(prefix(view, 60))
    assert before.causes[0].name == "double shard by factor 16"
    assert before.since_step[1] == pytest.approx(33, abs=3)  # after rows / hosts² readings of each host
    assert rows.find(view).distinct == pytest.approx(6_920, rel=0.08)  # measured with MaxText's own classes
    assert rows.find(view_of(readings(strided_loader(16, 2, 16_384, [(0, 512)], 8)))).distinct == pytest.approx(
        10_586, rel=0.03
    )


def test_planned_passes_are_no_repeats_but_a_third_one_too_early_is():
    passes = np.concatenate([np.random.default_rng(s).permutation(800).reshape(100, 4, 2) for s in range(3)])
    assert repeated(view_of(readings(passes), data=DeclaredData(800, 3))).state == "no"
    assert rows.find(view_of(readings(passes), data=DeclaredData(800, 3))).legal == 1600
    assert repeated(view_of(readings(passes), data=DeclaredData(3200, 3))).state == "yes"


@pytest.mark.parametrize("data", [None, DeclaredData(4_000), DeclaredData(4_000, 3)], ids=["unknown", "once", "thrice"])
@pytest.mark.parametrize("leak", [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5])
def test_a_double_shard_that_leaks_new_rows_stays_open(leak: float, data: DeclaredData | None):
    """Each row of the small pool has counted once long before the end; what comes new must not be an all-clear."""
    view = view_of(readings(leaking_loader(4_000, 4, 4, 1_000, 3, leak)), data=data)
    for step in (80, 250, 500, 1_000):
        said = repeated(prefix(view, step))
        assert said.state == "yes", step
        assert said.since_step[1] == pytest.approx(63, abs=12)
    assert said.causes[0].name == "double shard by factor 4"
    assert weights(said)["sampling with replacement"] == "ruled out"


def test_a_pool_that_leaked_and_is_left_for_good_is_an_all_clear():
    read = leaking_loader(4_000, 4, 4, 500, 4, 0.2)
    fresh = 100_000 + np.arange(200 * 16).reshape(200, 4, 4)
    assert repeated(view_of(readings(read))).state == "yes"
    assert repeated(view_of(readings(np.concatenate([read, fresh])))).state == "no"


def test_each_restart_that_reads_from_the_beginning_is_said_at_once():
    """The second one reads what the first had repeated already, within the window of readings of one count."""
    rng = np.random.default_rng(11)
    order = rng.permutation(4_000 * 16).reshape(4_000, 4, 4)
    view = view_of(readings(np.concatenate([order[:300], order[:900], order[:1500]])), restarts=(300, 1200))
    states = {step: repeated(prefix(view, step)).state for step in (300, 303, 1200, 1203)}
    assert states == {300: "no", 303: "yes", 1200: "no", 1203: "yes"}


@pytest.mark.parametrize("epochs", [1.0, 2.0, 3.0, 2.5])
def test_declared_passes_are_legal_and_one_more_is_not(epochs: float):
    passes = np.concatenate([np.random.default_rng(s).permutation(1600).reshape(200, 4, 2) for s in range(4)])
    planned = int(np.ceil(epochs)) * 200
    for steps in (planned // 2, planned):
        assert repeated(view_of(readings(passes[:steps]), data=DeclaredData(1600, epochs))).state == "no"
    said = repeated(view_of(readings(passes[: planned + 20]), data=DeclaredData(1600, epochs)))
    assert (said.state, said.since_step) == ("yes", (planned + 1, planned + 1))
    assert said.causes[0].name == "a further pass over the data set, beyond the declared ones"


def test_the_step_that_completes_the_plan_may_be_filled_up_from_its_beginning():
    order = np.random.default_rng(1).permutation(1601)
    filled = np.concatenate([order, order[:31]]).reshape(-1, 4, 8)
    assert repeated(view_of(readings(filled), data=DeclaredData(1601))).state == "no"
    assert rows.find(view_of(readings(filled), data=DeclaredData(1601))).repeats == 0


def big(rng: np.random.Generator, n: int) -> RowReadings:
    hashes = rng.integers(0, 2**63, n).astype(np.uint64)
    at = np.repeat(np.arange(3 * n), rng.poisson(0.5, 3 * n))[:n]
    seen = np.arange(int(at[-1]) + 1)
    return RowReadings(at, np.zeros(n, np.int64), hashes, 1024, seen, np.full(len(seen), 512))


@pytest.mark.parametrize("seed", range(4))
def test_natural_twins_in_clusters_never_fire(seed):
    rng = np.random.default_rng(seed)
    read = big(rng, 150_000)
    natural = rng.permutation(150_000)[:15]
    read.hashes[natural] = read.hashes[natural // 2]
    read.hashes[rng.permutation(150_000)[:1000]] = np.uint64(7)
    assert repeated(view_of(read)).state == "no"


def test_at_1_in_1024_a_replay_opens_within_20_steps_of_its_first_repeat():
    delays = []
    for seed in range(40):
        rng = np.random.default_rng(100 + seed)
        read = big(rng, 5200)
        read.hashes[5000:] = read.hashes[1000:1200]
        found = rows.find(view_of(read))
        assert found.episode is not None
        delays.append(read.steps[found.episode.alarm] - read.steps[5000])
    assert np.median(delays) <= 12
    assert np.percentile(delays, 95) <= 20


def test_fresh_rows_end_the_episode():
    order = np.arange(400 * 16).reshape(400, 4, 4)
    assert repeated(view_of(readings(np.concatenate([order[:100], order[:20]])))).state == "yes"
    assert repeated(view_of(readings(np.concatenate([order[:100], order[:20], order[100:]])))).state == "no"


def test_nothing_to_judge():
    assert repeated(view_of(None)).state == "cannot tell"
    assert repeated(view_of(readings(np.zeros((0, 4, 2), np.int64)))).state == "cannot tell"
    assert repeated(view_of(readings(np.arange(16).reshape(2, 4, 2)))).state == "cannot tell"


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_rows_inside_a_step_does_not_matter_to_what_is_said(seed):
    rng = np.random.default_rng(seed)
    read = readings(pool_loader(320, 4, 2, 40, seed, double=True))
    shuffled = np.concatenate(
        [rng.permutation(np.flatnonzero(read.steps == s)) for s in rng.permutation(np.unique(read.steps))]
    )
    other = RowReadings(
        read.steps[shuffled], read.hosts[shuffled], read.hashes[shuffled], read.sample, read.seen_steps, read.seen_rows
    )
    one, two = (repeated(view_of(r, data=DeclaredData(320))) for r in (read, other))
    assert (one.state, one.since_step, one.value) == (two.state, two.since_step, two.value)
    assert one.causes[0] == two.causes[0]
