"""`pacenote rule` and `pacenote deviation`, and a backtest that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from judged_world import TRAIN, JudgedWorld
from serving import one_line
from sqlalchemy import select
from typer.testing import CliRunner

from service.cli.main import app
from service.database.engine import open_engine, reading, writing
from service.database.migrate import ensure_schema
from service.database.models import Event, Run, Segment
from service.judgements.view import reference_view


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run `sunk`, 0.9 below the lab's reference from step 200 on, with checkpoints."""
    address = f"sqlite:///{tmp_path_factory.mktemp('judging') / 'pacenote.db'}"
    engine = open_engine(address)
    ensure_schema(engine)
    world = JudgedWorld(engine)
    run = world.run("sunk")
    with reading(engine) as session:
        series = reference_view(session, session.get_one(Run, run)).metrics[TRAIN]
    world.points(run, series.steps.tolist(), (series.values - 0.9 * (series.steps > 200)).tolist())
    with writing(engine) as session:
        segment = session.scalars(select(Segment.id).where(Segment.run_id == run)).one()
        for step in (50, 100):
            body = {"value": f"gs://b/{step}"}
            session.add(Event(run_id=run, segment_id=segment, step=step, kind="checkpoint", value=body, at=1.0))
    world.judge(None).judge_run(run)
    engine.dispose()
    return address


def pacenote(url: str, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*arguments, "--database-url", url])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_a_rules_whole_life(url: str) -> None:
    status, out, error = pacenote(url, "rule", "list", "sunk")
    assert (status, error) == (0, "")
    assert "train_drift" in out
    assert "as shipped" in out
    set_it = ("rule", "set", "sunk", "train_drift", "--by", "Ann", "--reason", "other shuffle")
    assert pacenote(url, *set_it, "--tolerance", "0.25")[0] == 0
    status, out, _ = pacenote(url, *set_it, "--mute", "--muted-until", "2030-01-01T00:00:00Z")
    assert status == 0
    assert "tolerance 0.25 nats, set by Ann for this run: other shuffle" in out, "what is not named stays"
    assert "muted until 2030-01-01 00:00 UTC, set by Ann for this run: other shuffle" in out
    assert pacenote(url, "rule", "set", "lab", "plateau", "--project", "--disabled", "--reason", "short", "--by",
                    "Bo")[0] == 0  # fmt: skip
    assert "turned off, set by Bo for project lab: short" in pacenote(url, "rule", "show", "sunk", "plateau")[1]
    status, out, _ = pacenote(url, "rule", "reset", "sunk", "train_drift", "--by", "Bo", "--reason", "over")
    assert (status, "as shipped" in out) == (0, True)
    lines = pacenote(url, "rule", "history", "sunk")[1].splitlines()
    assert [line.split()[3] for line in lines if "UTC" in line and "train_drift" in line] == ["Bo", "Ann", "Ann"]
    assert pacenote(url, "rule", "reset", "lab", "plateau", "--project", "--by", "Bo")[0] == 0


def test_try_says_what_would_have_been_raised_and_sets_nothing(url: str) -> None:
    status, out, error = pacenote(url, "rule", "try", "sunk", "train_drift", "--tolerance", "3", "--every", "20")
    assert (status, error) == (0, "")
    first = next(line for line in out.splitlines() if line.startswith("train_drift:"))
    assert "said yes from step " in first
    assert first.endswith("would have said yes never")
    before, after = out.split("after:")
    assert "  train_drift: step " in before
    assert "train_drift" not in after
    assert "as shipped" in pacenote(url, "rule", "show", "sunk", "train_drift")[1]


def test_a_deviation_is_tried_before_it_is_declared(url: str) -> None:
    tried = ("deviation", "try", "sunk", "easier data", "--item", "data", "--every", "20")
    status, out, error = pacenote(url, *tried, "--budget", f"{TRAIN}=-1", "--until-step", "400")
    assert (status, error) == (0, "")
    before, after = out.split("after:")
    assert "  train_drift: step " in before
    assert "train_drift: step " not in after
    small = pacenote(url, *tried, "--budget", f"{TRAIN}=-0.001", "--until-step", "400")[1]
    assert "train_drift: step " in small.split("after:")[1]
    assert pacenote(url, *tried, "--budget", f"{TRAIN}=-1")[0] == 2
    assert "easier data" not in pacenote(url, "deviation", "list", "sunk")[1]


def test_a_deviations_whole_life(url: str) -> None:
    add = ("deviation", "add", "sunk", "easier data", "--item", "data", "--budget", f"{TRAIN}=-1", "--until-step",
           "400", "--by", "Ann")  # fmt: skip
    status, out, error = pacenote(url, *add)
    assert (status, error) == (0, "")
    uuid = out.split()[2].rstrip(";")
    status, out, _ = pacenote(url, "backtest", "sunk", "--rule", "train_drift", "--every", "20")
    assert status == 0
    assert "It rests on that; without: Train loss has drifted below" in out
    status, out, _ = pacenote(url, "deviation", "end", "sunk", uuid, "--at-step", "250", "--by", "Bo", "--reason", "x")
    assert (status, out) == (0, "“easier data” ends at step 250.\n")
    status, out, _ = pacenote(url, "backtest", "sunk", "--rule", "train_drift", "--every", "20")
    assert status == 1
    assert "Expired: the declared deviation “easier data”." in out
    listed = pacenote(url, "deviation", "list", "sunk")[1]
    assert uuid in listed
    assert "ended at step 250 by Bo: x" in listed
    assert pacenote(url, "deviation", "end", "sunk", uuid, "--at-step", "0", "--by", "Bo")[0] == 0


def test_a_backtest_says_where_to_go_back_to(url: str) -> None:
    status, out, _ = pacenote(url, "backtest", "sunk", "--rule", "train_drift", "--every", "20")
    assert status == 1
    assert "what now: The last checkpoint that is surely clean is step 100 (gs://b/100); a restart from it does" in out
    assert "not earlier: at step 2" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rule", "list", "nothing"], "there is no run nothing"),
        (["rule", "list", "nothing", "--project"], "There is no project nothing"),
        (["rule", "set", "sunk", "train_drift", "--reason", "x"], "Say what to set"),
        (["rule", "set", "sunk", "plateau", "--tolerance", "0.1", "--reason", "x"], "repeated_text (share)"),
        (["rule", "set", "sunk", "train_drift", "--tolerance", "0.1"], "Say why: --reason"),
        (["rule", "set", "sunk", "train_drift", "--tolerance", "-1", "--reason", "x"], "greater than 0"),
        (["rule", "set", "sunk", "train_drift", "--muted-until", "soon", "--reason", "x"], "'soon' is no time"),
        (["rule", "reset", "sunk", "downstream"], "Nothing is set for downstream in run sunk"),
        (["rule", "try", "sunk", "train_drift"], "sets nothing"),
        (["deviation", "add", "sunk", "x", "--item", "data", "--budget", "train/ce_loss"], "write METRIC=VALUE"),
        (["deviation", "add", "sunk", "x", "--item", "data", "--budget", f"{TRAIN}=-1"], "give an end"),
        (["deviation", "add", "sunk", "x", "--item", "weather", "--budget", f"{TRAIN}=-1"], "item: Input should be"),
        (["deviation", "end", "sunk", "x"], "x is no id of a deviation"),
    ],
)
def test_what_is_refused_is_said_in_one_line(url: str, arguments: list[str], message: str) -> None:
    status, out, error = pacenote(url, *arguments)
    assert (status, out) == (2, "")
    assert message in error
    assert one_line(error)


def test_the_help_of_each_has_an_example() -> None:
    for name in ("rule list", "rule show", "rule set", "rule reset", "rule history", "rule try", "deviation add",
                 "deviation list", "deviation end"):  # fmt: skip
        result = CliRunner().invoke(app, [*name.split(), "--help"])
        assert f"Example: pacenote {name} " in result.stdout


def test_a_commands_file_knows_no_other(tmp_path: Path) -> None:
    status, _, error = pacenote(f"sqlite:///{tmp_path / 'none'}.db", "rule", "list", "sunk")
    assert (status, one_line(error)) == (2, True)
