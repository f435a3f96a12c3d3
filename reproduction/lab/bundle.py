"""Writes what `record` recorded as a reference bundle: reference.toml, series/ and siblings/."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tomlkit
from numpy.typing import NDArray

from reproduction.lab.evals import HELDOUT, Evals, accuracy_metric
from reproduction.loop import Plan
from reproduction.olmo3.model import Config

Floats = NDArray[np.float64]
Series = list[tuple[int, float]]


class Wander(Protocol):
    """How far healthy runs wander: the tolerance of means over `window_steps` steps, and what it rests on, in words."""

    @property
    def value(self) -> float: ...
    @property
    def source(self) -> str: ...
    @property
    def runs(self) -> int: ...
    @property
    def noise_sd(self) -> float | None: ...
    @property
    def window_steps(self) -> int: ...


class Measure(Protocol):
    """Gives the tolerance of a metric from `gaps`, per sibling its gaps to the reference in means over `window_steps`.

    `noise_sd` is the standard deviation of one value. It is the service's to say: `service.compare.noise`.
    """

    def __call__(
        self, gaps: Sequence[Floats], window_steps: int, noise_sd: float | None, *, unit: str = ...
    ) -> Wander: ...


TRAIN = "train/ce_loss"
DOWNSTREAM_MEAN = "downstream/mean/accuracy"
WINDOW_STEPS = 50  # windows of 25 steps are too noisy at this size for a tolerance below 0.1 nats
SEGMENT = "recorded"


def write_bundle(
    out: Path,
    plan: Plan,
    model: Config,
    heldout: Evals,
    reference: Mapping[str, Series],
    siblings: Mapping[str, Mapping[str, Series]],
    measure: Measure,
    base: Path,
) -> None:
    """Write the bundle folder `out`; what another recording left there is overwritten."""
    texts = {Path("series/stage1.csv"): _csv(reference)}
    texts |= {Path("siblings") / f"{name}.csv": _csv(series) for name, series in siblings.items()}
    digest = sha256("".join(texts.values()).encode()).hexdigest()
    document = _describe(plan, model, heldout, base) | {"version": digest[:12]}
    tasks = [t.key for t in heldout.tasks]
    document["tolerance"] = {
        metric: _tolerance(metric, reference, list(siblings.values()), tasks, measure)
        for metric in (TRAIN, HELDOUT, DOWNSTREAM_MEAN)
    }
    texts[Path("reference.toml")] = tomlkit.dumps({"slug": "lab", "version": document.pop("version")} | document)
    for path, text in texts.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(text, encoding="utf-8", newline="")


def _csv(series: Mapping[str, Series]) -> str:
    """Columns step, metric, value, segment; values in full."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", "metric", "value", "segment"])
    writer.writerows([step, name, repr(value), SEGMENT] for name, points in series.items() for step, value in points)
    return text.getvalue()


def _values(metric: str, series: Mapping[str, Series], tasks: Sequence[str]) -> Series:
    if metric != DOWNSTREAM_MEAN:
        return series[metric]
    columns = [series[accuracy_metric(task)] for task in tasks]
    return [(row[0][0], float(np.mean([value for _, value in row]))) for row in zip(*columns, strict=True)]


def _tolerance(
    metric: str,
    reference: Mapping[str, Series],
    siblings: Sequence[Mapping[str, Series]],
    tasks: Sequence[str],
    measure: Measure,
) -> dict[str, Any]:
    """The tolerance table of one metric. Step 0 is left out: all runs start from the same weights."""
    recorded = [p for p in _values(metric, reference, tasks) if p[0] > 0]
    others = np.array([[value for step, value in _values(metric, s, tasks) if step > 0] for s in siblings])
    gaps = others - np.array([value for _, value in recorded])
    window = (np.array([step for step, _ in recorded]) - 1) // WINDOW_STEPS
    means = np.stack([gaps[:, window == w].mean(axis=1) for w in np.unique(window)], axis=1)
    noise_sd = float(gaps.std() / np.sqrt(2))  # a gap has the noise of two runs
    unit = "accuracy" if metric == DOWNSTREAM_MEAN else "nats"
    wander = measure(list(means), WINDOW_STEPS, noise_sd, unit=unit)
    return {
        "value": round(wander.value, 5),
        "unit": unit,
        "source": wander.source,
        "runs": wander.runs,
        "noise_sd": round(noise_sd, 5),
        "window_steps": wander.window_steps,
    }


def _describe(plan: Plan, model: Config, heldout: Evals, base: Path) -> dict[str, Any]:
    length = heldout.windows.shape[1]
    tokens_per_step = plan.batch * length
    return {
        "title": "Lab: a small decoder in OLMo 3's shape, re-trained on public-domain text",
        "conflicts": [],
        "source": {
            "url": "reproduction/lab/record.py",
            "licence": "CC0-1.0",
            "citation": "Recorded by `pacenote lab record` from the texts that reproduction/lab/data/SOURCE.md names",
        },
        "loss": {
            "metric": TRAIN,
            "unit": "nats per token",
            "definition": "mean cross-entropy of the next token over a batch's rows, no z-loss, before the update",
            "proven": True,
        },
        "recipe": {
            "model": {"parameters": model.parameters, **asdict(model)},
            "data": {
                "rows": plan.steps * plan.batch,
                "row_length": length,
                "rows_per_step": plan.batch,
                "passes": 1,
                "shards": plan.hosts,
                "sharding": "each row on one host once a pass (Grain IndexSampler with ShardOptions, shuffled)",
                "order_seed": plan.seed,
            },
            "optimizer": {
                "name": "AdamW",
                "b1": 0.9,
                "b2": 0.95,
                "eps": 1e-8,
                "weight_decay": 0.1,
                "weight_decay_exempt": ["embeddings"],
                "clip_norm": 1.0,
            },
            "schedule": asdict(plan.schedule),
            "init": {"checkpoint": base.name, "sha256": sha256(base.read_bytes()).hexdigest()},
            "precision": {"parameters": "float32", "compute": "float32"},
        },
        "stages": [
            {
                "name": "stage1",
                "steps": plan.steps,
                "tokens_per_step": tokens_per_step,
                "token_offset": 0,
                "series": "series/stage1.csv",
            }
        ],
        "tasks": [{"key": t.key, "items": len(t.answers), "metric": accuracy_metric(t.key)} for t in heldout.tasks],
        "heldout": [
            {
                "name": "lab",
                "metric": HELDOUT,
                "id": heldout.heldout_id,
                "convention": f"mean cross-entropy in nats per token over {len(heldout.windows)} windows of {length}"
                " tokens from held-out documents, weights after the step's update",
                "primary": True,
            }
        ],
    }
