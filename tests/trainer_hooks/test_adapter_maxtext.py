"""The MaxText adapter on a double that keeps MaxText's order of calls (maxtext_double.py)."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import maxtext_double as maxtext
import numpy as np
import pytest
from adapter_spool import recorded

from trainer_hooks.adapters import attached
from trainer_hooks.adapters import maxtext as adapter
from trainer_hooks.adapters.maxtext_ramp import ramp
from trainer_hooks.fingerprints import row_hashes, snapshot

MESH = types.SimpleNamespace(shape={"data": 2, "fsdp": 4})


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    monkeypatch.setattr(attached, "_said", set())


def attach(monkeypatch: pytest.MonkeyPatch, old: bool = False) -> tuple[Any, Any]:
    classes = maxtext.install(monkeypatch, old)
    adapter.attach(project="olmo3-7b", reference="olmo3-7b", sample_rows=1)
    return classes


def test_a_training_with_evaluations(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    logger, loader = attach(monkeypatch)
    training = maxtext.batches(0, 6)
    config = maxtext.Config(gradient_accumulation_steps=4)
    maxtext.train(logger(config), loader(training, MESH), loader(maxtext.batches(1, 3), MESH), 10, 16, accumulation=4)
    (segment,) = recorded(environment)

    assert segment.finished
    assert segment.body["run"] == "maxtext-run"
    assert segment.body["start_step"] == 10
    assert segment.body["tokens_per_step"] == 64
    assert segment.body["topology"]["mesh"] == {"data": 2, "fsdp": 4}
    assert segment.body["topology"]["batch_shape"] == [4, 16]
    assert segment.body["config"]["gradient_accumulation_steps"] == 4

    # MaxText's step s is the (s + 1)th update; its loss contains z-loss, and z_loss is multiplied by the accumulation.
    assert segment.series("train/ce_loss") == pytest.approx({s + 1: 3 + s / 100 for s in range(10, 16)})
    assert segment.series("train/z_loss") == {s + 1: 0.25 for s in range(10, 16)}
    assert segment.series("raw/maxtext/learning/z_loss") == {s + 1: 1.0 for s in range(10, 16)}
    assert segment.series("raw/maxtext/learning/lm_loss")[11] == pytest.approx(3.35)
    # One value for each evaluation, after step s, that is of the weights after s + 1 updates; no running values.
    assert segment.series("heldout/eval/ce_loss") == {11: 3.0, 13: 3.0, 15: 3.0}
    assert segment.series("optim/grad_norm")[11] == 1.5
    assert segment.series("perf/per_device_tflops")[11] == 12.0  # no map names it
    assert segment.series("learning/loss")[11] == pytest.approx(3.35)

    # The rows of update S are those of the S-th batch; evaluations' batches are none of training's.
    assert segment.seen() == {s + 1: 4 for s in range(10, 16)}
    expected = [f"{int(h):016x}" for batch in training for h in row_hashes(snapshot(batch["inputs"]))]
    assert [h for body in segment.fingerprints for h in body["hashes"]] == expected


def test_what_the_segment_declares(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    logger, loader = attach(monkeypatch)
    maxtext.train(logger(maxtext.Config()), loader(maxtext.batches(0, 2), MESH), None, 0, 2, every=0)
    declared = recorded(environment)[0].body["config"]["trainer_hooks"]
    assert declared["names"] == "MaxText"
    assert declared["steps"].startswith("step S = s + 1")
    lm_loss = {"metric": "train/ce_loss", "from": "learning/lm_loss"}
    (conversion,) = [c for c in declared["conversions"] if lm_loss.items() <= c.items()]
    assert conversion["formula"] == "learning/lm_loss - learning/z_loss / accumulation"
    assert declared["parameters"] == {"accumulation": 1.0}


def test_an_older_tree(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    logger, loader = attach(monkeypatch, old=True)
    maxtext.train(logger(maxtext.Config()), loader(maxtext.batches(0, 2), MESH), loader([{}], MESH), 0, 2)
    (segment,) = recorded(environment)
    assert segment.series("train/ce_loss") == pytest.approx({1: 3.0, 2: 3.01})
    assert segment.series("heldout/eval/ce_loss") == {1: 3.0}


def test_an_elastic_restart_is_another_segment(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    logger, loader = attach(monkeypatch)
    training = maxtext.batches(0, 8)
    with pytest.raises(StopIteration):
        maxtext.train(logger(maxtext.Config()), loader(training[:3], MESH), None, 0, 5, every=0)
    maxtext.train(logger(maxtext.Config()), loader(training[2:], MESH), None, 2, 5, every=0)
    first, second = recorded(environment)
    assert not first.finished  # it ended by an exception
    assert second.finished
    assert (first.body["start_step"], second.body["start_step"]) == (0, 2)
    assert list(second.seen()) == [3, 4, 5]


@pytest.mark.parametrize("old", [False, True])
def test_checkpoints_are_events_of_the_updates_they_hold(
    monkeypatch: pytest.MonkeyPatch, environment: Path, old: bool
) -> None:
    logger, loader = attach(monkeypatch, old)
    config = maxtext.Config()
    maxtext.train(logger(config), loader(maxtext.batches(0, 5), MESH), None, 10, 15, every=0, save_every=2)
    (segment,) = recorded(environment)
    assert segment.body["start_step"] == 10
    assert [(event["step"], event["kind"], event["value"]) for event in segment.events] == [
        (step + 1, "checkpoint", f"gs://bucket/maxtext-run/checkpoints/{step}") for step in (10, 12, 14)
    ]


def test_the_segment_begins_at_the_setup(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    """A launch that dies while its first step compiles is a launch too."""
    logger, loader = attach(monkeypatch)
    with pytest.raises(StopIteration):
        maxtext.train(logger(maxtext.Config()), loader([], MESH), None, 7, 9, every=0)
    (segment,) = recorded(environment)
    assert segment.body["start_step"] == 7
    assert segment.body["topology"]["mesh"] == {"data": 2, "fsdp": 4}
    assert segment.seen() == {}


def test_a_nan_that_ends_the_process_is_recorded(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    logger, loader = attach(monkeypatch)
    bad = maxtext.metrics(1)
    bad["scalar"]["learning/loss"] = bad["scalar"]["learning/lm_loss"] = float("nan")
    with pytest.raises(SystemExit):
        maxtext.train(
            logger(maxtext.Config()), loader(maxtext.batches(0, 4), MESH), None, 0, 4, every=0, replaced={1: bad}
        )
    (segment,) = recorded(environment)
    assert segment.series("train/ce_loss") == {1: 3.0, 2: "NaN"}
    assert not segment.finished


def test_padding_after_the_end_of_the_data_is_no_row(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    logger, loader = attach(monkeypatch)
    training = loader(maxtext.batches(0, 2), MESH, generate_padding_batch=True)
    maxtext.train(logger(maxtext.Config()), training, None, 0, 5, every=0)
    assert recorded(environment)[0].seen() == {1: 4, 2: 4}


def test_a_ramp_of_the_batch_size(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    fields = {"num_target_devices": 2, "per_device_batch_size_start": 1, "per_device_batch_size_increment": 1}
    config = maxtext.Config(
        enable_rampup_batch_size=True, per_device_batch_size=3, global_rampup_samples=20, max_target_length=10, **fields
    )
    # RampupBatchManager: 10 samples at 2 a step are 5 steps, 10 at 4 are 3, then 6.
    assert ramp(config) == [(1, 20), (6, 40), (9, 60)]
    logger, loader = attach(monkeypatch)
    maxtext.train(logger(config), loader(maxtext.batches(0, 2), MESH), None, 0, 2, every=0)
    (segment,) = recorded(environment)
    assert segment.body["ramp"] == [[1, 20], [6, 40], [9, 60]]
    assert segment.seen() == {}  # one batch of the loader is cut into several steps


def test_a_fault_in_the_adapter_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, environment: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger, loader = attach(monkeypatch)
    monkeypatch.setattr(maxtext.Config, "global_batch_size_to_train_on", property(lambda self: 1 / 0))
    instance = logger(maxtext.Config())
    maxtext.train(instance, loader([{"tokens": np.zeros(3)}] * 3, MESH), None, 0, 3, every=0)
    assert [step for step, _ in instance.written] == [0, 1, 2]
    assert caplog.text.count("training goes on") == 3  # the missing inputs, and twice the broken configuration


def test_the_launcher_runs_the_trainer_with_its_own_arguments(tmp_path: Path) -> None:
    package = tmp_path / "maxtext"
    for folder in ("common", "input_pipeline", "trainers/pre_train"):
        (package / folder).mkdir(parents=True)
    here = Path(__file__).parent
    double = f"import sys; sys.path.insert(0, {str(here)!r}); import maxtext_double as double\n"
    (package / "common" / "metric_logger.py").write_text(f"{double}MetricLogger = double.make_logger()")
    (package / "input_pipeline" / "multihost_dataloading.py").write_text(
        f"{double}MultiHostDataLoadIterator = double.make_loader()"
    )
    (package / "trainers" / "pre_train" / "train.py").write_text(
        f"{double}"
        "from maxtext.common.metric_logger import MetricLogger\n"
        "from maxtext.input_pipeline.multihost_dataloading import MultiHostDataLoadIterator as Loader\n"
        "def main(argv):\n"
        "    assert argv[1:] == ['base.yml', 'run_name=from-argv', '--', 'steps=3'], argv\n"
        "    config = double.Config(run_name='from-argv')\n"
        "    double.train(MetricLogger(config), Loader(double.batches(0, 3), None), None, 0, 3, every=0)\n"
    )
    (tmp_path / "absl.py").write_text("class app:\n    run = staticmethod(lambda main, argv: main(argv))\n")
    command = [sys.executable, "-m", "trainer_hooks.adapters.maxtext", "--project", "p", "--rows", "100", "--"]
    root = str(here.parents[1])
    environment = {
        "PYTHONPATH": f"{tmp_path}:{root}",
        "PACENOTE_MODE": "offline",
        "PACENOTE_SPOOL_DIR": f"{tmp_path}/s",
    }
    subprocess.run(
        [*command, "base.yml", "run_name=from-argv", "--", "steps=3"], env=environment, check=True, cwd=tmp_path
    )
    (segment,) = recorded(tmp_path / "s")
    assert (segment.body["run"], segment.body["data"]) == ("from-argv", {"rows": 100, "epochs": 1.0})
    assert list(segment.series("train/ce_loss")) == [1, 2, 3]


def test_the_launcher_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        adapter.main(["--project", "p"])
    assert "the arguments of maxtext are missing: give them after --" in capsys.readouterr().err
