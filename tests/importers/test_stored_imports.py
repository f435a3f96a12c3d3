"""What an import stores: segments at rewinds, later launches first, units, and nothing twice."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from importing import GOLDEN, check, imported, previewed, series
from sqlalchemy import Engine, select

from service.database.engine import reading
from service.database.models import Chunk, Segment
from service.importers import job, storing, survey
from service.importers.blocks import Block
from service.importers.folders import find
from service.importers.job import STORED_BEFORE, Options, look, store
from service.importers.rows import LogError
from service.series.repository import SeriesRepository

REWOUND = "step,loss\n1,3.0\n2,2.5\n3,2.0\n2,2.4\n3,1.9\n4,1.8\n"
PEERS = [
    ("tensorboard", "events.out.tfevents.tensorboard"),
    ("mlflow", "mlflow.db"),
    ("trackio", "trackio.db"),
    ("trackio", "trackio.parquet"),
]


def write(tmp_path: Path, content: str, name: str = "log.csv") -> Path:
    path = tmp_path / name
    path.write_text(content)
    return path


def segments(engine: Engine, run_id: int) -> list[Segment]:
    with reading(engine) as session:
        return list(session.scalars(select(Segment).where(Segment.run_id == run_id).order_by(Segment.started_at)))


def test_a_rewind_opens_a_segment_and_the_later_one_counts(engine: Engine, tmp_path: Path) -> None:
    report = imported(engine, write(tmp_path, REWOUND))
    assert (report.read, report.stored, report.superseded) == (6, 4, 2)
    assert series(engine, report, "train/ce_loss") == {1: 3.0, 2: 2.4, 3: 1.9, 4: 1.8}
    ((_, outcome),) = report.runs.values()
    assert [(s.kind, s.start_step, s.tokens_per_step) for s in segments(engine, outcome.run_id)] == [
        ("import", 0, 1000),
        ("import", 1, 1000),
    ]
    with reading(engine) as session:
        every = SeriesRepository(session).read(outcome.run_id, ["train/ce_loss"], superseded=True)["train/ce_loss"]
    assert len(every) == 6
    assert every.tokens.tolist()[:1] == [1000.0]


def test_the_same_content_stores_nothing_and_says_so(engine: Engine, tmp_path: Path) -> None:
    first = imported(engine, write(tmp_path, REWOUND))
    again = imported(engine, write(tmp_path, REWOUND))
    assert (again.stored, again.superseded, again.refused) == (0, 0, {STORED_BEFORE: 6})
    assert series(engine, again, "train/ce_loss") == series(engine, first, "train/ce_loss")
    changed = imported(engine, write(tmp_path, REWOUND + "5,1.7\n"))
    assert changed.stored == 5, "a longer log is other content"


def test_the_later_of_two_files_counts(engine: Engine, tmp_path: Path) -> None:
    options = Options("test", name="run", tokens_per_step=1000)
    imported(engine, write(tmp_path, "step,loss\n1,3\n2,2.9\n3,2.8\n", "first.csv"), options)
    report = imported(engine, write(tmp_path, "step,loss\n3,2.0\n4,1.9\n", "second.csv"), options)
    assert series(engine, report, "train/ce_loss") == {1: 3.0, 2: 2.9, 3: 2.0, 4: 1.9}
    timed = "step,loss,timestamp\n2,9,1700000000\n5,9,1700000005\n"
    report = imported(engine, write(tmp_path, timed, "old.csv"), options)
    assert (report.stored, report.superseded) == (1, 1), "its time says that it was launched before"
    assert series(engine, report, "train/ce_loss") == {1: 3.0, 2: 2.9, 3: 2.0, 4: 1.9, 5: 9.0}


def test_an_import_that_broke_off_is_made_good(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "step,loss\n" + "".join(f"{step},{1 + 1 / step}\n" for step in range(1, 200)))
    options = Options("test", tokens_per_step=1000)
    preview = previewed(path, options)
    monkeypatch.setattr(storing, "POINTS_AT_ONCE", 50)
    whole = preview.survey.kept
    assert whole is not None

    def broken() -> Iterator[Block]:
        yield from (block.part(0, 100) for block in whole)
        raise ConnectionError("the machine died")

    def pieces(_blocks: Iterator[Block], *_: object) -> Iterator[Block]:
        return broken()

    with monkeypatch.context() as patch:
        patch.setattr(job, "_same", pieces)
        with pytest.raises(ConnectionError):
            store(engine, preview, options)
    with reading(engine) as session:
        assert session.scalar(select(Chunk.points)) == 100, "half of it is there"
    report = store(engine, preview, options)
    check(engine, report)
    assert report.stored == 199
    ((_, outcome),) = report.runs.values()
    assert len(segments(engine, outcome.run_id)) == 1


def test_a_log_that_is_too_large_to_keep_is_read_twice(
    database: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "KEPT_POINTS", 1000)
    monkeypatch.setattr(storing, "POINTS_AT_ONCE", 5000)
    rows = [f"{step},{3 - step / 1e4},{step / 7}\n" for start in (1, 9000, 5000) for step in range(start, start + 9000)]
    path = write(tmp_path, "step,loss,other\n" + "".join(rows))
    options = Options("test", tokens_per_step=1000)
    preview = previewed(path, options)
    assert preview.survey.kept is None
    report = store(database, preview, options)
    check(database, report)
    assert (report.read, report.superseded) == (54_000, 54_000 - 2 * 17_999)
    found = series(database, report, "train/ce_loss")
    assert len(found) == 17_999
    assert found[9500] == 3 - 9500 / 1e4


def test_evaluations_in_any_order_make_no_segments(database: Engine, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    steps = rng.permutation(5000)
    report = imported(database, write(tmp_path, "step,loss\n" + "".join(f"{step},2\n" for step in steps)))
    ((_, outcome),) = report.runs.values()
    assert len(outcome.segments) == 1
    assert report.stored == 5000


def test_steps_of_each_epoch_follow_one_another(database: Engine) -> None:
    report = imported(database, GOLDEN / "steps_per_epoch.csv")
    found = series(database, report, "train/ce_loss")
    assert report.superseded == 0
    assert list(found) == sorted(found)
    assert max(found) > 70


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("step,loss\n1,1.0D+00\n2,2.5d-1\n", {1: 1.0, 2: 0.25}),
        ('step,loss\n1,"1,234.5"\n"2,000",3\n', {1: 1234.5, 2000: 3.0}),
        ("step;loss\n1;3,25\n2;3,1\n", {1: 3.25, 2: 3.1}),
        ("step,loss\n1,nan\n2, 3.5 \n3,+2\n", {1: math.nan, 2: 3.5, 3: 2.0}),
        ("step,loss,loss\n1,3,9\n2,2,8\n", {1: 3.0, 2: 2.0}),
        ("step,loss,other\n1,3\n2,2,8\n3,1,8,9\n4,1,1\n", {2: 2.0, 4: 1.0}),
        ("step,loss\n1.0,3\n2.5,3\n-1,3\n,3\n3,2\n", {1: 3.0, 3: 2.0}),
        ("step,loss\n1,3\nlearning_rate: 0.1 # config\nstep,loss\n2,2\n", {1: 3.0, 2: 2.0}),
        ("epoch,loss\n1,3\n2,2\n", {1: 3.0, 2: 2.0}),
        ("run,step,loss\na,1,3\na,2,2\n", {1: 3.0, 2: 2.0}),
    ],
    ids=["fortran", "thousands", "decimal-comma", "nan", "doubled", "unequal", "steps", "config", "epochs", "one-run"],
)
def test_odd_tables(database: Engine, tmp_path: Path, content: str, expected: dict[int, float]) -> None:
    report = imported(database, write(tmp_path, content))
    assert repr(series(database, report, "train/ce_loss")) == repr(expected)


def test_text_among_numbers_is_counted_and_text_columns_are_not(database: Engine, tmp_path: Path) -> None:
    preview = previewed(write(tmp_path, "step,loss,tag\n1,3,a\n2,oops,b\n3,2,c\n"), Options("test"))
    assert preview.account.refused == {"the cell holds no number": 1}
    assert preview.account.notes == ["columns of text are no metrics: tag"]
    assert preview.read == 3


def test_perplexity_becomes_a_loss_and_stays(database: Engine, tmp_path: Path) -> None:
    rows = "".join(f"{step},{10 - step},{math.exp(10.1 - step)}\n" for step in range(1, 6))
    report = imported(database, write(tmp_path, "step,train_loss,val_ppl\n" + rows))
    found = series(database, report, "heldout/val/ce_loss")
    assert found[1] == pytest.approx(9.1)
    assert series(database, report, "val_ppl")[1] == pytest.approx(math.exp(9.1))
    assert (report.stored, report.copies) == (10, 5)


def test_a_loss_that_is_a_perplexity_is_found_out(database: Engine, tmp_path: Path) -> None:
    rows = "".join(f"{step},{math.exp(10 - step)!r},{10.1 - step}\n" for step in range(1, 6))
    path = write(tmp_path, "step,train_loss,val_loss\n" + rows)
    report = imported(database, path)
    assert series(database, report, "train/ce_loss")[1] == pytest.approx(9.0)
    (run,) = previewed(path, Options("test")).plan.runs.values()
    assert run.notes == ["train_loss is a perplexity (its logarithm is the other loss): converted to nats"]


def test_losses_in_two_units_are_never_mixed(database: Engine) -> None:
    report = imported(database, GOLDEN / "odd_units.csv")
    assert series(database, report, "train/ce_loss") == {}
    assert len(series(database, report, "loss")) == 9
    chosen = {"loss": "train/ce_loss", "eval_loss": "heldout/val/ce_loss"}
    report = imported(database, GOLDEN / "odd_units.csv", Options("chosen", mapping=chosen, tokens_per_step=1))
    assert len(series(database, report, "train/ce_loss")) == 9, "the user knows better"


def test_memorization_is_one_unit(database: Engine) -> None:
    report = imported(database, GOLDEN / "book_output.txt")
    assert series(database, report, "train/ce_loss")[1] == 9.817, "its count begins with 0 after the first update"
    assert series(database, report, "heldout/val/ce_loss")[1] == 9.924


def test_a_setting_of_a_run_is_no_measurement(database: Engine) -> None:
    report = imported(database, GOLDEN / "runs_summary.csv")
    assert series(database, report, "learning_rate", "baseline")
    assert series(database, report, "optim/learning_rate", "baseline") == {}, "it is the peak of the schedule"


def test_percentages(database: Engine, tmp_path: Path) -> None:
    report = imported(database, write(tmp_path, "step,piqa/acc,piqa/acc_stderr\n1,52.5,1\n2,60,1\n"))
    assert series(database, report, "downstream/piqa/accuracy") == {1: 0.525, 2: 0.6}


def test_tokens_of_the_log_place_points(database: Engine) -> None:
    report = imported(database, GOLDEN / "olmo_core_console.log", Options("test"))
    ((_, outcome),) = report.runs.values()
    with reading(database) as session:
        found = SeriesRepository(session).read(outcome.run_id, ["train/ce_loss", "optim/learning_rate"])
    assert found["train/ce_loss"].tokens[0] == 4_194_304.0
    assert found["optim/learning_rate"].values.tolist() == [1.5e-7]
    assert series(database, report, "heldout/c4_en/ce_loss") == {10: 10.91}
    assert series(database, report, "downstream/arc_easy_test_mc_5shot_fast/accuracy") == {10: 0.251}


def test_a_run_of_a_chart_can_be_taken_alone(database: Engine) -> None:
    options = Options("test", run="gpt2", name="mine", tokens_per_step=10)
    report = imported(database, GOLDEN / "wandb_export.csv", options)
    assert list(report.runs) == ["mine"]
    with pytest.raises(LogError, match="no run 'gpt3' with values"):
        previewed(GOLDEN / "wandb_export.csv", Options("test", run="gpt3"))


def test_too_many_metrics_and_too_long_names(database: Engine, tmp_path: Path) -> None:
    names = ["loss", *(f"m{place}" for place in range(2100)), "x" * 300]
    path = write(tmp_path, json.dumps({"step": 1} | dict.fromkeys(names, 1.0)) + "\n", "log.jsonl")
    report = imported(database, path)
    assert report.stored == 2000
    assert report.refused == {
        "the run has more than 2000 metrics": 101,
        "the metric's name is longer than 256 bytes": 1,
    }
    assert series(database, report, "train/ce_loss") == {1: 1.0}


@pytest.mark.parametrize(("kind", "name"), PEERS, ids=[name for _, name in PEERS])
def test_what_the_trackers_own_readers_say(database: Engine, kind: str, name: str) -> None:
    expected = json.loads((GOLDEN / "peers" / "expected.json").read_text())[kind]
    preview = previewed(GOLDEN / "peers" / name, Options("test"))
    runs = {"": expected} if kind == "tensorboard" else expected
    kept = preview.survey.kept
    assert kept is not None
    found: dict[str, dict[str, list[list[object]]]] = {}
    for block in kept:
        for metric, (values, _) in block.columns.items():
            pairs = zip(block.steps_of(metric).tolist(), values.tolist(), strict=True)
            found.setdefault(block.run, {}).setdefault(metric, []).extend([step, repr(value)] for step, value in pairs)
    for run, metrics in runs.items():
        for metric, values in metrics.items():
            assert sorted(found[run][metric], key=str) == sorted(values, key=str)
    assert set(found) == set(runs)
    report = store(database, preview, Options("test"))
    check(database, report)


def test_a_name_that_another_means_is_refused(database: Engine, tmp_path: Path) -> None:
    path = write(tmp_path, "step,loss,train/ce_loss\n1,3,4\n")
    report = imported(database, path, Options("test", mapping={"loss": "train/ce_loss"}))
    assert series(database, report, "train/ce_loss") == {1: 3.0}
    assert report.refused == {"another name of the log means this metric": 1}


def test_nothing_to_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"no value could be read \(no whole step of 0 or more: 1"):
        previewed(write(tmp_path, "step,loss\n0.5,3\n1,\n"), Options("test"))


def test_look_reports_what_does_not_change(tmp_path: Path) -> None:
    options = Options("test")
    path = write(tmp_path, REWOUND)

    (group,) = find(path).groups
    assert look(group, options).version(options) == look(group, options).version(options)
    assert look(group, options).version(options) != look(group, options).version(
        Options("test", run="x", tokens_per_step=2)
    )


def test_a_duration_is_a_metric_and_no_time(database: Engine, tmp_path: Path) -> None:
    report = imported(database, write(tmp_path, "step,loss,time\n1,3,310.5\n2,2,311\n"))
    assert series(database, report, "time") == {1: 310.5, 2: 311.0}
    text = '{"step": 1, "loss": 3, "time": 310.5}\n{"step": 2, "loss": 3, "timestamp": 1700000000}\n'
    report = imported(database, write(tmp_path, text, "other.jsonl"))
    assert series(database, report, "time") == {1: 310.5}
    assert series(database, report, "axis/time") == {2: 1700000000.0}


def test_grouped_charts_of_wandb(database: Engine, tmp_path: Path) -> None:
    names = [f'"Group: base - train/loss{suffix}"' for suffix in ("", "__MIN", "__MAX")]
    steps = ['"Group: base - _step"', '"Group: base - _step__MIN"', '"Group: base - _step__MAX"']
    header = ",".join(['"Step"', *steps, *names])
    path = write(tmp_path, f'{header}\n"0","0","0","0","3","2.9","3.1"\n"1","1","1","1","2.5","2.4","2.6"\n')
    report = imported(database, path)
    assert series(database, report, "train/ce_loss", "Group: base") == {0: 3.0, 1: 2.5}
    assert report.read == 2


def test_the_runs_table_of_wandb(database: Engine, tmp_path: Path) -> None:
    table = '"Name","State","Notes","_step","train/loss"\n"one","finished","two\nlines","500","2.5"\n'
    table += '"two","crashed","","20",""\n'
    report = imported(database, write(tmp_path, table))
    assert list(report.runs) == ["one"]
    assert series(database, report, "train/ce_loss", "one") == {500: 2.5}


def test_olmes_takes_the_step_from_where_it_stands(database: Engine, tmp_path: Path) -> None:
    for step, score in ((1000, 0.25), (2000, 0.5)):
        folder = tmp_path / "evals" / f"stage1-step{step}-tokens4B"
        folder.mkdir(parents=True)
        found = {"task_name": "arc_easy", "task_config": {"split": "test"}, "metrics": {"primary_score": score, "n": 3}}
        (folder / "task-000-arc_easy-metrics.json").write_text(json.dumps(found))
    report = imported(database, tmp_path / "evals")
    assert list(report.runs) == ["evals"]
    assert series(database, report, "downstream/arc_easy/accuracy") == {1000: 0.25, 2000: 0.5}


def test_runs_of_one_name_stay_apart(database: Engine, tmp_path: Path) -> None:
    for key, loss, stage in (("a1", 3.0, "active"), ("b2", 2.0, "active"), ("c3", 1.0, "deleted")):
        folder = tmp_path / "mlruns" / "0" / key
        (folder / "metrics").mkdir(parents=True)
        (folder / "meta.yaml").write_text(f"run_id: {key}\nrun_name: seed\nlifecycle_stage: {stage}\n")
        (folder / "metrics" / "loss").write_text(f"1700000000000 {loss} 1\n")
        (folder / "artifacts").mkdir()
    (group,) = find(tmp_path / "mlruns").groups
    before = group.digest([])
    (tmp_path / "mlruns/0/a1/artifacts/model.bin").write_bytes(b"large")
    assert group.digest([]) == before, "artifacts are not read"
    report = imported(database, tmp_path / "mlruns")
    assert list(report.runs) == ["seed (a1)", "seed (b2)"]
    assert series(database, report, "train/ce_loss", "seed (b2)") == {1: 2.0}


def test_a_name_that_one_run_lacks_is_found_in_another(database: Engine, tmp_path: Path) -> None:
    path = write(tmp_path, "run,step,metric,value\na,1,train/loss,3\na,1,loss,4\nb,1,loss,2\n")
    report = imported(database, path)
    assert series(database, report, "train/ce_loss", "a") == {1: 3.0}
    assert series(database, report, "train/ce_loss", "b") == {1: 2.0}
