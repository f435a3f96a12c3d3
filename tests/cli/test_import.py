"""`pacenote import`: what it says before and after, what it asks, what it refuses, and judging in its own process."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from click.testing import Result
from serving import one_line, run
from sqlalchemy import select
from typer.testing import CliRunner

from service.cli.main import app
from service.database.engine import open_engine, reading
from service.database.models import Run

GOLDEN = Path(__file__).parents[1] / "golden" / "logs"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('import') / 'pacenote.db'}"


def do(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["import", *arguments], env={"PACENOTE_DATABASE_URL": url})


def curve(path: Path, drift: float = 0.0, held: float = 0.0) -> Path:
    """A falling loss, 2,000 steps; `drift` and `held` are added to train and held-out loss in the second half."""
    dice = random.Random(path.name)
    lines = ["step,train_loss,val_loss"]
    for step in range(1, 2001):
        late = step > 1000
        noise = dice.gauss(0, 0.02)
        value = 2 + 5 / (1 + step / 50) + noise + (drift if late else 0)
        heldout = f"{2.05 + 5 / (1 + step / 50) + (held if late else 0):.6f}" if step % 50 == 0 else ""
        lines.append(f"{step},{value:.6f},{heldout}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_reference_a_run_and_their_judgement(url: str, tmp_path: Path) -> None:
    reference = ["--as", "reference", "--name", "Small Run", "--tokens-per-step", "1000", "--licence", "MIT"]
    made = do(url, str(curve(tmp_path / "published.csv")), *reference)
    assert made.exit_code == 0, made.stderr
    assert "train_loss -> train/ce_loss (2,000 points, step 1 to 2,000)" in made.stdout
    assert "Installed small-run version " in made.stdout
    assert "train/ce_loss: tolerance 0." in made.stdout
    assert "heldout/val/ce_loss: tolerance 0." in made.stdout
    assert "Rows read 2,040 = stored 2,040 + superseded 0 + refused 0" in made.stdout
    again = do(url, str(tmp_path / "published.csv"), *reference)
    assert "refused 2,040: stored before" in again.stdout
    assert "is installed already" in again.stdout
    healthy = curve(tmp_path / "healthy.csv", 0.001, 0.001)
    result = do(url, str(healthy), "--reference", "small-run", "--judge")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Verdict: consistent" in result.stdout
    memorizing = curve(tmp_path / "memorizing.csv", -0.3)
    result = do(url, str(memorizing), "--reference", "small-run", "--judge", "--name", "mine")
    assert result.exit_code == 1
    assert "Verdict: drifting" in result.stdout
    assert "train_drift: yes" in result.stdout
    assert "Run mine (" in result.stdout
    engine = open_engine(url)
    with reading(engine) as session:
        found = session.execute(select(Run.name, Run.role, Run.reference).where(Run.name.in_(["mine", "healthy"])))
        assert sorted(map(tuple, found)) == [
            ("healthy", "reproduction", "small-run"),
            ("mine", "reproduction", "small-run"),
        ]
    engine.dispose()


def test_a_dry_run_stores_nothing_and_shows_everything(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'none.db'}"
    result = do(url, str(GOLDEN / "parameter_golf_restart.txt"), "--dry-run")
    assert result.exit_code == 0
    assert "known by lines such as" in result.stdout
    assert "not known, kept under their own names and not judged: step of/val_bpb" in result.stdout
    assert "the steps go back 1 times" in result.stdout
    assert "16 not taken: the line holds nothing known (first: line 1)" in result.stderr
    assert not (tmp_path / "none.db").exists()
    result = do(url, str(GOLDEN / "wandb_export.csv"), "--dry-run")
    assert "16 columns __MIN, __MAX" in result.stdout
    assert result.stdout.count("-> train/ce_loss") == 8
    assert "not one unit" in do(url, str(GOLDEN / "odd_units.csv"), "--dry-run").stderr


def test_a_folder(url: str) -> None:
    result = do(url, str(GOLDEN / "mlruns"), "--project", "folder", "--name", "seeds")
    assert result.exit_code == 0
    assert "Run seeds/seed0 (" in result.stdout
    assert "Run seeds/seed1 (" in result.stdout
    result = do(url, str(GOLDEN / "lm_eval"), "--project", "folder")
    assert "and 1 more files: lm-evaluation-harness" in result.stdout
    assert "arc_easy/acc -> downstream/arc_easy/accuracy (2 points, step 1,000 to 143,000)" in result.stdout


def test_what_is_named_goes_before_what_is_found(url: str) -> None:
    path = str(GOLDEN / "torchtitan_losses.txt")
    result = do(url, path, "--format", "delimited", "--map", "column 2=train/ce_loss", "--project", "named")
    assert result.exit_code == 0
    assert "known by you said so" in result.stdout
    assert "column 2 -> train/ce_loss" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv"], "none.csv: cannot be read"),
        ([""], "the argument is empty"),
        (["s3://bucket/log.csv"], "not read over s3://; copy it to this machine first"),
        ([str(GOLDEN / "SOURCE.md")], "no known format"),
        ([str(GOLDEN / "events.out.tfevents.pointer")], "Git LFS pointer"),
        ([str(GOLDEN / "llmc_main.log"), "--format", "csv"], "there is no format 'csv'; there are tensorboard"),
        ([str(GOLDEN / "llmc_main.log"), "--reference", "nothing"], "There is no reference nothing"),
        ([str(GOLDEN / "llmc_main.log"), "--reference", "olmo3-7b", "--stage", "x"], "olmo3-7b has no stage x"),
        ([str(GOLDEN / "llmc_main.log"), "--judge"], "name one with --reference"),
        ([str(GOLDEN / "llmc_main.log"), "--as", "reference"], "--tokens-per-step"),
        ([str(GOLDEN / "llmc_main.log"), "--map", "loss"], "write NAME=METRIC"),
        ([str(GOLDEN / "llmc_main.log"), "--map", "loss=train/ce_loss"], "the log holds no 'loss'"),
        ([str(GOLDEN / "wandb_export.csv"), "--as", "reference", "--tokens-per-step", "1"], "Take one with --run"),
        ([str(GOLDEN / "checkpoints.csv"), "--as", "reference", "--tokens-per-step", "1"], "say which with --map"),
        ([str(GOLDEN / "checkpoints_agg.json"), "--run", "x"], "no run 'x' with values"),
    ],
)
def test_what_is_refused(url: str, arguments: list[str], message: str) -> None:
    result = do(url, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert one_line(result.stderr)


def test_the_command_itself(url: str) -> None:
    result = run("import", str(GOLDEN / "llmc_main.log"), "--project", "real", "--yes", PACENOTE_DATABASE_URL=url)
    assert result.returncode == 0
    assert "Rows read 34 = stored 34" in result.stdout
