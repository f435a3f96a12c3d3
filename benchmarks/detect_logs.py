"""The alert rules on public training logs: `python -m benchmarks.detect_logs FOLDER`, one line per expectation.

FOLDER holds the logs as their index names them. Each healthy run is judged against another one of its folder, with two
more as siblings where there are as many; what must be found was made by lowering a real run's train loss, or is a small
model that read its text over and over.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from service.detect.engine import evaluate
from service.detect.inputs import RunView, Segment, Series

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
                out.append(Answer(f"{HEALTHY}/{group.name}/{path.name}", said, "train_only_drift" not in said))
    for runs, reference in QUIET_PAIRS:
        base = read(_files(folder / reference)[0])
        for path in _files(folder / runs):
            if path != _files(folder / reference)[0]:
                said = judge(read(path), base)
                out.append(Answer(f"{path.relative_to(folder)} against its reference", said,
                                  "train_only_drift" not in said))  # fmt: skip
    healthy = [read(p) for p in _files(folder / HEALTHY / "mn_valueembed_124m")]
    for path in _files(folder / "b_repetition/DERIVED_incident_like"):
        for k in (0, 1, 2):
            others = [log for j, log in enumerate(healthy) if j != k][-3:]
            said = judge(read(path), healthy[k], others)
            out.append(Answer(f"{path.name} against healthy run {k}", said, "train_only_drift" in said))
    for name in MEMORIZES_ALONE:
        for path in _files(folder / name):
            said = judge(read(path), {})
            out.append(Answer(f"{path.relative_to(folder)} without reference", said, "train_only_drift" in said))
    return out


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file())


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per log; 1 if one is not as expected."""
    parser = argparse.ArgumentParser(prog="benchmarks detect_logs", description="The alert rules on public logs.")
    parser.add_argument("folder", type=Path)
    said = answers(parser.parse_args(argv).folder)
    for answer in said:
        print(
            f"{'as expected' if answer.good else 'NOT EXPECTED':<13} {answer.what}: {', '.join(answer.yes) or 'quiet'}"
        )
    wrong = sum(not a.good for a in said)
    print(f"{len(said) - wrong} of {len(said)} as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
