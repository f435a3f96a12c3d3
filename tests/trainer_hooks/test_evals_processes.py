"""Two real processes: what fails on one of them skips the evaluation on both, and nobody waits for anybody."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hook_service import HookService

import trainer_hooks
from trainer_hooks.batches import checked_sets
from trainer_hooks.evals import HeldOut, vote

PROCESS = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import jax, jax.numpy as jnp, numpy as np
import evals_fakes as fakes
import trainer_hooks
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from trainer_hooks.evals import Downstream, HeldOut, Task, next_token_loss
rank = int(sys.argv[3])
jax.distributed.initialize(sys.argv[2], 2, rank)
run = trainer_hooks.start("run", project="p", strict=True)
mesh = Mesh(np.array(jax.devices()), ("data",))
weights = jax.tree.map(
    lambda x: jax.make_array_from_callback(x.shape, NamedSharding(mesh, P()), x.__getitem__),
    fakes.weights(vocabulary=50),
)
random = np.random.RandomState(0)
rows = random.randint(0, 50, (5, 24))
loss = next_token_loss(fakes.logits)
task = Task.of_tokens("t", random.randint(0, 50, (7, 3, 12)), random.randint(0, 3, 7), context=8)

def breaks_on_one(weights, tokens):
    if rank == 1:
        raise RuntimeError("out of luck")
    return loss(weights, tokens)

def file_of_one():
    if rank == 0:
        raise FileNotFoundError("no c4.npy here\\nnor there")
    return [rows]

results = []
for evaluation in (
    HeldOut("good", [rows], loss, 1),
    HeldOut("missing", file_of_one, loss, 1),
    HeldOut("compile", [rows], breaks_on_one, 1),
    HeldOut("other", [rows + (rows == rank)], loss, 1),
    HeldOut("batched", [rows] if rank else [rows[:2], rows[2:]], loss, 1),
    HeldOut("good again", lambda: [rows], loss, 1),
):
    result = evaluation(run, 1, weights)
    results.append(result and repr(result.loss))
done = Downstream([task], fakes.logits, None, 1)(run, 1, weights)
results.append(done.tasks["t"].correct.tolist())
multihost_utils.sync_global_devices("training goes on")
assert run.finish().left_in_spool == 0
print(json.dumps([results, repr(HeldOut("alone", [rows], loss, 1).eval_set_id)]))
"""


def test_one_host_that_cannot_take_part_skips_it_everywhere(service: HookService) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{reserved.getsockname()[1]}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(Path(__file__).parent), coordinator, str(rank)],
            env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], [error for _, error in outputs]
    first, second = (json.loads(output.splitlines()[-1]) for output, _ in outputs)
    assert first == second
    results = first[0]
    assert results[1:5] == [None] * 4
    assert results[0] == results[5] is not None
    assert len(results[6]) == 7

    notes = {body["value"]["evaluation"]: body["value"]["skipped"] for body in service.bodies("events")}
    assert notes == {
        "missing": "process 0: FileNotFoundError: no c4.npy here nor there",
        "compile": "process 1: RuntimeError: out of luck",
        "other": "process 1 holds another evaluation set than process 0",
        "batched": "process 1 holds another evaluation set than process 0",
    }
    losses = {name: value for _, name, value in service.points() if name.startswith("heldout/")}
    assert losses == {f"heldout/{name}/ce_loss": float(results[0]) for name in ("good", "good again")}
    sets = {k: v for body in service.bodies("batches") for k, v in body.get("eval_sets", {}).items()}
    assert sets["heldout/good/ce_loss"] == first[1].strip("'")
    assert sets.keys() >= {"downstream/t/accuracy", "downstream/t/bpb"}
    (items,) = service.bodies("items")
    assert (items["task"], items["step"], items["n"]) == ("t", 1, 7)


def test_counting_ballots() -> None:
    def ballot(identity: int, reason: str = "") -> np.ndarray:
        made = np.zeros(vote.IDENTITY_BYTES + vote.REASON_BYTES, np.uint8)
        made[0] = identity
        text = reason.encode()[: vote.REASON_BYTES]
        made[vote.IDENTITY_BYTES : vote.IDENTITY_BYTES + len(text)] = list(text)
        return made

    assert vote._count(np.stack([ballot(1), ballot(1)])) == ""
    assert vote._count(np.stack([ballot(1), ballot(1), ballot(2)])).startswith("process 2 holds another")
    mixed = vote._count(np.stack([ballot(1), ballot(2, "é" * 200), ballot(1, "x")]))
    assert mixed == f"process 1: {'é' * 120} (and 1 more processes)"


def test_importing_the_evaluations_loads_neither_jax_nor_pyarrow() -> None:
    code = (
        "import sys, trainer_hooks.evals as e\n"
        "e.HeldOut('x', [[[1, 2]]], lambda w, t: t, 1, strict=True)\n"
        "assert not {'jax', 'pyarrow', 'tokenizers', 'torch', 'olmo_eval'} & set(sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


# --- the ids of evaluation sets, on their way through the hook ---


def test_ids_travel_with_their_metrics(service: HookService) -> None:
    run = trainer_hooks.start("run", project="p", strict=True)
    run.log(1, {"a": 1.0, "b": 2.0}, eval_sets={"a": "first", "absent": "x"})
    run.log(2, {"b": 2.0})
    run.log(3, {"a": 1.0, "b": 2.0}, eval_sets={"b": "other"})
    run.log(4, {"a": 1.0}, eval_sets={"a": "second"})
    assert run.finish().rejected == 0
    sets = {step: body.get("eval_sets", {}) for body in service.bodies("batches") for step in body["steps"]}
    assert sets[1]["a"] == "first"
    assert sets[3]["b"] == "other"
    assert sets[4] == {"a": "second"}
    assert "a" not in sets[1] or sets[1] is not sets[4]
    assert [point[:2] for point in service.points()] == [(1, "a"), (1, "b"), (2, "b"), (3, "a"), (3, "b"), (4, "a")]


@pytest.mark.parametrize("bad", [{"a": ""}, {"a": "é" * 129}, {"a": 7}, {"a": "x\0"}, {"a": "\ud800"}, 5])
def test_an_id_that_the_service_would_refuse_is_left_out(service: HookService, bad: object) -> None:
    with pytest.raises((ValueError, AttributeError)):
        checked_sets(bad)  # type: ignore[arg-type]
    run = trainer_hooks.start("run", project="p")
    run.log(1, {"a": 1.0}, eval_sets=bad)  # type: ignore[arg-type]
    run.log(2, {"a": 1.0}, eval_sets={"a": "é" * 128})
    report = run.finish()
    assert (report.rejected, dict(report.counts)) == (0, {"refused log": 1})
    assert service.points() == [(2, "a", 1.0)]


def test_the_callers_mapping_may_change_afterwards(service: HookService) -> None:
    run, sets = trainer_hooks.start("run", project="p"), {"a": "first"}
    run.log(1, {"a": 1.0}, eval_sets=sets)
    sets["a"] = "second"
    run.finish()
    assert service.bodies("batches")[0]["eval_sets"] == {"a": "first"}


def test_an_evaluation_through_a_real_run(service: HookService) -> None:
    run = trainer_hooks.start("run", project="p")
    rows = np.arange(8).reshape(2, 4)
    evaluation = HeldOut("x", [rows], lambda weights, tokens: weights * tokens[:, 1:], 5)
    for step in range(1, 11):
        evaluation(run, step, np.float32(0.5), tokens=step * 100)
    run.finish()
    (body,) = service.bodies("batches")
    assert (body["steps"], body["tokens"]) == ([5, 10], [500, 1000])
    assert body["metrics"]["heldout/x/ce_loss"] == [2.0, 2.0]
    assert body["eval_sets"] == {"heldout/x/ce_loss": evaluation.eval_set_id}
