"""The adapters of writers, trackers and callbacks, on doubles (peer_doubles.py says what those stand for)."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import peer_doubles as doubles
import pytest
from adapter_spool import Segment, recorded

from trainer_hooks.adapters import attached
from trainer_hooks.adapters.tunix import listen

RUN: dict[str, Any] = {"name": "run", "project": "p", "tokens_per_step": 64}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    monkeypatch.setattr(attached, "_said", set())


def only(folder: Path) -> Segment:
    (segment,) = recorded(folder)
    assert segment.finished
    return segment


def test_clu(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    doubles.install(monkeypatch, clu={"metric_writers": types.SimpleNamespace(MetricWriter=doubles.MetricWriter)})
    from trainer_hooks.adapters.clu import PacenoteWriter

    writer = PacenoteWriter(shift=1, **RUN)
    writer.write_hparams({"width": 8})
    writer.write_scalars(0, {"parameters": 100})  # before training, at a step that says nothing
    writer.write_scalars(99, {"train_loss": jnp.float32(3), "steps_per_second": 2, "histogram": np.zeros(3)})
    writer.write_scalars(99, {"eval_loss": np.float32(3.5)})
    writer.write_images(99, {"image": np.zeros((1, 2, 2, 3))})
    writer.write_pointcloud(99, {"cloud": np.zeros((1, 2, 3))}, configs={})
    writer.flush()
    writer.close()
    writer.write_scalars(100, {"train_loss": 2.0})  # late: opens no other segment
    assert writer.attached.run is None
    segment = only(environment)
    assert segment.body["start_step"] == 99
    assert segment.points == {
        (1, "parameters"): 100.0,
        (100, "train/ce_loss"): 3.0,
        (100, "steps_per_second"): 2.0,
        (100, "heldout/val/ce_loss"): 3.5,
    }
    assert segment.events[0]["value"] == {"width": 8}


def test_levanter(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    monkeypatch.setattr(doubles.TrackerConfig, "choices", {})
    monkeypatch.setattr(jax, "device_count", lambda: 8)
    tracker = {"Tracker": doubles.Tracker, "TrackerConfig": doubles.TrackerConfig}
    doubles.install(monkeypatch, levanter__tracker__tracker=tracker)
    import trainer_hooks.adapters.levanter  # noqa: F401

    tracker = doubles.TrackerConfig.choices["pacenote"](project="p").init("levanter-id")
    tracker.log_hyperparameters({"lr": 1e-3})
    tracker.log_summary({"throughput/device_kind": "TPU v5"})
    tracker.log({"parameter_count": 10}, step=0)
    tracker.log({"train/loss": 3.0, "global_step": 40}, step=40)
    tracker.log({"throughput/total_tokens": 41 * 64, "throughput/tokens_per_second": 800.0}, step=40)
    tracker.log({"throughput/mfu": 45.0, "grad/histogram": object()}, step=40)
    tracker.log({"eval/loss": 3.5, "eval/paloma/c4_en/loss": 3.25}, step=40)
    tracker.log({"note": 1.0}, step=None)
    tracker.log_artifact("file")
    tracker.finish()
    segment = only(environment)
    assert (segment.body["run"], segment.body["start_step"]) == ("levanter-id", 40)
    assert segment.body["config"]["lr"] == 1e-3
    assert segment.body["config"]["throughput/device_kind"] == "TPU v5"
    assert segment.tokens == {41: 41 * 64}
    assert segment.points == {
        (1, "parameter_count"): 10.0,
        (41, "train/ce_loss"): 3.0,
        (41, "global_step"): 40.0,
        (41, "throughput/tokens_per_second_per_device"): 100.0,
        (41, "raw/levanter/throughput/tokens_per_second"): 800.0,
        (41, "throughput/mfu"): 0.45,
        (41, "raw/levanter/throughput/mfu"): 45.0,
        (41, "heldout/val/ce_loss"): 3.5,
        (41, "heldout/paloma_c4_en/ce_loss"): 3.25,
    }


def test_tunix_by_the_scalar_listener_of_jax(environment: Path) -> None:
    backend = listen(**RUN)
    try:
        jax.monitoring.record_scalar("/jax/core/compile", 1.0)
        jax.monitoring.record_scalar("/train/loss", np.float32(2.5), step=7)
        jax.monitoring.record_scalar("/train/perplexity", float(np.exp(2.5)), step=7)
        jax.monitoring.record_scalar("/eval/loss", 2.75, step=7)
    finally:
        backend.close()
        jax.monitoring.unregister_scalar_listener(backend.log_scalar)
    segment = only(environment)
    assert segment.body["start_step"] == 6
    # A scalar comes by itself, so perplexity and loss both give the loss, and agree.
    assert segment.series("train/ce_loss") == {7: pytest.approx(2.5)}
    assert segment.series("heldout/val/ce_loss") == {7: 2.75}
    assert not [name for _, name in segment.points if name.startswith("/jax")]


def test_axlearn(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    doubles.install(
        monkeypatch,
        axlearn__common__config={"config_class": lambda cls: cls},
        axlearn__common__summary={"Summary": doubles.Summary},
        axlearn__common__summary_writer={"BaseWriter": doubles.BaseWriter},
    )
    from trainer_hooks.adapters.axlearn import PacenoteWriter

    config = PacenoteWriter.default_config().set(z_loss_scale=0.5, **RUN)
    trainer = PacenoteWriter(config, parent=None)
    evaler = PacenoteWriter(PacenoteWriter.default_config().set(evaluation="validation", **RUN), parent=None)
    trainer(0, {"num_model_params": 5})
    trainer.log_config(config, step=200)
    decoder = {"cross_entropy_loss": doubles.Summary(3.25), "z_loss": doubles.Summary(np.float32(0.5)), "norm": "text"}
    trainer(201, {"loss": 3.25, "model": {"decoder": decoder}, "learner": {"learning_rate": 1e-3}})
    trainer.log_average_step_time(300, [0.5, 1.5])
    trainer.log_checkpoint("dir/201", state={}, action="SAVE", step=201)
    trainer.log_checkpoint("dir/200", state={}, action="RESTORE", step=200)
    evaler(201, {"loss": doubles.Summary(3.5), "eval_time_secs": 2.0})
    evaler._attached.finish()
    segment = only(environment)
    assert segment.body["start_step"] == 200
    assert segment.body["config"]["axlearn"] == "config"
    assert [(e["step"], e["value"]) for e in segment.events] == [(201, "dir/201")]
    assert segment.series("train/ce_loss") == {201: 3.0}
    assert segment.series("loss") == {201: 3.25}
    assert segment.series("heldout/validation/ce_loss") == {201: 3.5}
    assert segment.series("throughput/step_seconds") == {300: 1.0}


def test_kauldron(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    writers = types.SimpleNamespace(NoopWriter=doubles.NoopWriter, WriterBase=doubles.WriterBase)
    status = {"status": types.SimpleNamespace(is_lead_host=True)}
    doubles.install(monkeypatch, kauldron__train={"metric_writer": writers}, kauldron__utils__status_utils=status)
    import dataclasses

    from trainer_hooks.adapters.kauldron import PacenoteWriter

    config = PacenoteWriter(**RUN)
    train, evaluation = (dataclasses.replace(config, collection=name) for name in ("train", "val"))
    # Kauldron evaluates at step i before the update that it calls step i.
    evaluation.write_step_metrics(step=10, aux={"losses/total": 3.5})
    train.write_step_metrics(step=10, aux={"losses/total": 3.0, "losses/xent": 2.9, "perf_stats/steps_per_sec": 4.0})
    train.close()
    segment = only(environment)
    assert segment.body["start_step"] == 10
    assert segment.series("heldout/val/ce_loss") == {10: 3.5}
    assert segment.series("train/ce_loss") == {11: 3.0}
    assert segment.series("losses/xent") == {11: 2.9}
    assert segment.series("throughput/step_seconds") == {11: 0.25}


class Tensor:
    """As much of a torch tensor as OLMo-core's batches need."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def reshape(self, *shape: int) -> Tensor:
        return Tensor(self.array.reshape(shape))

    def numpy(self) -> Any:
        return self.array


@pytest.mark.parametrize(("rows", "width"), [("tokens", 8), ("index", 1)])
def test_olmo_core(monkeypatch: pytest.MonkeyPatch, environment: Path, rows: str, width: int) -> None:
    distributed = {"is_available": lambda: True, "is_initialized": lambda: False}
    callbacks = {"Callback": doubles.Callback}
    doubles.install(monkeypatch, torch__distributed=distributed, olmo_core__train__callbacks=callbacks)
    from trainer_hooks.adapters.olmo_core import PacenoteCallback
    from trainer_hooks.fingerprints import row_hashes, snapshot

    callback = PacenoteCallback(project="p", rows=rows, config={"seed": 1}, arguments={"sample_rows": 1})
    loader = types.SimpleNamespace(global_batch_size=64)
    callback.trainer = types.SimpleNamespace(global_step=100, global_train_tokens_seen=6400, data_loader=loader)
    callback.pre_train()
    tokens = np.arange(16, dtype=np.int64).reshape(2, 8)
    index = np.array([5, 9])
    callback.trainer.global_step = 101
    callback.pre_step({"input_ids": Tensor(tokens), "index": Tensor(index)})
    shares = {"train/masked labels (%)": 0.25, "train/masked instances (%)": 0.125}
    callback.log_metrics(101, {"train/CE loss": 2.0, "train/PPL": 7.4, "optim/LR (group 0)": 1e-4, **shares})
    callback.log_metrics(102, {"train/CE loss": 2.0, "throughput/total tokens": 6528.0})
    callback.trainer.global_step = 105
    callback.post_checkpoint_saved("gs://bucket/step101/")  # an asynchronous save that ended four steps later
    callback.on_error(RuntimeError())
    callback.close()
    (segment,) = recorded(environment)
    assert not segment.finished  # it ended by an error
    assert (segment.body["start_step"], segment.body["start_tokens"]) == (100, 6400)
    assert segment.body["tokens_per_step"] == 64
    # 2 × (1 − 0.25 + 0.125) / (1 − 0.25): filtered rows add no loss but count in OLMo-core's denominator.
    assert segment.series("train/ce_loss") == {101: pytest.approx(2 * 0.875 / 0.75), 102: 2.0}
    assert segment.series("raw/olmo_core/train/CE loss") == {101: 2.0}
    assert segment.series("train/PPL") == {101: 7.4}
    assert segment.tokens == {102: 6528}
    assert [(e["step"], e["value"]) for e in segment.events] == [(101, "gs://bucket/step101/")]
    read = tokens if width == 8 else index.reshape(-1, 1)
    assert segment.fingerprints[0]["hashes"] == [f"{int(h):016x}" for h in row_hashes(snapshot(read))]


def test_olmo_core_ranks_share_one_launch(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    def broadcast(objects: list[str], src: int) -> None:
        objects[0] = "6f9619ff-8b86-4d01-b42d-00c04fc964ff"

    distributed = {"is_available": lambda: True, "is_initialized": lambda: True, "broadcast_object_list": broadcast}
    callbacks = {"Callback": doubles.Callback}
    doubles.install(monkeypatch, torch__distributed=distributed, olmo_core__train__callbacks=callbacks)
    from trainer_hooks.adapters.olmo_core import PacenoteCallback

    trainer = types.SimpleNamespace(global_step=0, global_train_tokens_seen=0, data_loader=object())
    monkeypatch.delitem(sys.modules, "jax._src.xla_bridge", raising=False)  # no jax there: ranks are the launcher's
    segments: set[str] = set()
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
        callback = PacenoteCallback(project="p")
        callback.trainer = trainer
        callback.pre_train()
        segments.add(callback._attached.run.segment_id)
        callback.close()
    assert len(segments) == 1
    assert "PACENOTE_LAUNCH_ID" not in os.environ


def test_transformers(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    doubles.install(monkeypatch, transformers={"TrainerCallback": doubles.TrainerCallback})
    from trainer_hooks.adapters.transformers import PacenoteCallback

    arguments = types.SimpleNamespace(run_name="hf", output_dir="out", to_dict=lambda: {"seed": 42})
    for first in (True, False):  # the other process records nothing
        state = types.SimpleNamespace(global_step=20, is_world_process_zero=first)
        callback = PacenoteCallback(project="p", tokens_per_step=64)
        callback.on_train_begin(arguments, state, None)
        state.global_step = 30
        logs = {"loss": 3.0, "learning_rate": 1e-4, "grad_norm": 1.5, "epoch": 0.5, "num_input_tokens_seen": 1920}
        callback.on_log(arguments, state, None, logs=logs)
        callback.on_log(arguments, state, None, logs={"eval_loss": 3.5, "eval_c4_loss": 3.25, "epoch": 0.5})
        callback.on_save(arguments, state, None)
        callback.on_log(arguments, state, None, logs={"train_loss": 3.1, "train_runtime": 5.0})
        callback.on_train_end(arguments, state, None)
    segment = only(environment)
    assert (segment.body["run"], segment.body["start_step"]) == ("hf", 20)
    assert segment.body["config"]["arguments"] == {"seed": 42}
    assert segment.tokens == {30: 1920}
    assert segment.series("train/ce_loss") == {30: 3.0}
    assert segment.series("heldout/val/ce_loss") == {30: 3.5}
    assert segment.series("heldout/c4/ce_loss") == {30: 3.25}
    assert segment.series("train_loss") == {30: 3.1}  # the mean of the whole run, no loss of a step
    assert [(e["step"], e["value"]) for e in segment.events] == [(30, "out/checkpoint-30")]
