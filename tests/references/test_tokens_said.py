"""How many tokens a step takes is asked for only where the log does not say it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from typer.testing import CliRunner, Result

from service.cli.main import app

TABLE = "step,loss,throughput/total tokens\n" + "".join(
    f"{step},{2 + 3 / step},{step * 4096}\n" for step in range(1, 300)
)
PRINTED = "".join(f"iter {step}: loss {2 + 3 / (step + 1):.4f}, time 3ms\n" for step in range(300))
MEGATRON = "".join(
    f" iteration {step:8d}/     300 | consumed samples: {step * 32} | global batch size:    32 | "
    f"lm loss: {2 + 3 / step:.6E} |\n"
    for step in range(1, 300)
)
SAYS = {
    "tokens.csv": (TABLE, 4096, "throughput/total tokens"),
    "nanogpt.log": ("tokens per iteration will be: 491,520\n" + PRINTED, 491_520, "config"),
    "gpt2.log": ("total desired batch size: 524288\n" + PRINTED, 524_288, "config"),
    "llmc.log": (
        "batch_size B=16 * seq_len T=1024 * num_processes=8 and total_batch_size=524288\n" + PRINTED,
        524_288,
        "",
    ),
    "modded.log": ("train_batch_tokens:524288 train_seq_len:1024\n" + PRINTED, 524_288, "config"),
    "megatron.log": (
        "  seq_length ...................................... 2048\n" + MEGATRON,
        65_536,
        "global batch size",
    ),
}
SILENT = {
    "bare.log": PRINTED,
    "two.log": "tokens per iteration will be: 8\n" + PRINTED + "tokens per iteration will be: 16\n",
    "ramp.csv": "step,loss,throughput/total tokens\n" + "".join(f"{s},3,{s * s * 10}\n" for s in range(1, 99)),
    "batch.log": MEGATRON,
}


def publish(folder: Path, name: str, content: str, *more: object) -> Result:
    path = folder / name
    path.write_text(content)
    arguments = ["import", path, "--as", "reference", "--name", "small", *more]
    url = f"sqlite:///{folder / 'own.db'}"
    return CliRunner().invoke(app, [str(one) for one in arguments], env={"PACENOTE_DATABASE_URL": url})


@pytest.mark.parametrize("name", SAYS)
def test_the_log_says_it(tmp_path: Path, name: str) -> None:
    content, rate, by = SAYS[name]
    result = publish(tmp_path, name, content)
    assert result.exit_code == 0, result.output
    assert f"{rate:,} tokens a step, by " in result.output
    assert by in result.output
    exported = CliRunner().invoke(
        app,
        ["reference", "export", "small", str(tmp_path / "small.pacenote")],
        env={"PACENOTE_DATABASE_URL": f"sqlite:///{tmp_path / 'own.db'}"},
    )
    assert exported.exit_code == 0, exported.output
    with ZipFile(tmp_path / "small.pacenote") as archive:
        description = tomllib.loads(archive.read("reference.toml").decode())
    assert description["stages"][0]["tokens_per_step"] == rate
    assert "is installed already" in publish(tmp_path, name, content, "--tokens-per-step", rate).output


@pytest.mark.parametrize("name", SILENT)
def test_it_is_asked_for(tmp_path: Path, name: str) -> None:
    result = publish(tmp_path, name, SILENT[name])
    assert result.exit_code == 2
    assert "give --tokens-per-step" in result.output
    assert publish(tmp_path, name, SILENT[name], "--tokens-per-step", 1000).exit_code == 0


@pytest.mark.parametrize("name", ["tokens.csv", "megatron.log"])
def test_a_disagreement_is_said(tmp_path: Path, name: str) -> None:
    content, rate, _ = SAYS[name]
    result = publish(tmp_path, name, content, "--tokens-per-step", 1000)
    assert result.exit_code == 0, result.output
    assert f"--tokens-per-step 1,000, but {name.split('.')[0]} takes {rate:,} tokens a step" in result.output


def test_a_run_that_takes_other_batches_than_its_reference(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(TABLE)
    url = f"sqlite:///{tmp_path / 'own.db'}"
    result = CliRunner().invoke(
        app, ["import", str(path), "--reference", "olmo3-7b"], env={"PACENOTE_DATABASE_URL": url}
    )
    assert result.exit_code == 0, result.output
    assert "olmo3-7b has 4,194,304 a step, but mine takes 4,096 tokens a step" in result.output
