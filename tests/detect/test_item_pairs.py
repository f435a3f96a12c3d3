"""Accuracies on the same items: paired tests, the mean over the tasks, and multiplicity."""

from dataclasses import replace

import numpy as np
import pytest

from service.detect.facts import Items
from service.detect.inputs import RunView, Series
from service.detect.item_pairs import Pairing

from .scenarios import judged, pair

TASKS = [f"task{i}" for i in range(8)]
N = 1_200
STEPS = np.array([10_000, 20_000, 30_000, 40_000])


def paired(seed: int, lose=lambda task, step: 0.0, *, flip: float = 0.04, own: bool = True) -> RunView:
    """Twins that answer alike but for `flip` of the items; the run loses a further share of those it had right."""
    rng = np.random.default_rng(seed)
    view = pair(seed, steps=40_000)
    metrics, reference, mine, theirs = dict(view.metrics), dict(view.reference), {}, {}
    for task in TASKS:
        rows, base = [], []
        for step in STEPS.tolist():
            right = rng.random(N) < 0.6
            base.append(Items(step, right))
            swap = rng.random(N) < flip / 2  # as many won as lost
            won, lost = np.flatnonzero(swap & ~right), np.flatnonzero(swap & right)
            even = min(len(won), len(lost))
            answers = right.copy()
            answers[won[:even]], answers[lost[:even]] = True, False
            gone = np.flatnonzero(answers & right)[: int(lose(task, step) * N)]
            answers[gone] = False
            rows.append(Items(step, answers))
        tokens = STEPS * 4_194_304.0
        name = f"downstream/{task}/accuracy"
        metrics[name] = Series(STEPS, tokens, np.array([i.correct.mean() for i in rows]))
        reference[name] = Series(STEPS, tokens, np.array([i.correct.mean() for i in base]))
        mine[task], theirs[task] = rows, base
    return replace(
        view, metrics=metrics, reference=reference, tasks=dict.fromkeys(TASKS, N), items=mine if own else {},
        reference_items=theirs,
    )  # fmt: skip


def said(view: RunView):
    return judged(view, "downstream")["downstream"]


def test_twins_are_inside_where_items_are_paired_and_cannot_be_told_where_not():
    assert said(paired(1)).state == "no"
    assert said(paired(1, own=False)).state == "cannot tell"


@pytest.mark.parametrize("seed", range(4))
def test_a_loss_of_two_hundredths_on_every_task_is_outside(seed):
    found = said(paired(seed, lambda task, step: 0.02 if step > 20_000 else 0.0))
    assert found.state == "yes"
    assert found.value == pytest.approx(-0.02, abs=0.002)
    assert found.since_step == (20_000, 30_000)
    task = next(e for e in found.evidence if e.name == "accuracy of task0")
    assert "McNemar p" in task.why
    assert next(e for e in found.evidence if e.name == "tasks paired item by item").value == 8


def test_one_task_that_falls_alone_is_named():
    found = said(paired(5, lambda task, step: 0.1 if task == "task3" and step > 20_000 else 0.0))
    assert found.state == "yes"
    assert "task3" in found.summary


def test_one_odd_checkpoint_is_not_yet_outside():
    assert said(paired(6, lambda task, step: 0.05 if step == 40_000 else 0.0)).state == "cannot tell"


def test_items_of_other_numbers_or_steps_are_not_paired():
    view = paired(1)
    short = {t: [Items(i.step, i.correct[:-1]) for i in items] for t, items in view.items.items()}
    other = {t: [Items(i.step + 1, i.correct) for i in items] for t, items in view.items.items()}
    for items in (short, other):
        assert said(replace(view, items=items)).state == "cannot tell"


@pytest.mark.parametrize(("won", "lost", "p"), [(0, 0, 1.0), (5, 5, 1.0), (0, 10, 2 / 1024), (1, 9, 22 / 1024)])
def test_the_exact_test_is_mcnemars(won, lost, p):
    assert Pairing(won, lost, 100).p == pytest.approx(p)


def test_the_interval_covers_the_difference_and_never_has_no_width():
    assert Pairing(0, 0, 50).se > 0.0
    assert Pairing(3_000, 2_000, 10_000).p < 1e-9
    rng = np.random.default_rng(1)
    hit = 0
    for _ in range(400):
        won, lost, _ = rng.multinomial(1_000, [0.03, 0.02, 0.95])
        found = Pairing(int(won), int(lost), 1_000)
        hit += abs(found.difference - 0.01) <= 1.96 * found.se
    assert hit >= 370
