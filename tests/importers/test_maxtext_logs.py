"""MaxText's losses contain z-loss: what an import makes of them is what the hook's adapter makes of the same calls."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from importing import check, imported, previewed, series
from sqlalchemy import Engine
from typer.testing import CliRunner

from service.cli.main import app
from service.importers.attempts import attempts
from service.importers.blocks import Floats
from service.importers.canonical import Target, naming
from service.importers.crc32c import masked_crcs
from service.importers.follow import Feed, State
from service.importers.follow_source import Fed
from service.importers.job import Options, store
from service.importers.json_lines import RUNNING
from service.importers.maxtext_stdout import ABSENT
from service.importers.rows import Row
from service.importers.subtraction import Subtraction, subtracted
from trainer_hooks.names import Translator, load

Call = dict[str, float]
LM, Z, CE = "learning/lm_loss", "learning/z_loss", "train/ce_loss"


def calls(steps: int = 12) -> list[Call]:
    """What MaxText writes at its steps 0, 1, …"""
    made: list[Call] = []
    for step in range(steps):
        loss, z = 12.0 - step / 8, 1.3e-3 / (1 + step)
        made.append({"learning/loss": loss, LM: loss, Z: z, "learning/total_weights": 4095.0})
    made[5] |= {"eval/avg_loss": 11.0, "eval/avg_z_loss": 1e-3, "eval/avg_perplexity": float(np.exp(11.0))}
    return made


def by_the_hook(made: list[Call], accumulation: int = 1) -> dict[str, dict[int, float]]:
    translate = Translator(load("maxtext").given(accumulation=accumulation))
    found: dict[str, dict[int, float]] = {}
    for step, call in enumerate(made, 1):
        for part in (
            {name: value for name, value in call.items() if name.startswith("eval/") == evaluation}
            for evaluation in (False, True)
        ):
            for name, value in translate(part, lambda kind, why: None).items():
                found.setdefault(name, {})[step] = value
    return {name: values for name, values in found.items() if not name.startswith(("raw/", "learning/", "eval/"))}


def as_json(made: list[Call]) -> bytes:
    lines = [call | {"step": float(step), "run_name": "v7x"} for step, call in enumerate(made)]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def as_table(made: list[Call]) -> bytes:
    rows = [(name, step, value) for step, call in enumerate(made) for name, value in call.items()]
    return ("step,metric,value\n" + "".join(f"{s},{n},{v!r}\n" for n, s, v in sorted(rows))).encode()


def as_events(made: list[Call]) -> bytes:
    return b"".join(_event(step, name, value) for step, call in enumerate(made) for name, value in call.items())


def _event(step: int, tag: str, value: float) -> bytes:
    tensor = b"\x08\x02\x12\x00\x22\x08" + struct.pack("<d", value)  # float64, no dimensions, its bytes
    scalar = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x42" + bytes([len(tensor)]) + tensor
    summary = b"\x0a" + bytes([len(scalar)]) + scalar
    record = b"\x09" + struct.pack("<d", 1e9 + step) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)])
    record += summary
    head = struct.pack("<Q", len(record))
    sums = [struct.pack("<I", int(masked_crcs([part])[0])) for part in (head, record)]
    return head + sums[0] + record + sums[1]


WRITERS = {"metrics.jsonl": as_json, "long.csv": as_table, "events.out.tfevents.1": as_events}


@pytest.mark.parametrize("accumulation", [1, 8])
@pytest.mark.parametrize("name", WRITERS)
def test_an_import_and_the_hook_agree(
    database: Engine, tmp_path: Path, name: str, accumulation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.importers.tensorboard.AT_ONCE", 2)  # the two are never in one block
    path = tmp_path / name
    path.write_bytes(WRITERS[name](calls()))
    options = Options("test", tokens_per_step=1000, accumulation=accumulation)
    report = imported(database, path, options)
    for metric, values in by_the_hook(calls(), accumulation).items():
        assert series(database, report, metric) == pytest.approx(values, rel=1e-12), metric
    assert series(database, report, LM) == {step: call[LM] for step, call in enumerate(calls())}, "the raw value beside"
    by = " / 8" if accumulation > 1 else ""
    assert f"train/ce_loss = {LM} - {Z}{by} (the loss contains z-loss)" in report.conversions
    again = store(database, look_again := previewed(path, options), options)
    assert again.stored == 0
    assert look_again.plan.runs[next(iter(look_again.plan.runs))].conversions[0]["metric"] == CE


@pytest.mark.parametrize(
    "names",
    [
        (LM, Z),
        (LM,),
        ("learning/loss",),
        ("learning/loss", Z),
        ("learning/loss", LM, Z),
        ("learning/loss", "learning/moe_lb_loss"),
        ("learning/loss", Z, "learning/moe_lb_loss", "learning/mtp_loss"),
        ("eval/avg_loss", "eval/avg_z_loss"),
        ("eval/avg_loss",),
    ],
)
def test_every_set_of_names_is_understood_as_the_hook_does(names: tuple[str, ...]) -> None:
    values = {name: 1.0 + place / 7 for place, name in enumerate(names)}
    expected = by_the_hook([values], 4)
    found: dict[str, dict[int, float]] = {}
    for attempt in attempts(
        [Row(0, name, value) for name, value in values.items()],
        naming("json_lines", names, {}, 4).known,
        in_time_order=True,
    ):
        for step, metrics in attempt.points.items():
            for metric, value in metrics.items():
                found.setdefault(metric, {})[step] = value
    assert found.keys() == expected.keys()
    for metric, points in expected.items():
        assert found[metric] == pytest.approx(points), metric


def test_a_launch_without_z_loss_and_a_step_without_it(database: Engine, tmp_path: Path) -> None:
    first, second = calls(6), [{LM: 9.0 + step} for step in range(4)]
    del first[3][Z]
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(as_json(first) + as_json(second))
    options = Options("test", tokens_per_step=1000)
    preview = previewed(path, options)
    report = store(database, preview, options)
    check(database, report)
    losses = series(database, report, CE)
    assert (losses[1], losses[4]) == (9.0, 12.0), "the later start, which has no z-loss"
    assert losses[6] == pytest.approx(first[5][LM] - first[5][Z])
    assert "1 values lack what they contain" in report.conversions[0]
    assert report.superseded == 4, "step by step, and metric by metric"
    (attempt, rest) = attempts(
        [Row(step, *item) for made in (first, second) for step, call in enumerate(made) for item in call.items()],
        naming("json_lines", [LM, Z]).known,
        in_time_order=True,
    )
    assert 4 not in {step for step, values in attempt.points.items() if CE in values}
    assert [values[CE] for values in rest.points.values()] == [9.0, 10.0, 11.0, 12.0]


def test_running_averages_of_an_evaluation_are_no_evaluations(database: Engine, tmp_path: Path) -> None:
    running = [{"eval/avg_loss": 5.0, "eval/step_time_seconds": 1.0, "step": float(n)} for n in range(3)]
    lines = as_json(calls()).decode().splitlines(keepends=True)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join([*lines[:5], *(json.dumps(line) + "\n" for line in running), *lines[5:]]))
    report = imported(database, path)
    assert series(database, report, "heldout/eval/ce_loss") == pytest.approx({6: 11.0 - 1e-3})
    assert report.refused[RUNNING] == 6


def test_what_is_printed(database: Engine, tmp_path: Path) -> None:
    line = "seconds: 1.0, TFLOP/s/device: 1.0, Tokens/s/device: 2.0, total_weights: 3"
    path = tmp_path / "stdout.log"
    path.write_text(
        f"completed step: 0, {line}, loss: 12.000, lm_loss: 12.000, perplexity: 162754.791\n"
        f"completed profiler activation/deactivation step: 1, total_weights: 3, loss: 11.500, lm_loss: 11.500\n"
        "Completed eval step: 0, seconds: 1.0, running loss=9.000, running perplexity=9.0, running total_weights=3\n"
        f"Completed eval after train step 1, loss=11.250, perplexity=9.0, total_weights=3, avg_z_loss=0.001\n"
        f"[Rampup Batch Size Phase], completed step: 2, seconds: 1.0, total_weights: 3, loss: 11.000, lm_loss: 0.000\n"
    )
    report = imported(database, path)
    assert series(database, report, CE) == {1: 12.0, 2: 11.5}
    assert series(database, report, "heldout/eval/ce_loss") == {2: 11.249}
    assert report.refused[ABSENT] == 1
    assert "heldout/eval/ce_loss = eval/loss - eval/avg_z_loss (the loss contains z-loss)" in report.conversions


def test_older_models_print_a_placeholder_alone(database: Engine, tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    printed = "completed step: {}, seconds: 1.0, total_weights: 3, loss: {}, lm_loss: 0.000, perplexity: 0.000\n"
    path.write_text(printed.format(0, 12.0) + printed.format(1, 11.0))
    report = imported(database, path)
    assert series(database, report, CE) == {1: 12.0, 2: 11.0}
    assert report.refused[ABSENT] == 4


@given(st.lists(st.sampled_from(["loss", "z"]), max_size=40), st.integers(1, 7))
def test_the_order_of_pieces_does_not_matter(order: list[str], width: int) -> None:
    steps = np.arange(20, dtype=np.int64)
    values: dict[str, Floats] = {"loss": steps.astype(np.float64) + 2.0, "z": steps.astype(np.float64) / 100.0}
    target = Target(CE, minus=("z",))
    made = Subtraction(target)
    at = {"loss": 0, "z": 0}
    found: dict[int, float] = {}
    for name in [*order, *["loss"] * 20, *["z"] * 20]:
        piece = slice(at[name], at[name] + width)
        at[name] += width
        pair = steps[piece], values[name][piece]
        got = made.add(pair if name == "loss" else None, {"z": pair} if name == "z" else {})
        found |= dict(zip(got[0].tolist(), got[1].tolist(), strict=True))
    assert found == pytest.approx({step: step + 2.0 - step / 100 for step in range(20)})
    assert made.rest()[1] == 0
    whole = subtracted((steps, values["loss"]), {"z": (steps, values["z"])}, target)
    assert whole[1].tolist() == pytest.approx(list(found.values()))


def rows_of(made: list[Call], reverse: bool) -> Iterator[Row]:
    for step, call in enumerate(made):
        for name, value in sorted(call.items(), reverse=reverse):
            yield Row(step, name, value, 1e9 + step)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("width", [1, 3, 1000])
def test_a_run_that_is_followed(reverse: bool, width: int) -> None:
    first, second = calls(), [{LM: 9.0 + step} for step in range(4)]
    rows = [*rows_of(first, reverse), *rows_of(second, reverse)]
    state = State("x")
    found: list[dict[int, float]] = []

    def feed(some: list[Row]) -> None:
        Feed(state, lambda start: {"started_at": 0.0}, {}, 8).take(Fed(some, {}), "json_lines")

    feed(rows[:6])  # the names are known after the first two steps
    for start in range(6, len(rows), width):
        feed(rows[start : start + width])
    for request in state.pending:
        if request.kind == "segment":
            found.append({})
        elif CE in request.body["metrics"]:
            for step, value in zip(request.body["steps"], request.body["metrics"][CE], strict=True):
                if value is not None:
                    found[-1][step] = value
    assert found[0] == pytest.approx(by_the_hook(first, 8)[CE])
    assert found[1] == {1: 9.0, 2: 10.0, 3: 11.0}  # the last waits for what follows it


def test_it_is_said(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(as_json(calls()))
    url = f"sqlite:///{tmp_path / 'p.db'}"
    said = CliRunner().invoke(app, ["import", str(path), "--yes", "--database-url", url])
    assert said.exit_code == 0, said.output
    assert f"converted: train/ce_loss = {LM} - {Z} (the loss contains z-loss)" in said.output
    assert "converted: heldout/eval/ce_loss = eval/avg_loss - eval/avg_z_loss" in said.output
