"""Real logs: format found by content, names and steps as the trainer means them."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.importers.attempts import Attempt, attempts
from service.importers.canonical import naming
from service.importers.detect import open_log
from service.importers.rows import Account, LogError

LOGS = Path(__file__).parents[1] / "golden" / "logs"
Points = dict[int, dict[str, float]]


def load(name: str, chosen: dict[str, str] | None = None) -> tuple[str, list[Attempt], Account]:
    with open_log(LOGS / name) as log:
        rows = list(log.rows)
        names = naming(log.format, dict.fromkeys(row.metric for row in rows), chosen)
        return log.format, attempts(rows, names.known, in_time_order=True), log.account


def points(name: str, chosen: dict[str, str] | None = None) -> Points:
    _, made, _ = load(name, chosen)
    assert len(made) == 1
    return made[0].points


@pytest.mark.parametrize(
    ("name", "format_name"),
    [
        ("wandb_export.csv", "delimited"),
        ("lightning_metrics.csv", "delimited"),
        ("torchtitan_losses.txt", "delimited"),
        ("maxtext_stdout.log", "maxtext_stdout"),
        ("llmc_main.log", "key_value_log"),
        ("nanogpt_output.log", "key_value_log"),
        ("modded_nanogpt.txt", "key_value_log"),
        ("megatron.out", "key_value_log"),
        ("parameter_golf.log", "key_value_log"),
    ],
)
def test_the_format_is_found(name: str, format_name: str) -> None:
    with open_log(LOGS / name) as log:
        assert log.format == format_name
        assert log.because


def test_maxtext_counts_updates_from_one() -> None:
    _, made, account = load("maxtext_stdout.log")
    assert made[0].points[1]["train/ce_loss"] == 12.038
    assert made[0].points[1]["throughput/tokens_per_second_per_device"] == 1094.129
    assert made[0].points[10] == {
        "throughput/step_seconds": 5.667,
        "throughput/tokens_per_second_per_device": 8672.758,
        "train/scored_tokens": 196608.0,
        "train/ce_loss": 10.374,
    }
    assert [(a.start_step, sorted(a.points)) for a in made] == [(0, list(range(1, 11))), (8, [9, 10])]
    assert (account.lines, account.skipped, account.truncated) == (13, 0, 0)


def test_nanogpt_evaluates_before_it_trains() -> None:
    found = points("nanogpt_output.log")
    assert found[0] == {"heldout/val/ce_loss": 10.9897}
    assert found[1] == {"train/ce_loss": 10.9766}, "iter 0 is the first update"
    assert max(found) == 11


def test_llmc() -> None:
    found = points("llmc_main.log")
    assert found[0] == {"heldout/val/ce_loss": 11.0092}
    assert found[1] == {"train/ce_loss": 11.0091, "optim/learning_rate": 1e-6, "optim/grad_norm": 15.37}


def test_modded_nanogpt_counts_from_one() -> None:
    found = points("modded_nanogpt.txt")
    assert found[0] == {"heldout/val/ce_loss": 10.8258}
    assert found[1] == {"train/ce_loss": 10.8258}


def test_megatron() -> None:
    found = points("megatron.out")
    assert found[200]["train/ce_loss"] == 9.324341
    assert found[200]["heldout/val/ce_loss"] == 8.975229
    assert found[200]["optim/grad_norm"] == 80.544


def test_a_step_and_a_total_without_a_word() -> None:
    found = points("parameter_golf.log")
    assert found[0] == {"heldout/val/ce_loss": 9.0092}
    assert found[1000] == {"train/ce_loss": 3.1873}


def test_a_restart_inside_a_log_is_another_start() -> None:
    _, made, account = load("parameter_golf_restart.txt")
    assert [(a.start_step, min(a.points), max(a.points)) for a in made] == [(0, 0, 9), (0, 1, 50)]
    assert made[1].points[50] == {"train/ce_loss": 3.6374, "heldout/val/ce_loss": 3.5947}
    assert account.skipped == 16, "lines about the warm-up hold nothing known"


def test_lightning() -> None:
    assert points("lightning_metrics.csv")[49] == {"train/ce_loss": 2.369102716445923}


def test_several_runs_in_one_export_must_be_chosen_from() -> None:
    with pytest.raises(LogError, match=r"both mean train/ce_loss: choose one with --map '") as raised:
        points("wandb_export.csv")
    assert "\n" not in str(raised.value)
    name = "gpt2 - train/loss"
    assert points("wandb_export.csv", {name: "train/ce_loss"})[0] == {"train/ce_loss": 10.95404052734375}


def test_a_table_without_names() -> None:
    assert points("torchtitan_losses.txt", {"column 2": "train/ce_loss"})[1] == {"train/ce_loss": 8.049097061157227}
    with pytest.raises(LogError, match="the log holds no 'loss'; it holds 'column 2'"):
        points("torchtitan_losses.txt", {"loss": "train/ce_loss"})
