"""The alert rules on public training logs: `python -m benchmarks.detect_logs FOLDER`, one line for each log.

FOLDER holds the logs as its INDEX.tsv names them; every entry of that index gets one line. Each healthy run is judged
against another one of its folder, with two more as siblings where there are as many; what must be found was made by
lowering a real run's train loss, or is a small model that read its text over and over. What is not judged is imported.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.detect_table import Row, console, show
from service.detect.engine import evaluate
from service.detect.inputs import RunView, Segment, Series
from service.importers.folders import find
from service.importers.job import Options, look
from service.importers.rows import LogError

Log = Mapping[str, Series]
TRAIN, HELD = "train/ce_loss", "heldout/own/ce_loss"
NUMBER = r"([-+.\dEe]+|nan|inf)"
LINES = [
    re.compile(rf"step:(?P<step>\d+)/\d+ .*?(?P<name>train_loss|val_loss|loss):{NUMBER}"),
    re.compile(rf"^step\s+(?P<step>\d+) \| (?P<name>loss): {NUMBER}"),
    re.compile(rf"^(?P<step>\d+) (?P<name>train|val) {NUMBER}$"),
    re.compile(rf"^iter (?P<step>\d+): (?P<name>loss) {NUMBER}"),
    re.compile(rf"^(?P<step>\d+)/\d+ (?P<name>train|val)_loss: {NUMBER}"),
    re.compile(rf"^(?P<step>\d+) (?P<name>){NUMBER}$"),
]
BOTH = re.compile(rf"step (?P<step>\d+)\)?: train loss {NUMBER}, val loss {NUMBER}", re.IGNORECASE)
VALIDATION = re.compile(rf"^validation loss: {NUMBER}")
HEALTHY = "a_healthy_seeds"
QUIET_PAIRS = (
    ("a_healthy_seeds/agndm_shuffled", "a_healthy_seeds/agndm_reference"),
    ("b_repetition/agndm_fineweb_3epochs", "a_healthy_seeds/agndm_reference"),
    ("c_improve_or_worse/agndm_group_weight_g2", "c_improve_or_worse/agndm_reference"),
    ("c_improve_or_worse/agndm_smaller", "c_improve_or_worse/agndm_reference"),
    ("c_improve_or_worse/mn_optimizers_5100steps", "c_improve_or_worse/mn_optimizers_5100steps/adam.txt"),
    ("c_improve_or_worse/mn_shortcuts_3200steps", "c_improve_or_worse/mn_shortcuts_3200steps/1_shorter.txt"),
)
MEMORIZES_ALONE = ("b_repetition/innerfirexy_shakespeare", "b_repetition/k1915361_tiny_lm",
                   "b_repetition/rasbt_book_runs/ch05.txt")  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """Rules that said yes about one log, and whether that is as expected."""

    what: str
    file: str  # as the index names it
    yes: tuple[str, ...]
    good: bool


def read(path: Path) -> dict[str, Series]:
    """Train and held-out loss of one log; of two values at one step the later counts."""
    found: dict[str, dict[int, float]] = {TRAIN: {}, HELD: {}}
    lines = path.read_text(errors="replace").splitlines()
    header = lines[0].split(",") if lines else []
    step, waiting = 0, None
    if "step" in header:
        columns = {name: header.index(name) for name in ("loss", "train_loss", "val_loss") if name in header}
        for number, line in enumerate(lines[1:]):
            cells = line.split(",")
            at = number if "epoch" in header else int(float(cells[header.index("step")]))
            for name, column in columns.items():
                if column < len(cells) and cells[column]:
                    found[HELD if name == "val_loss" else TRAIN][at] = float(cells[column])
    else:
        for line in lines:
            if both := BOTH.search(line):
                step = int(both["step"])
                found[TRAIN][step], found[HELD][step] = float(both[2]), float(both[3])
            elif alone := VALIDATION.search(line):
                waiting = float(alone[1])  # printed before the line of its step
            else:
                for pattern in LINES:
                    if match := pattern.search(line):
                        step = int(match["step"])
                        if waiting is not None:
                            found[HELD][step], waiting = waiting, None
                        found[HELD if match["name"].startswith("val") else TRAIN][step] = float(match[3])
                        break
    return {name: _series(points) for name, points in found.items() if points}


def _series(points: Mapping[int, float]) -> Series:
    steps = np.array(sorted(points), np.int64)
    return Series(steps, steps * 524_288.0, np.array([points[int(s)] for s in steps]))


def judge(run: Log, reference: Log, siblings: Sequence[Log] = ()) -> tuple[str, ...]:
    """Rules that say yes at the end of the log."""
    view = RunView(run, reference, {}, [Segment(0, 0.0, 1)], heldout=HELD, siblings=siblings)
    return tuple(j.rule for j in evaluate(view) if j.state == "yes")


def answers(folder: Path) -> list[Answer]:
    """One answer per expectation that the folder's logs allow."""
    out: list[Answer] = []
    for group in sorted(p for p in (folder / HEALTHY).iterdir() if p.is_dir()):
        logs = [(p, read(p)) for p in sorted(group.iterdir())]
        logs = [(p, log) for p, log in logs if log]
        for i, (path, log) in enumerate(logs):
            others = [other for k, (_, other) in enumerate(logs) if k != i]
            if others:
                said = judge(log, others[0], others[1:4] if len(others) > 2 else ())
                name = str(path.relative_to(folder))
                out.append(Answer(name, name, said, "train_only_drift" not in said))
    for runs, reference in QUIET_PAIRS:
        base = read(_files(folder / reference)[0])
        for path in _files(folder / runs):
            if path != _files(folder / reference)[0]:
                said = judge(read(path), base)
                name = str(path.relative_to(folder))
                out.append(Answer(f"{name} against its reference", name, said, "train_only_drift" not in said))
    healthy = [read(p) for p in _files(folder / HEALTHY / "mn_valueembed_124m")]
    for path in _files(folder / "b_repetition/DERIVED_incident_like"):
        for k in (0, 1, 2):
            others = [log for j, log in enumerate(healthy) if j != k][-3:]
            said = judge(read(path), healthy[k], others)
            name = str(path.relative_to(folder))
            out.append(Answer(f"{name} against healthy run {k}", name, said, "train_only_drift" in said))
    for name in MEMORIZES_ALONE:
        for path in _files(folder / name):
            said = judge(read(path), {})
            file = str(path.relative_to(folder))
            out.append(Answer(f"{file} without reference", file, said, "train_only_drift" in said))
    return out


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file())


def imported(path: Path) -> tuple[bool, str]:
    """Whether the importers read a log, and what they found in it or why they refuse it."""
    try:
        found = [look(group, Options("bench", tokens_per_step=524_288)) for group in find(path).groups]
    except LogError as error:
        return False, f"refused: {str(error).removeprefix(str(path)).lstrip(': ')}"
    parts: list[str] = []
    for preview in found:
        refused = ", ".join(f"{n:,} {why}" for why, n in preview.account.refused.most_common(2))
        notes = "".join(f"; {note}" for note in preview.account.notes[:2])
        parts.append(
            f"{preview.group.format.name}, {preview.survey.points:,} values"
            + (f"; refused: {refused}" if refused else "")
            + notes
        )
    return True, "; ".join(parts)


def by_index(folder: Path) -> list[Row]:
    """Every entry of the folder's INDEX.tsv: what it expects, and what the engine and the importers say."""
    judged: dict[str, list[Answer]] = {}
    for answer in answers(folder):
        judged.setdefault(answer.file, []).append(answer)
    rows: list[Row] = []
    with (folder / "INDEX.tsv").open(newline="") as file:
        for entry in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            rows.append(_entry(folder, entry["file"], entry["expected"], judged.get(entry["file"], [])))
    return rows


def _entry(folder: Path, name: str, expected: str, judged: Sequence[Answer]) -> Row:
    kind = name.split("/")[0][:1]
    if judged:
        said = sorted({", ".join(a.yes) or "quiet" for a in judged})
        return Row(name, expected, f"{len(judged)} judged: {' | '.join(said)}", "", all(a.good for a in judged))
    good, told = imported(folder / name)
    if kind in "abc":
        log = read(folder / name)
        yes = judge(log, {}) if log else ()
        good = good and "train_only_drift" not in yes
        told = f"{', '.join(yes) or 'nothing said'}; {told}"
    if kind == "f":
        good = good or told.startswith("refused: ")
    return Row(name, expected, told, "", good)


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per log; 1 if one is not as expected."""
    parser = argparse.ArgumentParser(prog="benchmarks detect_logs", description="The alert rules on public logs.")
    parser.add_argument("folder", type=Path)
    rows = by_index(parser.parse_args(argv).folder)
    show(console(), "Public logs", rows)
    wrong = sum(not row.met for row in rows)
    print(f"{len(rows) - wrong} of {len(rows)} as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
