"""clu, metrax and jax's listeners, the real ones, beside the hook's adapters of them."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapter_spool import recorded
from clu import metric_writers
from metrax.logging import TensorboardBackend

from trainer_hooks.adapters.clu import PacenoteWriter
from trainer_hooks.adapters.tunix import PacenoteBackend


def test_clu_takes_the_writer_among_others(spool: Path) -> None:
    hook = PacenoteWriter(name="clu", project="p", shift=1, tokens_per_step=64)
    writer = metric_writers.AsyncMultiWriter([metric_writers.LoggingWriter(), hook])
    assert isinstance(hook, metric_writers.MetricWriter)
    writer.write_hparams({"width": 8})
    for step in range(3):
        writer.write_scalars(step, {"train_loss": jnp.float32(3 - step / 10), "learning_rate": 1e-3})
    writer.write_images(2, {"image": np.zeros((1, 4, 4, 3))})
    writer.write_texts(2, {"text": "words"})
    writer.write_histograms(2, {"weights": np.zeros(9)})
    writer.write_summaries(2, {"tensor": np.zeros(3)})
    writer.write_videos(2, {"video": np.zeros((1, 2, 4, 4, 3))})
    writer.write_audios(2, {"audio": np.zeros((1, 9, 1))}, sample_rate=8_000)
    hook.write_pointcloud(2, {"cloud": np.zeros((1, 9, 3))})
    writer.flush()
    writer.close()
    (segment,) = recorded(spool)
    assert segment.finished
    assert segment.series("train/ce_loss") == pytest.approx({1: 3.0, 2: 2.9, 3: 2.8})  # the loop counts from 0
    assert segment.events[0]["value"] == {"width": 8}


def test_the_default_writer_of_clu_and_the_hook(spool: Path) -> None:
    writer = metric_writers.MultiWriter(
        [
            metric_writers.create_default_writer(None, just_logging=True),
            PacenoteWriter(name="clu", project="p", start_step=4),
        ]
    )
    with metric_writers.ensure_flushes(writer):
        writer.write_scalars(5, {"eval/loss": 3.5})
    writer.close()
    (segment,) = recorded(spool)
    assert segment.body["start_step"] == 4
    assert segment.points == {(5, "heldout/val/ce_loss"): 3.5}


def test_metrax_backends_get_the_same_calls(spool: Path, tmp_path: Path) -> None:
    backends = [TensorboardBackend(log_dir=str(tmp_path / "tb")), PacenoteBackend(name="tunix", project="p")]
    for backend in backends:
        jax.monitoring.register_scalar_listener(backend.log_scalar)
    try:
        for step in range(1, 4):
            jax.monitoring.record_scalar("/train/loss", np.float32(3 - step / 10), step=step)
            jax.monitoring.record_scalar("/eval/loss", jnp.float32(3.5), step=step)
        jax.jit(lambda x: x + 1)(1)  # jax's own events pass the same listeners
    finally:
        for backend in backends:
            jax.monitoring.unregister_scalar_listener(backend.log_scalar)
            backend.close()
    (segment,) = recorded(spool)
    assert segment.series("train/ce_loss") == pytest.approx({1: 2.9, 2: 2.8, 3: 2.7})
    assert {name for _, name in segment.points} == {"train/ce_loss", "heldout/val/ce_loss"}
