"""Makes the shipped bank of healthy pairs anew: `python -m benchmarks bank FOLDER [--write]`.

FOLDER holds the logs as service/compare/bank_groups.toml names their folders. Every run of a group is paired with the
next one, the last with the first where there are three or more. Without `--write` the table is compared with the
shipped one; 1 if they differ.
"""

from __future__ import annotations

import argparse
import csv
import io
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.detect_logs import HEALTHY, HELD, TRAIN, Log, read
from service.compare import bank
from service.compare.bank import Group, Stat
from service.detect.inputs import Series

TABLE = Path(bank.__file__).with_name("bank_pairs.csv")
GROUPS = Path(bank.__file__).with_name("bank_groups.toml")
LAB = Path(__file__).parents[1] / "service/references/bundles/lab"
LAB_HELD = "heldout/lab/ce_loss"
COLUMNS = ("group", "pair", "metric", "phase", "window", "n", "offset", "sd", "wander", "largest")


def runs_of(name: str, entry: dict[str, str], folder: Path) -> list[tuple[str, Log]]:
    """The runs of one group, each with a short name."""
    if name == "lab_1m":
        files = [LAB / "series/stage1.csv", *sorted((LAB / "siblings").glob("*.csv"))]
        return [(path.stem, _lab(path)) for path in files]
    paths = _files(folder / HEALTHY / entry["folder"])
    if "beside" in entry:
        paths += _files(folder / HEALTHY / entry["beside"])
    if paths[0].name == "val_loss_wide.csv":
        return _wide(paths[0])
    return [(path.stem[:12] if len(paths) > 2 else path.stem, read(path)) for path in paths]


def pairs(runs: Sequence[tuple[str, Log]], name: str) -> list[tuple[str, Log, Log]]:
    """Each run with the next; the lab's reruns are pairs with its reference."""
    if name == "lab_1m":
        return [(f"{label} / {runs[0][0]}", log, runs[0][1]) for label, log in runs[1:]]
    following = [*runs[1:], runs[0]] if len(runs) > 2 else runs[1:]
    return [(f"{b} / {a}", second, first) for (a, first), (b, second) in zip(runs, following, strict=False)]


def statistics(group: Group, pair: str, run: Log, other: Log) -> list[Stat]:
    """Statistics of one pair, at the steps that both logged."""
    made: list[Stat] = []
    for metric, kind in ((TRAIN, "train"), (HELD, "heldout")):
        if metric in run and metric in other:
            steps, mine, theirs = np.intersect1d(run[metric].steps, other[metric].steps, return_indices=True)
            gap = run[metric].values[mine] - other[metric].values[theirs]
            if kind == "heldout":  # an evaluation of untrained weights says nothing
                steps, gap = steps[steps > 0], gap[steps > 0]
            if len(steps):
                made += bank.statistics(group, pair, kind, steps, gap, int(steps[-1]))
    return made


def table(folder: Path) -> str:
    """The bank as text, one line for each statistic."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    known = bank.groups()
    for name, entry in tomllib.loads(GROUPS.read_text("utf-8")).items():
        for pair, run, other in pairs(runs_of(name, entry, folder), name):
            for s in statistics(known[name], pair, run, other):
                wander = "" if s.wander is None else f"{s.wander:.2f}"
                writer.writerow((name, pair, s.metric, s.phase, s.window, s.n, f"{s.offset:.5f}", f"{s.sd:.5f}", wander,
                                 f"{s.largest:.5f}"))  # fmt: skip
    return out.getvalue()


def summary(made: str) -> str:
    """Per group, metric and window: pairs, and the root mean square of the healthy gaps by phase, in nats."""
    rows = pd.read_csv(io.StringIO(made))
    rows["squares"] = rows["offset"] ** 2 + rows["sd"] ** 2
    keys = ["group", "metric", "window"]
    found = rows.groupby([*keys, "phase"])["squares"].mean().pow(0.5).unstack()[["early", "middle", "late"]]
    found.insert(0, "pairs", rows.groupby(keys)["pair"].nunique())
    return found.round(4).to_string(na_rep="")


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_file())


def _wide(path: Path) -> list[tuple[str, Log]]:
    rows = pd.read_csv(path)
    steps = rows["step"].to_numpy("int64")
    return [(str(c), {HELD: Series(steps, steps * 524_288.0, rows[c].to_numpy("float64"))}) for c in rows.columns[1:]]


def _lab(path: Path) -> Log:
    rows = pd.read_csv(path)
    found: dict[str, Series] = {}
    for metric, name in ((TRAIN, TRAIN), (LAB_HELD, HELD)):
        part = rows[rows["metric"] == metric].drop_duplicates("step", keep="last").sort_values("step")
        steps = part["step"].to_numpy("int64")
        found[name] = Series(steps, steps * 1024.0, part["value"].to_numpy("float64"))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Write the bank, or tell whether the shipped one is what these logs give."""
    parser = argparse.ArgumentParser(prog="benchmarks bank", description="The bank of healthy pairs, made anew.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="write service/compare/bank_pairs.csv")
    options = parser.parse_args(argv)
    made = table(options.folder)
    pair_count = len({tuple(line.split(",")[:2]) for line in made.splitlines()[1:]})
    print(summary(made))
    if options.write:
        TABLE.write_text(made, "utf-8")
        print(f"{TABLE.name}: {pair_count} pairs, {made.count(chr(10)) - 1} statistics")
        return 0
    same = TABLE.exists() and TABLE.read_text("utf-8") == made
    print(f"{pair_count} pairs; the shipped bank is {'the same' if same else 'ANOTHER'}")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
