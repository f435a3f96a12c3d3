"""Every real log: its format, rows in = stored + superseded + refused, and what it is expected to show."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from importing import GOLDEN, check
from sqlalchemy import Engine

from service.database.engine import open_engine
from service.database.migrate import ensure_schema
from service.importers.detect import FORMATS as KNOWN
from service.importers.folders import find
from service.importers.job import Options, look, store
from service.importers.rows import LogError

SHARED = Path(__file__).parents[3] / "shared" / "reallogs"  # beside a checkout, where it is at hand
INDEX = SHARED / "INDEX.tsv"

# The folder of the real files, or the file, and what it is. The longest beginning that fits counts.
FORMATS = {
    "a_healthy_seeds/": "key_value_log",
    "a_healthy_seeds/deepspeed_7b_precision_pair/": "delimited",
    "a_healthy_seeds/mn_unettweaks_val_wide/": "delimited",
    "a_healthy_seeds/torchtitan_cuda_vs_rocm/": "delimited",
    "b_repetition/": "key_value_log",
    "b_repetition/datablations_final_val_loss/": "runs_table",
    "b_repetition/k1915361_tiny_lm/": "delimited",
    "c_improve_or_worse/": "key_value_log",
    "d_anomalies/": "key_value_log",
    "d_anomalies/deepspeed_rlhf/": "deepspeed",
    "d_anomalies/megatron_golden/": "megatron_golden",
    "e_downstream/bigscience_1b3_checkpoints/": "lm_eval_columns",
    "e_downstream/pythia_lm_eval_json/": "lm_eval",
    "e_downstream/pythia_pythia-": "delimited",
    "f_formats/deepspeed_stdout/": "deepspeed",
    "f_formats/hf_trainer_state/": "hf_trainer",
    "f_formats/lightning_metrics_csv/": "delimited",
    "f_formats/llmc_main_log/": "key_value_log",
    "f_formats/maxtext_stdout/": "maxtext_stdout",
    "f_formats/mlflow_file_store_reencoded/": "mlflow",
    "f_formats/run_summary_csv/": "runs_table",
    "f_formats/tfevents_reencoded/": "tensorboard",
    "f_formats/tiny_lm_epoch_csv_odd_units/": "delimited",
    "f_formats/wandb_ui_csv_export/": "delimited",
    "golden/trainer_state.json": "hf_trainer",
    "golden/megatron_golden_values_2nd.json": "megatron_golden",
    "golden/lm_eval/": "lm_eval",
    "golden/checkpoints.csv": "delimited",
    "golden/checkpoints_agg.json": "lm_eval_columns",
    "golden/deepspeed": "deepspeed",
    "golden/events.out": "tensorboard",
    "golden/odd_units.csv": "delimited",
    "golden/steps_per_epoch.csv": "delimited",
    "golden/runs_summary.csv": "runs_table",
    "golden/book_output.txt": "key_value_log",
    "golden/build_nanogpt": "key_value_log",
    "golden/mlruns": "mlflow",
    "golden/olmo_core_console.log": "olmo_core",
    "golden/wandb_export.csv": "delimited",
    "golden/nanogpt_output.log": "key_value_log",
    "golden/lightning_metrics.csv": "delimited",
    "golden/maxtext_stdout.log": "maxtext_stdout",
    "golden/llmc_main.log": "key_value_log",
    "golden/modded_nanogpt.txt": "key_value_log",
    "golden/megatron.out": "key_value_log",
    "golden/parameter_golf": "key_value_log",
    "golden/torchtitan_losses.txt": "delimited",
    "golden/wandb_history.jsonl": "json_lines",
    "golden/wandb_history.parquet": "parquet",
    "golden/maxtext_metrics.jsonl": "json_lines",
    "golden/olmes/": "olmes",
    "golden/peers/events.out": "tensorboard",
    "golden/peers/mlflow.db": "mlflow_sqlite",
    "golden/peers/trackio.db": "trackio",
    "golden/peers/trackio.parquet": "parquet",
}
REFUSED = {
    "f_formats/tfevents_real_pointer/": "Git LFS pointer",
    "golden/events.out.tfevents.pointer": "Git LFS pointer",
    "meta.yaml": "a part of MLflow's file store",
    "mlflow.runName": "a part of MLflow's file store",
}
BESIDE = ("INDEX.tsv", "meta.yaml", "mlflow.runName")  # parts of a store, and the list
NO_LOGS = {"SOURCE.md", "expected.json"}


def _slices() -> list[tuple[str, Path]]:
    files = [path for path in sorted(GOLDEN.rglob("*")) if path.is_file() and path.name not in NO_LOGS]
    return [(f"golden/{path.relative_to(GOLDEN).as_posix()}", path) for path in files]


def _shared() -> list[tuple[str, Path]]:
    if not INDEX.exists():
        return []
    with INDEX.open(newline="") as file:
        return [(row["file"], SHARED / row["file"]) for row in csv.DictReader(file, delimiter="\t")]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path_factory.mktemp('reallogs') / 'pacenote.db'}")
    ensure_schema(engine)
    yield engine
    engine.dispose()


@pytest.mark.parametrize(("name", "path"), [pytest.param(*log, id=log[0]) for log in _slices() + _shared()])
def test_a_real_log(engine: Engine, name: str, path: Path) -> None:
    reason = next((reason for start, reason in REFUSED.items() if name.startswith(start) or name.endswith(start)), None)
    if reason is not None:
        with pytest.raises(LogError, match=reason):
            find(path)
        return
    (group,) = find(path).groups
    assert group.format.name == FORMATS[max((start for start in FORMATS if name.startswith(start)), key=len)]
    options = Options(name, tokens_per_step=1_000_000)
    preview = look(group, options)
    report = store(engine, preview, options)
    check(engine, report)
    assert report.stored > 0
    if name.startswith("golden/"):
        again = store(engine, preview, options)
        assert (again.stored, again.superseded) == (0, 0)
        assert again.read == again.refused.total()
    if name.startswith("f_formats/tiny_lm_epoch_csv_odd_units/"):
        assert all("not one unit" in run.notes[0] and not run.known for run in preview.plan.runs.values())
    elif name.startswith(("a_", "b_", "c_")):
        targets = [target.metric for run in preview.plan.runs.values() for target in run.known.values()]
        assert targets or "val_loss_wide" in name or "torchtitan" in name, "nothing could be judged"
    elif name.startswith("e_"):
        targets = [target.metric for run in preview.plan.runs.values() for target in run.known.values()]
        assert any(target.startswith("downstream/") for target in targets)


@pytest.mark.parametrize(
    "folder",
    ["mlruns", "lm_eval", "peers", *(["../../../../shared/reallogs/f_formats"] if INDEX.exists() else [])],
)
def test_a_folder_of_logs(engine: Engine, folder: str) -> None:
    found = find(GOLDEN / folder)
    options = Options(f"folder {folder}", tokens_per_step=1_000_000)
    for group in found.groups:
        check(engine, store(engine, look(group, options), options, len(found.groups)))
    assert all(reason for _, reason in found.refused)
    if folder == "lm_eval":
        assert [(group.name, len(group.paths)) for group in found.groups] == [("410m", 2)]


def test_every_kind_and_every_file_is_in_the_table() -> None:
    kinds = {FORMATS[start] for start in FORMATS if start.startswith("golden/")}
    assert kinds == set(KNOWN) - {"aim"}, "a slice of every format; Aim's repository is made by Aim (tests/peers)"
    if INDEX.exists():
        listed = {name for name, _ in _shared()}
        there = {path.relative_to(SHARED).as_posix() for path in SHARED.rglob("*") if path.is_file()}
        assert not [name for name in there - listed if not name.endswith(BESIDE)]
