"""The held-out loss is the exact mean over tokens, whatever the batches, and is known by its set's content."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import evals_fakes as fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evals_fakes import RecordingRun
from flax import linen, nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_hooks.evals import HeldOut, documents, next_token_loss
from trainer_hooks.evals.program import IN_FLIGHT, Program

VOCABULARY, END = 50, 7
LOSS = next_token_loss(fakes.logits)
WEIGHTS = jax.tree.map(jnp.asarray, fakes.weights(vocabulary=VOCABULARY))
NAME = "heldout/c4_en/ce_loss"


def heldout(batches: Any, **options: Any) -> HeldOut:
    return HeldOut(
        "c4_en", batches, options.pop("loss_fn", LOSS), options.pop("every", 10), **{"strict": True, **options}
    )


def measured(batches: Any, **options: Any) -> float:
    result = heldout(batches, **options)(RecordingRun(), 10, WEIGHTS)
    assert result is not None
    return result.loss


def stream(seed: int, count: int, longest: int = 60) -> np.ndarray:
    """`count` documents, each ended by END."""
    random = np.random.RandomState(seed)
    pieces = [np.append(random.randint(8, VOCABULARY, size=random.randint(1, longest)), END) for _ in range(count)]
    return np.concatenate(pieces).astype(np.uint32)


def token_losses(document: np.ndarray) -> np.ndarray:
    """−log p of every token but the first, in float64."""
    logits = np.asarray(jax.jit(fakes.logits)(WEIGHTS, document[None].astype(np.int32)), np.float64)[0, :-1]
    chosen = logits[np.arange(len(logits)), document[1:]]
    return np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1) - chosen


def split(tokens: np.ndarray) -> list[np.ndarray]:
    return np.split(tokens, np.flatnonzero(tokens == END)[:-1] + 1)


def test_both_conventions_over_documents() -> None:
    tokens = stream(0, 30)
    losses = [token_losses(document) for document in split(tokens)]
    total, count = math.fsum(np.concatenate(losses)), sum(map(len, losses))
    batches = documents(tokens, end=END, length=64, batch_tokens=512, length_multiple=16)
    assert measured(batches) == pytest.approx(total / count, rel=1e-6)
    assert measured(batches, convention="olmo_core") == pytest.approx(total / (count + 30), rel=1e-6)


def test_what_a_run_is_told() -> None:
    run = RecordingRun()
    evaluation = heldout(documents(stream(0, 5), end=END))
    result = evaluation(run, 10, WEIGHTS)
    assert result is not None
    assert (result.rows, result.tokens) == (5, len(stream(0, 5)) - 5)
    assert run.metrics[NAME] == {10: result.loss}
    assert run.eval_sets == {NAME: evaluation.eval_set_id}
    assert run.metrics["throughput/evaluation_seconds/c4_en"][10] > 0


@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 99), st.integers(2, 9), st.integers(17, 40), st.sampled_from([16, 100, 10_000]), st.integers(1, 4)
)
def test_batching_and_padding_change_nothing(seed: int, count: int, length: int, size: int, shapes: int) -> None:
    tokens = stream(seed, count)
    plain = documents(tokens, end=END, length=length, batch_tokens=10**6, shapes=1, length_multiple=8, pad=3)
    other = documents(tokens, end=END, length=length, batch_tokens=size, shapes=shapes, length_multiple=8)
    assert {b["tokens"].shape for b in plain} == {plain[0]["tokens"].shape}
    assert len({b["tokens"].shape for b in other}) <= shapes
    assert sum(int(b["mask"].sum()) for b in other) == sum(min(len(d), length) for d in split(tokens))
    first, second = (heldout(batches) for batches in (plain, other[::-1]))
    assert first.eval_set_id == second.eval_set_id
    one, two = (e(RecordingRun(), 10, WEIGHTS) for e in (first, second))
    assert one is not None
    assert two is not None
    assert (
        (one.rows, one.tokens) == (two.rows, two.tokens) == (count, sum(min(len(d), length) - 1 for d in split(tokens)))
    )
    assert one.loss == pytest.approx(two.loss, rel=1e-6)


def test_the_id_tells_content_apart() -> None:
    rows = np.arange(20, dtype=np.int32).reshape(2, 10)
    changed, ones, hole = rows.copy(), np.ones_like(rows, bool), np.ones_like(rows, bool)
    changed[1, 9], hole[0, 4] = 49, False
    ids = [
        heldout([rows]).eval_set_id,
        heldout([changed]).eval_set_id,
        heldout([rows.reshape(4, 5)]).eval_set_id,
        heldout([{"tokens": rows, "mask": hole}]).eval_set_id,
        heldout([rows], convention="olmo_core").eval_set_id,
    ]
    assert len(set(ids)) == len(ids)
    same = [heldout([rows[1:], rows[:1]]), heldout([{"tokens": rows, "mask": ones}]), heldout(lambda: [rows])]
    assert {e.eval_set_id for e in same} == {ids[0]}
    assert ids[0] == "7a1680fffc0b30e2"  # never to change: it would look like another set


def test_a_mask_with_holes_scores_what_it_names() -> None:
    rows = np.random.RandomState(1).randint(0, VOCABULARY, (1, 12))
    mask = np.array([[1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 0]])
    losses, targets = token_losses(rows[0]), mask[0, 1:] == 1
    batch = [{"tokens": rows, "mask": mask}]
    assert measured(batch) == pytest.approx(losses[targets].mean(), rel=1e-6)
    both = targets & (mask[0, :-1] == 1)
    assert measured(batch, convention="olmo_core") == pytest.approx(losses[both].sum() / mask.sum(), rel=1e-6)


def test_steps_that_were_asked_for() -> None:
    rows = [np.ones((1, 4), int)]
    assert [s for s in range(31) if heldout(rows, every=10).due(s)] == [10, 20, 30]
    assert [s for s in range(31) if heldout(rows, every=[0, 7, 30]).due(s)] == [0, 7, 30]
    run, evaluation = RecordingRun(), heldout(rows)
    assert evaluation(run, 9, WEIGHTS) is None
    assert evaluation(run, 9, WEIGHTS, force=True) is not None
    assert list(run.metrics[NAME]) == [9]
    for every in (0, -1, [-1]):
        with pytest.raises(ValueError, match=r"≥ 1|negative"):
            heldout(rows, every=every)


class Computing:
    """`state.step` of a device that is still at work: ready once somebody waits for it."""

    size, shape, is_fully_replicated, ready = 1, (), True, False

    def is_deleted(self) -> bool:
        return False

    def is_ready(self) -> bool:
        return self.ready

    def block_until_ready(self) -> Computing:
        self.ready = True
        return self

    def addressable_data(self, index: int) -> Computing:
        return self

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        assert self.ready
        return np.array(10)


def test_a_step_that_the_device_still_computes_is_waited_for() -> None:
    """One process that skipped it would leave those waiting whose device was quicker."""
    run = RecordingRun()
    result = heldout([np.ones((1, 4), int)])(run, Computing(), WEIGHTS)
    assert result is not None
    assert run.metrics[NAME] == {10: result.loss}


class Linen(linen.Module):
    @linen.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = linen.Embed(VOCABULARY, 8)(tokens)
        return linen.Dense(VOCABULARY)(jnp.cumsum(x, axis=1))


class Nnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(VOCABULARY, 8, rngs=rngs)
        self.head = nnx.Linear(8, VOCABULARY, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        return self.head(jnp.cumsum(self.embed(tokens), axis=1))


def flax_models() -> dict[str, tuple[Callable[[Any, Any], Any], Any]]:
    made = Linen()
    graph, state = nnx.split(Nnx(nnx.Rngs(0)))
    return {
        "linen": (made.apply, made.init(jax.random.key(0), jnp.zeros((1, 2), jnp.int32))),
        "nnx, split": (lambda params, tokens: nnx.merge(graph, params)(tokens), state),
        "nnx, whole": (lambda model, tokens: model(tokens), Nnx(nnx.Rngs(1))),
    }


@pytest.mark.parametrize("kind", ["linen", "nnx, split", "nnx, whole"])
def test_flax_models(kind: str) -> None:
    logits_fn, weights = flax_models()[kind]
    rows = np.random.RandomState(0).randint(0, VOCABULARY, (3, 20))
    result = heldout([rows], loss_fn=next_token_loss(logits_fn))(RecordingRun(), 10, weights)
    assert result is not None
    predicted = jax.nn.log_softmax(logits_fn(weights, jnp.asarray(rows)))[:, :-1]
    expected = -np.take_along_axis(np.asarray(predicted, np.float64), rows[:, 1:, None], axis=2).mean()
    assert result.loss == pytest.approx(expected, rel=1e-6)


def test_one_compilation_for_each_shape_and_none_for_new_values() -> None:
    traced: list[tuple[int, ...]] = []

    def loss_fn(weights: Any, tokens: Any) -> Any:
        traced.append(tokens.shape)
        return LOSS(weights, tokens)

    evaluation = heldout(documents(stream(3, 40), end=END, batch_tokens=256, length_multiple=16), loss_fn=loss_fn)
    shapes = {rows.tokens.shape for rows in evaluation._rows}
    for step, scale in ((10, 1.0), (20, 0.5)):
        evaluation(RecordingRun(), step, jax.tree.map(lambda x, s=scale: x * s, WEIGHTS))
    assert sorted(traced) == sorted(shapes)
    assert 1 < evaluation._program.compilations == len(shapes) <= 4
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), WEIGHTS)
    assert evaluation(RecordingRun(), 30, half) is not None
    assert len(traced) == 2 * len(shapes)


def test_few_batches_are_in_memory_at_once() -> None:
    program, given = Program(lambda weights, x: x * weights), list[int]()

    def batches() -> Iterator[tuple[np.ndarray]]:
        for number in range(10):
            given.append(number)
            yield (np.full((2, 3), number, np.float32),)

    program.prepare(np.float32(2), [(((2, 3), np.dtype(np.float32)),)])
    for number, result in enumerate(program.run(np.float32(2), batches())):
        assert len(given) <= number + IN_FLIGHT
        np.testing.assert_array_equal(result, np.full((2, 3), 2 * number))
    assert len(given) == 10


def test_not_finite_is_a_result() -> None:
    run = RecordingRun()
    heldout([np.ones((2, 4), int)])(run, 10, jax.tree.map(lambda x: x * jnp.nan, WEIGHTS))
    assert math.isnan(run.metrics[NAME][10])
    padding_is_nan = lambda w, tokens: jnp.where(tokens[:, 1:] == 0, jnp.nan, 1.5)  # noqa: E731
    rows = np.array([[1, 2, 3, 0], [4, 5, 0, 0]])
    assert measured([{"tokens": rows, "mask": rows > 0}], loss_fn=padding_is_nan) == 1.5


def missing() -> Any:
    return np.fromfile("no/such/file", np.uint32)


@pytest.mark.parametrize(
    ("batches", "loss_fn", "reason"),
    [
        (missing, LOSS, "no/such/file"),
        ([], LOSS, "no token to score"),
        ([{"tokens": np.ones((1, 4), int), "mask": np.zeros((1, 4), bool)}], LOSS, "no token to score"),
        ([np.ones((1, 4))], LOSS, "batch 0 of c4_en must be integers"),
        ([np.ones((1, 1), int)], LOSS, "length ≥ 2"),
        ([np.full((1, 4), -1)], LOSS, "outside 0"),
        ([{"mask": np.ones((1, 4), bool)}], LOSS, "has no tokens, only mask"),
        ([{"tokens": np.ones((1, 4), int), "mask": np.full((1, 4), 0.5)}], LOSS, "the mask must be booleans"),
        ([np.ones((1, 4), int)], lambda w, t: w["nothing"], "KeyError: 'nothing'"),
        ([np.ones((1, 4), int)], lambda w, t: jnp.ones((1, 4)), "losses (1, 4) for targets (1, 3)"),
    ],
)
def test_a_failure_is_a_note_and_no_exception(
    batches: Any, loss_fn: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = RecordingRun()
    evaluation = HeldOut("c4_en", batches, loss_fn, 10)
    assert evaluation(run, 10, WEIGHTS) is None
    ((step, kind, value),) = run.events
    assert (step, kind, value["evaluation"]) == (10, "note", "c4_en")
    assert reason in (value.get("skipped") or value["failed"])
    assert not run.metrics
    assert all("\n" not in record.getMessage() for record in caplog.records)
    with pytest.raises((ValueError, RuntimeError, FileNotFoundError)):
        HeldOut("c4_en", batches, loss_fn, 10, strict=True)(run, 10, WEIGHTS)


def test_a_run_that_raises_does_no_harm() -> None:
    class Broken(RecordingRun):
        def log(self, *_: Any, **__: Any) -> None:
            raise OSError("disk full")

        def event(self, *_: Any, **__: Any) -> None:
            raise OSError("disk full")

    evaluation = HeldOut("c4_en", [np.ones((1, 4), int)], LOSS, 10)
    assert evaluation(Broken(), 10, WEIGHTS) is None
    assert evaluation(Broken(), "ten", WEIGHTS) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokens": np.ones(5, np.uint32), "end": 0}, "end-of-text token 0 is not there"),
        ({"tokens": np.ones(5), "end": 1}, "integers"),
        ({"tokens": np.ones(5, np.uint32), "end": 1, "shapes": 0}, "at least 1"),
    ],
)
def test_streams_that_are_none(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        documents(**arguments)


EIGHT = """
import sys
sys.path.insert(0, sys.argv[1])
import evals_fakes as fakes, jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from trainer_hooks.evals import Downstream, HeldOut, Task, next_token_loss
from jax.sharding import AxisType, Mesh
auto = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
explicit = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
weights = fakes.weights(vocabulary=50)
spread = {
    "embedding": jax.device_put(weights["embedding"], NamedSharding(auto, P(None, "model"))),
    "head": jax.device_put(weights["head"], NamedSharding(auto, P("model", None))),
}
everywhere = jax.device_put(weights, NamedSharding(explicit, P()))
random = np.random.RandomState(0)
rows = random.randint(0, 50, (5, 24))
task = Task.of_tokens("t", random.randint(0, 50, (11, 3, 12)), random.randint(0, 3, 11), context=8)
loss = next_token_loss(fakes.logits)
seen = []
def watched(weights, tokens):
    seen.append(tokens.shape)
    return loss(weights, tokens)
cases = (
    (weights, None),
    (spread, None),
    (spread, NamedSharding(auto, P("data"))),
    (everywhere, NamedSharding(explicit, P("data"))),
)
def hidden(weights, tokens):
    # on explicit axes a model says how its lookups are sharded
    import jax.numpy as jnp
    if weights["head"].aval.sharding.mesh.are_all_axes_explicit:
        embedded = weights["embedding"].at[tokens].get(out_sharding=NamedSharding(explicit, P("data")))
        return jnp.cumsum(embedded, axis=1)
    return jnp.cumsum(weights["embedding"][tokens], axis=1)
fakes.hidden = hidden
for placed, sharding in cases:
    run = fakes.RecordingRun()
    heldout = HeldOut("x", [rows], watched, 1, sharding=sharding, strict=True)(run, 1, placed)
    done = Downstream([task], fakes.logits, None, 1, sharding=sharding, strict=True)(run, 1, placed)
    print(repr(heldout.loss), *np.flatnonzero(done.tasks["t"].correct))
print(sorted(set(seen)))
"""


def test_rows_over_eight_devices() -> None:
    """Weights split over a mesh; rows padded to a multiple of its devices; the same numbers as on one."""
    process = subprocess.run(
        [sys.executable, "-c", EIGHT, str(Path(__file__).parent)],
        env={"PATH": "", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert process.returncode == 0, process.stderr
    *results, shapes = process.stdout.splitlines()
    losses = [float(line.split()[0]) for line in results]
    assert losses[1:] == pytest.approx([losses[0]] * 3, rel=1e-6)
    assert len({line.split(maxsplit=1)[1] for line in results}) == 1
    assert shapes == "[(5, 24), (8, 24)]"
