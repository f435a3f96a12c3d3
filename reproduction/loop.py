"""The training loop. It reports to a run as `trainer_hooks.start` returns one, and knows nothing else of Pacenote."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from numpy.typing import NDArray

from reproduction.data.loaders import Sharding, global_batches
from reproduction.lab.evals import Evaluator
from reproduction.olmo3.model import Decoder, Params
from reproduction.optimizer import Schedule, adamw

Step = Callable[[Params, optax.OptState, jax.Array], tuple[Params, optax.OptState, jax.Array, jax.Array]]


class Run(Protocol):
    """The part of a `trainer_hooks` run that the loop calls."""

    def log(self, step: int, metrics: dict[str, Any], /) -> None: ...
    def log_rows(self, step: int, rows: Any, host: int | None = None, /) -> None: ...
    def log_items(self, step: int, task: str, correct: Any, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """One training: how many updates, on what rows in what order, and how often it is evaluated."""

    steps: int = 400
    hosts: int = 4
    batch: int = 8  # rows per step over all hosts
    seed: int = 17  # of the order
    sharding: Sharding = "correct"
    eval_every: int = 25  # steps; 0: only at the start and the end
    schedule: Schedule = field(default_factory=Schedule)


@dataclass(frozen=True, slots=True)
class Progress:
    """After `step` of `steps` updates: the last batch's training loss in nats per token."""

    step: int
    steps: int
    loss: float


PROGRESS_EVERY = 5  # steps; reading a loss waits for the device, so it is not done at every step


def train(
    run: Run,
    plan: Plan,
    rows: NDArray[np.uint32],
    graph: nnx.GraphDef[Decoder],
    params: Params,
    evaluate: Evaluator | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[Params, int]:
    """Train for `plan.steps` updates, or until `should_stop()` between two of them; the parameters and updates made.

    Step S is the S-th update: its loss is the batch's before the update; an evaluation at S is of the weights after it.

    Args:
        run: gets metrics, rows and per-item results.
        rows: (n, length) the data set; a pass over it is n / plan.batch steps.
        graph: the model, as `nnx.split` gives it.
        params: where to start from; they are copied, not used up.
        evaluate: for the held-out loss and the tasks, at step 0, every `plan.eval_every` and at the last.
    """
    rates = np.asarray(jax.vmap(plan.schedule(plan.steps))(jnp.arange(plan.steps + 1)), np.float64)
    optimizer, update = _compile(graph, plan.schedule, plan.steps)
    params = jax.tree.map(jnp.copy, params)
    state = optimizer.init(params)
    batches = global_batches(rows, hosts=plan.hosts, batch=plan.batch, seed=plan.seed, sharding=plan.sharding)
    _evaluate(run, evaluate, params, 0)
    since, marked = 0, time.perf_counter()
    for step in range(1, plan.steps + 1):
        if should_stop():
            return params, step - 1
        shares = next(batches)
        params, state, loss, norm = update(params, state, jnp.asarray(np.concatenate(shares), jnp.int32))
        run.log(step, {"train/ce_loss": loss, "optim/grad_norm": norm, "optim/learning_rate": float(rates[step])})
        for host, share in enumerate(shares):
            run.log_rows(step, share, host)
        last = step == plan.steps
        if step % PROGRESS_EVERY == 0 or last:
            on_progress(Progress(step, plan.steps, float(loss)))
            speed = (step - since) * plan.batch * rows.shape[1] / (time.perf_counter() - marked)
            run.log(step, {"throughput/tokens_per_second_per_device": speed / jax.device_count()})
            since, marked = step, time.perf_counter()
        if last or (plan.eval_every and step % plan.eval_every == 0):
            loss.block_until_ready()
            paused = time.perf_counter()
            _evaluate(run, evaluate, params, step)
            marked += time.perf_counter() - paused
    return params, plan.steps


@cache  # runs that differ in their data alone share one compilation
def _compile(graph: nnx.GraphDef[Decoder], schedule: Schedule, steps: int) -> tuple[optax.GradientTransformation, Step]:
    optimizer = adamw(schedule(steps))

    def loss_of(params: Params, batch: jax.Array) -> jax.Array:
        logits = nnx.merge(graph, params)(batch)[:, :-1]
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(
        params: Params, state: optax.OptState, batch: jax.Array
    ) -> tuple[Params, optax.OptState, jax.Array, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(params, batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss, optax.tree.norm(gradients)

    return optimizer, step


def _evaluate(run: Run, evaluate: Evaluator | None, params: Params, step: int) -> None:
    if evaluate is None:
        return
    result = evaluate(params)
    run.log(step, result.metrics())
    for task, correct in result.correct.items():
        run.log_items(step, task, correct)
