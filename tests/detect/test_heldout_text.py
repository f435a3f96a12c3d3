"""Rule heldout_text: windows of held-out sets in training rows."""

from dataclasses import replace

import numpy as np
import pytest

from service.detect.facts import HeldoutHits
from service.detect.judgement import Judgement
from service.detect.replay import prefix

from .scenarios import judged, pair

ROWS = 512  # per step


def hits(seed: int, share, steps: int = 4_000, sample: int = 1, windows: int = 100_000, natural=None) -> HeldoutHits:
    """Hits at `share` of the rows of each step, each another window of the set but for chance."""
    rng = np.random.default_rng(seed)
    at = np.arange(1, steps + 1)
    count = rng.poisson(share(at) * ROWS / sample)
    where = np.repeat(at, count)
    return HeldoutHits(
        where, rng.integers(0, windows, len(where)).astype(np.uint64), sample, at, np.full(steps, ROWS), natural
    )


def said(**sets: HeldoutHits) -> Judgement:
    return judged(replace(pair(1, steps=4_000), heldout_hits=sets), "heldout_text")["heldout_text"]


def natural(at):
    return np.full(len(at), 1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_quotations_and_boilerplate_are_no_contamination(seed):
    assert said(c4=hits(seed, natural), pile=hits(seed + 100, natural)).state == "no"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("share", "within"), [(0.1, 100), (0.01, 100), (0.002, 500)])
def test_a_set_that_is_trained_on_is_named_with_its_onset(seed, share, within):
    found = said(c4=hits(seed, lambda at: np.where(at > 1_000, share, 1e-4)), pile=hits(seed + 50, natural))
    assert found.state == "yes"
    assert "held-out set c4" in found.summary
    assert abs(found.since_step[1] - 1_001) <= within
    assert found.value == pytest.approx(share, rel=0.1)
    independent = {e.name: e.value for e in found.evidence}
    assert independent["heldout/c4/ce_loss"] == "not independent"
    assert "heldout/pile/ce_loss" not in independent
    assert "c4" in found.summary


@pytest.mark.parametrize("seed", range(5))
def test_sampled_windows_are_scaled(seed):
    found = said(c4=hits(seed, lambda at: np.where(at > 1_000, 0.1, 0.0), sample=64))
    assert found.state == "yes"
    assert found.value == pytest.approx(0.1, rel=0.15)


def test_one_window_that_comes_again_and_again_counts_once():
    assert said(c4=hits(1, lambda at: np.full(len(at), 0.05), windows=3)).state == "no"


def test_a_measured_natural_share_is_used_and_may_not_hide_everything():
    often = hits(1, lambda at: np.full(len(at), 9e-4), steps=3_000, natural=9e-4)
    assert said(c4=often).state == "no"
    assert said(c4=replace(often, natural=None)).state == "yes"
    assert said(c4=hits(1, lambda at: np.full(len(at), 0.02), natural=0.02)).state == "yes"


def test_without_anyone_looking_or_with_few_rows_it_cannot_tell():
    assert judged(pair(1, steps=4_000), "heldout_text")["heldout_text"].state == "cannot tell"
    assert said(c4=hits(1, natural, steps=10, sample=64)).state == "cannot tell"


def test_once_it_has_ended_for_long_it_is_said_no_more():
    short = hits(1, lambda at: np.where((at > 100) & (at <= 160), 0.02, 0.0))
    assert said(c4=short).state == "no"


def test_what_is_said_of_a_prefix_rests_on_it_alone():
    view = replace(pair(1, steps=4_000), heldout_hits={"c4": hits(3, lambda at: np.where(at > 1_000, 0.05, 1e-4))})
    early = judged(prefix(view, 900), "heldout_text")["heldout_text"]
    assert (early.state, early.n) == ("no", 900 * ROWS)
    assert judged(prefix(view, 1_100), "heldout_text")["heldout_text"].state == "yes"


def test_whole_documents_are_said_where_they_make_a_hundredth_of_the_set():
    few = replace(hits(1, natural), windows=10_000, long_steps=np.array([500, 900]), long_windows=np.array([60, 39]))
    found = said(c4=few)
    assert found.state == "no"
    assert "2 a whole document (0.99% of the set)" in found.summary
    found = said(c4=replace(few, long_windows=np.array([60, 40])), pile=hits(2, natural))
    assert (found.state, found.since_step, found.value) == ("yes", (899, 900), 0.01)
    assert "Whole documents of the held-out set c4 are trained on: 2 training rows hold 1.0% of it" in found.summary
    assert said(c4=replace(few, windows=0)).state == "no"  # the size of the set is not known


def test_whole_documents_are_said_from_the_step_on_that_shows_them():
    long = replace(hits(1, natural), windows=100, long_steps=np.array([500]), long_windows=np.array([30]))
    view = replace(pair(1, steps=4_000), heldout_hits={"c4": long})
    assert judged(prefix(view, 499), "heldout_text")["heldout_text"].state == "no"
    assert judged(prefix(view, 500), "heldout_text")["heldout_text"].state == "yes"
