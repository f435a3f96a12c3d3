"""The loop learns, and reports the right names at the right steps."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from reproduction import lab
from reproduction.data.loaders import global_batches
from reproduction.lab import corpus
from reproduction.lab.evals import Evals, Evaluator, Task
from reproduction.loop import Plan, Progress, train
from reproduction.olmo3.model import Config, Decoder
from reproduction.optimizer import Schedule, adamw

CONFIG = Config(d_model=32, n_layers=1, n_heads=2, d_hidden=64)
GRAPH, PARAMS = nnx.split(Decoder(CONFIG, nnx.Rngs(0)), nnx.Param)
PLAN = Plan(steps=12, eval_every=5, seed=3, schedule=Schedule(peak=1e-2, warmup=2, kind="constant"))
EVERY_STEP = {"train/ce_loss", "optim/grad_norm", "optim/learning_rate"}


class RecordingRun:
    """Takes what a run of the hook takes."""

    def __init__(self) -> None:
        self.metrics: dict[str, dict[int, float]] = defaultdict(dict)
        self.rows: dict[tuple[int, int | None], np.ndarray] = {}
        self.items: dict[tuple[int, str], np.ndarray] = {}

    def log(self, step: int, metrics: dict[str, Any], /) -> None:
        for name, value in metrics.items():
            assert step not in self.metrics[name], "a metric has one value at a step"
            self.metrics[name][step] = float(value)

    def log_rows(self, step: int, rows: Any, host: int | None = None, /) -> None:
        assert (step, host) not in self.rows
        self.rows[step, host] = np.array(rows)

    def log_items(self, step: int, task: str, correct: Any, /) -> None:
        self.items[step, task] = np.array(correct)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return lab.run_rows(corpus.load(), 96)


@pytest.fixture(scope="module")
def evaluator(rows: np.ndarray) -> Evaluator:
    choices = rows[:4, :144].reshape(-1)[: 2 * 4 * 36].reshape(2, 4, 36).astype(np.int32)
    return Evaluator(GRAPH, Evals(rows[:2].astype(np.int32), (Task("small", choices, np.array([0, 1])),)))


@pytest.fixture(scope="module")
def trained(rows: np.ndarray, evaluator: Evaluator) -> tuple[RecordingRun, list[Progress], Any]:
    run, progress = RecordingRun(), list[Progress]()
    params, made = train(run, PLAN, rows, GRAPH, PARAMS, evaluator, progress.append)
    assert made == PLAN.steps
    return run, progress, params


def test_twelve_steps_lower_both_losses(trained: tuple[RecordingRun, list[Progress], Any]) -> None:
    train_loss, heldout = (trained[0].metrics[name] for name in ("train/ce_loss", "heldout/lab/ce_loss"))
    assert train_loss[1] == pytest.approx(np.log(CONFIG.vocab_size), abs=0.1)
    assert train_loss[12] < train_loss[1] - 0.3
    assert heldout[12] < heldout[0] - 0.3


def test_names_and_steps(trained: tuple[RecordingRun, list[Progress], Any]) -> None:
    metrics = trained[0].metrics
    steps = {name: sorted(points) for name, points in metrics.items()}
    assert steps == (
        {name: list(range(1, 13)) for name in EVERY_STEP}
        | {name: [0, 5, 10, 12] for name in ("heldout/lab/ce_loss", "downstream/small/accuracy")}
        | {"throughput/tokens_per_second_per_device": [5, 10, 12]}
    )
    assert sorted(trained[0].items) == [(s, "small") for s in (0, 5, 10, 12)]
    for (step, _), correct in trained[0].items.items():
        assert correct.mean() == metrics["downstream/small/accuracy"][step]
    assert [(p.step, p.steps) for p in trained[1]] == [(5, 12), (10, 12), (12, 12)]
    assert trained[1][-1].loss == metrics["train/ce_loss"][12]
    assert metrics["optim/learning_rate"][1] == pytest.approx(5e-3)
    assert metrics["optim/learning_rate"][12] == pytest.approx(1e-2)
    assert all(speed > 0 for speed in metrics["throughput/tokens_per_second_per_device"].values())


def test_rows_are_those_fed_by_each_host(trained: tuple[RecordingRun, list[Progress], Any], rows: np.ndarray) -> None:
    logged = trained[0].rows
    assert sorted(logged) == [(s, h) for s in range(1, 13) for h in range(4)]
    batches = islice(global_batches(rows, hosts=4, batch=8, seed=PLAN.seed), 12)
    for step, shares in enumerate(batches, start=1):
        for host, share in enumerate(shares):
            np.testing.assert_array_equal(logged[step, host], share)


def test_a_loss_is_of_the_weights_before_the_update_and_an_evaluation_of_those_after(
    trained: tuple[RecordingRun, list[Progress], Any], evaluator: Evaluator
) -> None:
    run, _, params = trained
    first = np.concatenate([run.rows[1, host] for host in range(4)]).astype(np.int32)
    logits = jax.jit(nnx.merge(GRAPH, PARAMS))(jnp.asarray(first))[:, :-1]
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, first[:, 1:]).mean()
    assert run.metrics["train/ce_loss"][1] == pytest.approx(float(expected), abs=1e-5)
    for step, weights in ((0, PARAMS), (12, params)):
        assert evaluator(weights).heldout == run.metrics["heldout/lab/ce_loss"][step]


def test_the_same_plan_gives_the_same_bits(trained: tuple[RecordingRun, list[Progress], Any], rows: np.ndarray) -> None:
    again = RecordingRun()
    train(again, PLAN, rows, GRAPH, PARAMS)
    assert again.metrics["train/ce_loss"] == trained[0].metrics["train/ce_loss"]


def test_it_stops_between_steps_when_asked(rows: np.ndarray) -> None:
    run = RecordingRun()
    _, made = train(run, PLAN, rows, GRAPH, PARAMS, should_stop=lambda: len(run.metrics["train/ce_loss"]) == 3)
    assert made == 3
    assert list(run.metrics["train/ce_loss"]) == [1, 2, 3]


def test_schedule_of_the_lab() -> None:
    rate = Schedule()(400)
    assert [float(rate(s)) for s in (1, 10, 20, 210, 400)] == pytest.approx([1e-4, 1e-3, 2e-3, 1.1e-3, 2e-4])
    assert float(Schedule(peak=3e-3, kind="constant")(1000)(1000)) == pytest.approx(3e-3)


def test_weights_decay_and_embeddings_do_not() -> None:
    optimizer = adamw(lambda _: jnp.asarray(1e-3))

    @jax.jit
    def standing_still(params: Any) -> Any:
        return optimizer.update(jax.tree.map(jnp.zeros_like, params), optimizer.init(params), params)[0]

    updates = standing_still(PARAMS)
    assert not updates["embeddings"]["embedding"].get_value().any()
    update, kernel = (tree["head"]["kernel"].get_value() for tree in (updates, PARAMS))
    np.testing.assert_allclose(update, -1e-4 * kernel, rtol=1e-4)
