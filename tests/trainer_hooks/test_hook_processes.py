"""The hook among processes: signals, ends, forks, data loaders, devices, and how a launch agrees on its segment."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hook_service import HookService, python
from test_hook_run import spooled

import trainer_hooks
from trainer_hooks.stores import LocalStore

MASKS = """
import signal, sys, threading
import numpy  # which has a handler set up by libc, as any first thread has
threading.Thread(target=str).start()
def caught():
    text = open("/proc/self/status").read()
    return [line for line in text.splitlines() if line.startswith(("SigCgt", "SigIgn", "SigBlk"))]
before, python = caught(), [signal.getsignal(s) for s in signal.valid_signals()]
import trainer_hooks
run = trainer_hooks.start("run", project="p")
run.log(1, {"loss": 1.0})
assert caught() == before and [signal.getsignal(s) for s in signal.valid_signals()] == python
run.finish()
assert caught() == before and [signal.getsignal(s) for s in signal.valid_signals()] == python
"""


def test_no_signal_is_touched(service: HookService) -> None:
    assert python(MASKS).wait(60) == 0


PREEMPTED = """
import os, signal, sys, time, jax
from jax.experimental import multihost_utils
import trainer_hooks
jax.distributed.initialize(sys.argv[1], 1, 0)
run = trainer_hooks.start("run", project="p")
for step in range(1, 3_000):
    run.log(step, {"loss": jax.numpy.float32(step)})
    time.sleep(0.01)
    if step == 3:
        os.kill(os.getpid(), signal.SIGTERM)
    if multihost_utils.reached_preemption_sync_point(step):
        run.event(step, "checkpoint", "preempted")
        break
else:
    raise SystemExit("the notice of preemption was lost")
run.finish()
"""


def test_jax_still_hears_of_its_preemption(service: HookService) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{reserved.getsockname()[1]}"
    command = [sys.executable, "-c", PREEMPTED, coordinator]
    done = subprocess.run(
        command, env={**os.environ, "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    (event,) = service.bodies("events")
    assert event["value"] == "preempted"
    assert service.bodies("finish")


@pytest.mark.parametrize("first", ["trainer_hooks", "jax"])
def test_a_process_with_arrays_under_way_ends_as_it_should(environment: Path, first: str) -> None:
    code = f"""
import {first}, jax, trainer_hooks
run = trainer_hooks.start("run", project="p")
update = jax.jit(lambda x: (x @ x).sum())
x = jax.numpy.ones((700, 700))
for step in range(1, 21):
    run.log(step, {{"loss": update(x)}})
"""
    process = python(code, JAX_PLATFORMS="cpu", PACENOTE_MODE="offline")
    assert process.wait(60) == 0
    batches = [body for kind, body in spooled(environment) if kind == "batches"]
    assert [step for body in batches for step in body["steps"]] == list(range(1, 21))


def _read(run: trainer_hooks.Run, step: int) -> str:
    run.log_rows(step, np.zeros((1, 1), int))
    return run.segment_id


def test_a_run_that_a_data_loader_takes_along_does_nothing_there(service: HookService) -> None:
    run = trainer_hooks.start("run", project="p")
    assert copy.deepcopy({"run": run})["run"] is copy.copy(run) is run
    elsewhere = pickle.loads(pickle.dumps(run))
    elsewhere.log(1, {"loss": 1.0})
    assert elsewhere.segment_id == ""
    assert elsewhere.finish() == trainer_hooks.FinishReport(0, 0)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_read, (run, 1)) == ""
    assert run.finish().sent == 2


EIGHT_DEVICES = """
import jax, jax.numpy as jnp, numpy as np, trainer_hooks
from jax.sharding import NamedSharding, PartitionSpec as P
assert jax.device_count() == 8
mesh = jax.make_mesh((8,), ("data",))
run = trainer_hooks.start("run", project="p")
replicated = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, P()))
x = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, P("data")))
run.log(1, {"sum": replicated(x), "sharded": x, "one": jax.device_put(jnp.float32(7), jax.devices()[5]),
            "step": jax.device_put(jnp.ones(1), NamedSharding(mesh, P()))})
report = run.finish()
assert dict(report.counts) == {"refused": 1}, report
"""


def test_arrays_on_eight_devices(service: HookService) -> None:
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    process = python(EIGHT_DEVICES, **flags)
    assert process.communicate(timeout=100)[1].count("Error") == process.returncode == 0
    assert sorted(service.points()) == [(1, "one", 7.0), (1, "step", 1.0), (1, "sum", 28.0)]
    assert next(iter(service.segments.values()))["topology"]["devices"] == 8


# --- launches ---

LAUNCHED = """
import sys, trainer_hooks
run = trainer_hooks.start("run", project="p")
run.log(int(sys.argv[1]), {"loss": 1.0})
report = run.finish()
assert report.left_in_spool == report.rejected == 0, report
print(run.segment_id)
"""


def test_starts_under_a_launch_id_that_was_not_renewed_stay_apart(
    service: HookService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Twice in one process, and in two processes at once that both believe to be process 0."""
    monkeypatch.setenv("PACENOTE_LAUNCH_ID", "today")
    first, second = (trainer_hooks.start("run", project="p") for _ in range(2))
    for step, run in ((1, first), (2, second)):
        run.log(step, {"loss": 1.0})
        report = run.finish()
        assert (report.rejected, report.left_in_spool) == (0, 0)
    assert caplog.text.count("it must be new at each") == 1
    command = [sys.executable, "-c", LAUNCHED]
    others = [
        subprocess.Popen([*command, str(step)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for step in (3, 4)
    ]
    assert [other.communicate(timeout=60)[0] != b"" for other in others] == [True, True]
    assert [other.returncode for other in others] == [0, 0]
    assert len(service.segments) == 4
    assert sorted(point[0] for point in service.points()) == [1, 2, 3, 4]


ALONE = """
import os, sys, jax
import trainer_hooks
from trainer_hooks import launch
launch.FIRST_PROCESS_SECONDS = 0.2
rank = int(sys.argv[1])
jax.distributed.initialize(sys.argv[2], 2, rank)
if rank in (int(r) for r in sys.argv[3]):
    run = trainer_hooks.start("run", project="p", config={"rank": rank})
    assert run.segment_id
    run.log(1, {"loss": 1.0})
    assert run.finish().left_in_spool == 0
jax.experimental.multihost_utils.sync_global_devices("all are here, and none waited for another in start")
"""


@pytest.mark.parametrize("callers", ["0", "1"])
def test_a_process_that_calls_start_alone_does_not_hang(service: HookService, callers: str) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{reserved.getsockname()[1]}"
    code = ALONE.replace("import trainer_hooks\n", "import trainer_hooks, jax.experimental.multihost_utils\n", 1)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank), coordinator, callers],
            env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=100)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    (segment,) = service.segments.values()
    assert segment["config"] == {"rank": int(callers)}


def test_processes_of_a_launcher_share_a_segment(service: HookService) -> None:
    code = (
        "import numpy as np, os, trainer_hooks\n"
        "run = trainer_hooks.start('run', project='p', sample_rows=1)\n"
        "run.log(1, {'loss': 1.0}); run.log_rows(1, np.full((1, 2), int(os.environ['RANK'])))\n"
        "report = run.finish(); assert report.left_in_spool == report.rejected == 0, report\n"
    )
    processes = [python(code, PACENOTE_LAUNCH_ID="today", RANK=str(i), WORLD_SIZE="2") for i in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert len(service.segments) == 1
    assert service.points() == [(1, "loss", 1.0)]
    assert sorted((body["process"], body["host"]) for body in service.bodies("fingerprints")) == [(0, 0), (1, 1)]


JAX_PROCESS = """
import os, sys, jax, numpy as np, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
import trainer_hooks
rank = int(os.environ["TEST_RANK"])
jax.distributed.initialize(os.environ["TEST_COORDINATOR"], 2, rank)
bad = {"sample_rows": 0} if rank == 1 else {}
run = trainer_hooks.start("run", project="p", config={"rank": rank}, **bad)
assert (run.segment_id == "") == (rank == 1)  # its own arguments were bad
if rank == 0:  # alone: nobody waits for anybody
    trainer_hooks.start("other", project="p")
run = trainer_hooks.start("run", project="p", config={"rank": rank}, sample_rows=1)
mesh = jax.make_mesh((2,), ("data",))
spread = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("data")), np.ones(1, np.float32))
same = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec()), np.float32(1.5))
run.log(1, {"spread": spread, "same": same})
run.log_rows(1, np.full((1, 2), rank))
report = run.finish()
assert report.left_in_spool == report.rejected == 0, report
assert dict(report.counts) == ({"refused": 1} if rank == 0 else {}), report
"""


def test_jax_processes_agree_on_a_segment(service: HookService) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{reserved.getsockname()[1]}"
    common = {"TEST_COORDINATOR": coordinator, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    processes = [python(JAX_PROCESS, TEST_RANK=str(i), **common) for i in range(2)]
    errors = [process.communicate(timeout=100)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    second = service.segments[service.segment_of("fingerprints")]
    assert len(service.segments) == 3
    assert second["config"] == {"rank": 0}
    assert second["topology"]["processes"] == 2
    assert service.points() == [(1, "same", 1.5)]
    assert sorted((body["process"], body["host"]) for body in service.bodies("fingerprints")) == [(0, 0), (1, 1)]
    assert service.duplicates == 1  # both described the segment, in the same words


@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_child_sends_nothing_of_its_parents(service: HookService, environment: Path) -> None:
    run = trainer_hooks.start("run", project="p")
    run.log(1, {"from": 0.0})
    child = os.fork()
    if child == 0:  # no assertions here: leave by the shortest way, whatever happens
        try:
            run.log(2, {"from": 1.0})
            run.log_rows(2, np.zeros((1, 1), int))
            fine = run.finish() == trainer_hooks.FinishReport(0, 0) and run.segment_id == ""
            os._exit(0 if fine else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert LocalStore(environment).in_use(
        next(environment.glob("*.spool")).name
    )  # the parent's lock outlives the child
    run.log(3, {"from": 0.0})
    assert run.finish().left_in_spool == 0
    assert service.points() == [(1, "from", 0.0), (3, "from", 0.0)]


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "raise RuntimeError('loss is NaN')", "with"])
def test_a_process_that_ends_without_finish_delivers_but_does_not_claim_to_have_finished(
    service: HookService, ending: str
) -> None:
    code = "import trainer_hooks\nrun = trainer_hooks.start('run', project='p')\nrun.log(1, {'loss': 1.0})\n"
    code += "with run:\n    raise RuntimeError('in the loop')" if ending == "with" else ending
    process = python(code)
    process.communicate(timeout=60)
    assert service.points() == [(1, "loss", 1.0)]
    assert service.bodies("finish") == []


def test_importing_the_hook_loads_neither_jax_nor_anything_heavy() -> None:
    code = (
        "import sys, trainer_hooks, trainer_hooks.sync\n"
        "run = trainer_hooks.start('run', project='p')\nrun.log(1, {'a': 1.0})\nrun.finish()\n"
        "heavy = {'jax', 'pandas', 'fsspec', 'service', 'msgspec', 'ml_dtypes'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    process = python(code)
    assert process.wait(60) == 0
