"""The alert rules on public training logs: `python -m benchmarks.detect_logs FOLDER`, one line for each log.

FOLDER holds the logs as its INDEX.tsv names them; every entry of that index gets one line. detect_logs.toml says of
each what must and what may be said, and nothing else may: a rule that says yes on a healthy log at any place is a miss,
and so is silence about a faulty one at its end (of anomalies and odd formats: anywhere). Logs beside a reference are
judged at their end and at seven places before it, against every other log of their folder where it is one of reruns
(with three more as siblings where there are as many, and without); logs alone at 40 places.
Every log goes through the importers, and what they find is compared with what is known to be in it.
"""

from __future__ import annotations

import argparse
import csv
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.detect_table import Row, console, show
from service.backtests.timeline import Timeline, told
from service.cli.replaying import read_recording
from service.detect.engine import evaluate
from service.detect.findings import Findings
from service.detect.gaps import LevelCache
from service.detect.inputs import RunView, Segment, Series
from service.detect.replay import prefix
from service.importers.folders import find
from service.importers.job import Options, Preview, look
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
HEALTHY = "a_healthy_seeds"
PLACES = 8  # of a log beside a reference
BOTH = re.compile(rf"step (?P<step>\d+)\)?: train loss {NUMBER}, val loss {NUMBER}", re.IGNORECASE)
VALIDATION = re.compile(rf"^validation loss: {NUMBER}")


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
    return Series(steps, (steps * 524_288.0).astype(np.float64), np.array([points[int(s)] for s in steps], np.float64))


@dataclass(frozen=True)
class Expected:
    """One table of detect_logs.toml; `must` and `may` are rules, `found` what the importers must find."""

    files: tuple[str, ...]
    why: str
    reference: str
    scale: str
    same_order: bool
    must: tuple[str, ...]
    may: tuple[str, ...]
    order: tuple[str, ...]
    found: Mapping[str, Any]

    def names(self, file: str) -> bool:
        """Whether this table is about a file."""
        return any(fnmatchcase(file, pattern) for pattern in self.files)

    def misses(self, ever: set[str], last: set[str]) -> list[str]:
        """What was `ever` said and must not be, and what was not at the end (`last`) and must."""
        asked = [set(rules.split("|")) for rules in self.must]
        allowed = set(self.may).union(*asked)
        silent = ["not said: " + " or ".join(sorted(rules)) for rules in asked if not rules & last]
        wrong = [f"said{'' if rule in last else ' before the end'}: {rule}" for rule in sorted(ever - allowed)]
        return wrong + silent


def expectations() -> list[Expected]:
    """What detect_logs.toml says, in its order: of two tables that name a file the first counts."""
    text = Path(__file__).with_suffix(".toml").read_text("utf-8")
    known = {"files", "why", "reference", "scale", "same_order", "must", "may", "order"}
    return [
        Expected(
            tuple(t["files"]), t["why"], t.get("reference", ""), t.get("scale", ""), t.get("same_order", False),
            tuple(t.get("must", ())), tuple(t.get("may", ())), tuple(t.get("order", ())),
            {key: value for key, value in t.items() if key not in known},
        )
        for t in tomllib.loads(text)["logs"]
    ]  # fmt: skip


def beside(folder: Path, file: str, expected: Expected) -> Iterator[RunView]:
    """The log beside each reference it is to be compared with, with and without siblings."""
    path = folder / file
    here = folder / expected.reference if expected.reference != "folder" else path.parent
    others = [log for other in _files(here) if other != path and (log := read(other))]
    for i, reference in enumerate(others):
        rest = [other for k, other in enumerate(others) if k != i][:3]
        for siblings in ([], rest) if len(rest) > 1 else ([],):
            yield RunView(
                read(path), reference, {}, [Segment(0, 0.0, 1)], heldout=HELD, siblings=siblings,
                reference_name=expected.scale, same_order_declared=expected.same_order,
            )  # fmt: skip


def along(view: RunView) -> tuple[set[str], set[str]]:
    """Rules that say yes at one of eight places of a log beside its reference, and at the last, its end."""
    steps, cache = np.unique(np.concatenate([series.steps for series in view.metrics.values()])), LevelCache()
    ever: set[str] = set()
    last: set[str] = set()
    for part in range(1, PLACES + 1):
        now = prefix(view, int(steps[len(steps) * part // PLACES - 1]))
        last = {judgement.rule for judgement in evaluate(now, cache) if judgement.state == "yes"}
        ever |= last
    return ever, last


def alone(path: Path) -> tuple[set[str], set[str], int]:
    """Rules that say yes of a log without a reference at one of 40 places, those that do at its end, and how often
    the training was started; nothing where no name in the log is known, or where it holds several runs."""
    try:
        recording = read_recording(path, {})
    except LogError:
        return set(), set(), 0
    views: list[RunView] = []
    spans: list[tuple[int, int]] = []
    live: dict[str, dict[int, float]] = {}
    starts: list[Segment] = []
    for i, attempt in enumerate(recording.attempts):
        live = {m: {s: v for s, v in points.items() if s <= attempt.start_step} for m, points in live.items()}
        for step, values in attempt.points.items():
            for metric, value in values.items():
                live.setdefault(metric, {})[step] = value
        starts = [*(s for s in starts if s.start_step < attempt.start_step), Segment(attempt.start_step, float(i), 1)]
        metrics = {metric: _series(points) for metric, points in live.items() if points}
        held = next((metric for metric in metrics if metric.startswith("heldout/")), "")
        views.append(RunView(metrics, {}, {}, list(starts), heldout=held))
        spans.append((min(attempt.points), max(attempt.points)))
    every = max((spans[-1][1] - spans[-1][0]) // 40, 1)
    said = told(Timeline(path.name, views, spans), every, None)
    yes = [one for one in said if one.judgement.state == "yes"]
    return {one.judgement.rule for one in yes}, {one.judgement.rule for one in yes if one.last}, len(views)


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file())


def imported(path: Path, expected: Mapping[str, Any]) -> tuple[str, list[str]]:
    """What the importers found in a log, or why they refuse it, and in what that is not as expected."""
    refusal = expected.get("refused")
    try:
        previews = [look(group, Options("bench", tokens_per_step=524_288)) for group in find(path).groups]
    except LogError as error:
        said = str(error).removeprefix(str(path)).lstrip(": ")
        return f"refused: {said}", [] if refusal and refusal in said else ["refused"]
    misses = [f"not refused: {refusal}"] if refusal else []
    counted = _counted(previews, path)
    parts = [f"{', '.join(p.group.format.name for p in previews)}: {counted['values']:,} values"]
    for preview in previews:
        parts += [f"not read: {n:,} {why}" for why, n in preview.account.refused.most_common(2)]
        parts += preview.account.notes[:2]
    for key in ("values", "runs", "non_finite", "accuracies", "checkpoints"):
        if (wanted := expected.get(key)) is not None:
            wanted = counted["rows"] if wanted == "rows" else wanted
            least = key == "accuracies"
            if (counted[key] < wanted) if least else (counted[key] != wanted):
                misses.append(f"{key}: {counted[key]}, not {wanted}")
            parts.append(f"{key} {counted[key]}")
    misses += [f"not noted: {word}" for word in expected.get("notes", ()) if not any(word in part for part in parts)]
    return "; ".join(parts), misses


def _counted(previews: Sequence[Preview], path: Path) -> dict[str, int]:
    runs = [run for preview in previews for run in preview.plan.runs.values()]
    metrics = [
        (name, found, run) for run in runs for name, all_found in run.found.metrics.items() for found in all_found
    ]
    accuracies = [
        found for name, found, run in metrics
        if name in run.known and re.fullmatch(r"downstream/.+/accuracy", getattr(run.known[name], "metric", ""))
    ]  # fmt: skip
    return {
        "values": sum(found.count for _, found, _ in metrics),
        "runs": len(runs),
        "non_finite": max((found.non_finite for name, found, run in metrics if name in run.known), default=0),
        "accuracies": len(accuracies),
        "checkpoints": min((found.count for found in accuracies), default=0),
        "rows": len(path.read_text(errors="replace").splitlines()) - 1,
    }


def by_index(folder: Path) -> list[Row]:
    """Every entry of the folder's INDEX.tsv: what must be said and found, and what was."""
    tables = expectations()
    with (folder / "INDEX.tsv").open(newline="") as file:
        names = [entry["file"] for entry in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    rows = [_entry(folder, name, next((t for t in tables if t.names(name)), None)) for name in names]
    empty = [pattern for t in tables for pattern in t.files if not any(fnmatchcase(n, pattern) for n in names)]
    return rows + [Row(pattern, "a log of that name", "none", "", False) for pattern in empty]


def _entry(folder: Path, name: str, expected: Expected | None) -> Row:
    if expected is None:
        return Row(name, "a table in detect_logs.toml", "none", "", False)
    told, misses = imported(folder / name, expected.found)
    said: set[str] = set()
    if expected.reference:
        views = list(beside(folder, name, expected))
        answers = [along(view) for view in views]
        orders = {Findings(view).order.answer for view in views}
        for ever, last in answers:
            misses += [miss for miss in expected.misses(ever, last) if miss not in misses]
        misses += [f"order: {answer}" for answer in sorted(orders - set(expected.order))]
        said = {rule for ever, _ in answers for rule in ever}
        told = f"order {'/'.join(sorted(orders))} in {len(views)} judged; {told}"
    else:
        said, last, starts = alone(folder / name)
        if name[0] in "abc" and (log := read(folder / name)):
            view = RunView(log, {}, {}, [Segment(0, 0.0, 1)], heldout=HELD)
            ever, end = along(view)
            said, last = said | ever, last | end
        misses += expected.misses(said, said if name[0] in "df" else last)
        wanted = expected.found.get("starts")
        if wanted is not None:
            told += f"; starts {starts}"
            misses += [f"starts: {starts}, not {wanted}"] if starts != wanted else []
    bar = ", ".join(expected.must) or "quiet"
    bar += f" ({', '.join(expected.may)} allowed)" if expected.may else ""
    text = f"{', '.join(sorted(said)) or 'quiet'}; {told}"
    return Row(name, f"{bar}: {expected.why}", text, " | ".join(misses), not misses)


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
