"""Rule `downstream`: are the task accuracies those of the reference? The mean over the tasks first, then each task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from statistics import NormalDist

import numpy as np

from service.detect.beyond import beyond_reference
from service.detect.deviations import allowance, mean_budgets
from service.detect.findings import Findings
from service.detect.inputs import Floats, Ints, RunView, Series
from service.detect.item_pairs import Pairing, pairing
from service.detect.judgement import Evidence, Judgement
from service.detect.parity import beside

RULE = "downstream"
MACRO = "downstream/mean/accuracy"
ASSUMED = 0.005  # accuracy, of the mean over the tasks
LEVEL = 0.01  # chance of any wrong "outside" in a run, over all its checkpoints and tasks
IN_A_ROW = 2  # checkpoints that must say "outside"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Accuracies of one checkpoint less the reference's, (k,) by task, with standard errors; their mean and its own."""

    step: int
    tokens: float
    difference: Floats
    se: Floats
    mean: float
    mean_se: float
    pairs: tuple[Pairing | None, ...] = ()


def judge(findings: Findings) -> Judgement:
    """`yes` when two checkpoints in a row lie outside: the mean, or one task, beyond its tolerance by more than chance
    gives over all tasks and checkpoints; `no` when the 95 % interval of the mean lies inside; else `cannot tell`, as
    where a number is no share from 0 to 1, and instead of `no` behind the reference's last checkpoint."""
    tasks = _tasks(findings)
    shared = [t for t in tasks if len(findings.view.reference.get(_metric(t), ()))]
    if not tasks:
        return _cannot(findings, "Cannot tell: the run has no accuracies of the reference's tasks.")
    if not shared:
        return _cannot(findings, "Cannot tell: the reference has no accuracies of these tasks; none are public, "
                                 "or none were imported.")  # fmt: skip
    odd = next((t for t in shared if not _shares(findings.view, t)), None)
    if odd is not None:
        return _cannot(findings, f"Cannot tell: accuracies are shares from 0 to 1; those of {odd} are not (percent?).")
    points, tolerance, source = checkpoints(findings, shared)
    if not points:
        return _cannot(findings, "Cannot tell yet: no checkpoint at which all tasks were evaluated.")
    single = tolerance * float(np.sqrt(len(shared)))
    outside = [_outside(p, i, len(shared), tolerance, single) for i, p in enumerate(points)]
    newest = points[-1]
    low, high = newest.mean - 1.96 * newest.mean_se, newest.mean + 1.96 * newest.mean_se
    told = f"The mean of {len(shared)} accuracies is {newest.mean:+.4f} from the reference's at step {newest.step:,}"
    answer = partial(
        Judgement, RULE, at_step=findings.at_step, value=newest.mean, interval=(low, high), unit="accuracy",
        limit=tolerance, limit_source=source, n=len(points), evidence=_evidence(shared, points, single),
    )  # fmt: skip
    ended = _ended(findings, shared)
    repeated = set(outside[-1]).intersection(*outside[-IN_A_ROW:]) if len(points) >= IN_A_ROW else set[int]()
    if repeated:
        first = len(points) - 1
        while first > 0 and outside[first - 1]:
            first -= 1
        names = ", ".join("the mean" if i < 0 else shared[i] for i in sorted(repeated))
        before = points[max(first - 1, 0)]
        return answer(
            state="yes", summary=f"{told}; outside the tolerance: {names}{f' ({ended})' if ended else ''}.",
            since_step=(before.step, points[first].step), since_tokens=(before.tokens, points[first].tokens),
            next_checks=["Compare prompts, few-shot examples and scoring with the reference's evaluation.",
                         "Where one task moved alone, look for its text in the training data."],
        )  # fmt: skip
    if ended is not None:
        return answer(state="cannot tell", summary=f"Cannot tell of what came since: {ended}. {told}.")
    if -tolerance <= low and high <= tolerance and not outside[-1]:
        return answer(state="no", summary=f"{told}, inside ±{tolerance:.3f}.")
    summary = f"{told} ({low:+.4f} … {high:+.4f}): cannot tell whether inside ±{tolerance:.3f}."
    return answer(state="cannot tell", summary=summary)


def checkpoints(findings: Findings, tasks: list[str]) -> tuple[list[Checkpoint], float, str]:
    """Every checkpoint with all tasks inside the reference's range; the tolerance of the mean, and its source."""
    view = findings.view
    declared = view.tolerances.get(MACRO)
    runs = [view.metrics[_metric(t)] for t in tasks]
    steps = runs[0].steps[np.isfinite(runs[0].values)]
    for run in runs[1:]:
        steps = np.intersect1d(steps, run.steps[np.isfinite(run.values)])
    found: list[Checkpoint] = []
    columns = [_beside(run, view.reference[_metric(t)], steps) for run, t in zip(runs, tasks, strict=True)]
    deviations = mean_budgets(view.deviations, [_metric(t) for t in tasks])
    known = findings.cache.unchanged(
        (RULE, bool(deviations)), (tuple(tasks), tuple(view.deviations), declared, view.reference, view.items,
                                   view.reference_items, view.tasks),
        lambda: dict[int, tuple[bytes, Checkpoint]](),
    )  # fmt: skip
    placed = np.concatenate([np.stack(column) for column in columns])  # the runs' and the references', by turns
    for i, step in enumerate(steps.tolist()):
        own, base = placed[::2, i], placed[1::2, i]
        if not np.isfinite(base).all():
            continue
        tokens = float(runs[0].tokens[np.searchsorted(runs[0].steps, step)])
        rests_on = np.append(own, tokens).tobytes()
        if step in known and known[step][0] == rests_on:
            found.append(known[step][1])
            continue
        items = np.array([max(view.tasks.get(t, 0), 1) for t in tasks], np.float64)
        pooled = np.clip((own + base) / 2.0, 1.0 / (items + 2.0), 1.0 - 1.0 / (items + 2.0))
        se = np.sqrt(2.0 * pooled * (1.0 - pooled) / items)
        mean_se = float(np.sqrt((se**2).sum()) / len(tasks))
        if declared is not None and declared.noise_sd:
            # Measured on reruns over the same items: the items' own share of the error is not in the difference.
            mean_se = declared.noise_sd
            se = np.minimum(se, declared.noise_sd * np.sqrt(len(tasks)) * 1.5)
        at: tuple[Ints, Ints, Floats] = (np.array([step]), np.array([step]), np.array([tokens]))
        difference = own - base
        pairs = tuple(_paired(view, task, int(step), tokens) for task in tasks)
        for j, pair in enumerate(pairs):
            if pair is not None:  # on the same items: what both models share is no error
                difference[j], se[j] = pair.difference, pair.se
        if all(pair is not None for pair in pairs):
            mean_se = float(np.sqrt((se**2).sum()) / len(tasks))
        raw_mean = float(difference.mean())
        for j, task in enumerate(tasks):
            allowed = allowance(view.deviations, _metric(task), *at)
            if allowed is not None:
                difference[j : j + 1] = allowed.unexplained(difference[j : j + 1])
        mean = np.array([raw_mean])
        allowed = allowance(deviations, MACRO, *at)
        mean = mean if allowed is None else allowed.unexplained(mean)
        found.append(Checkpoint(int(step), tokens, difference, se, float(mean[0]), mean_se, pairs))
        known[step] = (rests_on, found[-1])
    if declared is not None and declared.value > 0.0:
        return found, declared.value, declared.source
    return (
        found,
        ASSUMED,
        "assumed: ±0.005 for the mean of the tasks; errors are binomial, the most they can be",
    )


def _beside(run: Series, reference: Series, steps: Ints) -> tuple[Floats, Floats]:
    at = np.searchsorted(run.steps, steps)
    good = np.isfinite(reference.values)
    tokens, values = reference.tokens[good], reference.values[good]
    if len(tokens) == 0:
        return run.values[at], np.full(len(at), np.nan)
    return run.values[at], np.interp(run.tokens[at], tokens, values, left=np.nan, right=np.nan)


def _paired(view: RunView, task: str, step: int, tokens: float) -> Pairing | None:
    """Items of both at this checkpoint, where the reference was evaluated at equal tokens."""
    reference = view.reference[_metric(task)]
    at, met = beside(np.array([tokens]), reference.tokens, tokens / max(step, 1))
    return pairing(view, task, step, int(reference.steps[at[0]])) if met[0] else None


def _ended(findings: Findings, tasks: list[str]) -> str | None:
    """Where accuracies of the reference end, for a run with checkpoints behind that."""
    ends = (beyond_reference(findings.view, _metric(task), findings.cache) for task in tasks)
    return next((end for end in ends if end is not None), None)


def _outside(point: Checkpoint, number: int, tasks: int, tolerance: float, single: float) -> list[int]:
    """Tasks (-1: the mean) that lie outside at the checkpoint with this number, counted from 0.

    The level is shared out over checkpoints as 6 / (pi² c²), so that it holds for any number of them, and over the
    mean and the tasks alike (Bonferroni)."""
    z = critical_value(number, tasks)
    mean = [-1] if abs(point.mean) - z * point.mean_se > tolerance else []
    apart: Ints = np.flatnonzero(np.abs(point.difference) - z * point.se > single)
    return mean + [int(i) for i in apart]


@lru_cache(maxsize=4096)
def critical_value(number: int, tasks: int) -> float:
    """How many standard errors are outside at the checkpoint with this number, counted from 0, of so many tasks."""
    share = LEVEL * 6.0 / (np.pi**2 * (number + 1.0) ** 2) / (tasks + 1)
    return NormalDist().inv_cdf(1.0 - share / 2.0)


def _evidence(tasks: list[str], points: list[Checkpoint], single: float) -> list[Evidence]:
    newest = points[-1]
    made = [
        Evidence(
            f"accuracy of {task}", f"{value:+.4f} (±{1.96 * se:.4f})", "accuracy",
            f"run minus reference, 95 %; ±{single:.3f} is allowed for one task{_told(pair)}",
        )
        for task, value, se, pair in zip(
            tasks, newest.difference.tolist(), newest.se.tolist(), newest.pairs, strict=True
        )
    ]  # fmt: skip
    paired = [p for p in newest.pairs if p is not None]
    if paired:
        why = "tasks whose errors are of the same items; the others' are binomial, or measured on reruns"
        made.append(Evidence("tasks paired item by item", len(paired), "tasks", why))
    return made


def _told(pair: Pairing | None) -> str:
    if pair is None:
        return ""
    return f"; of {pair.n:,} items {pair.won:,} right here alone, {pair.lost:,} there alone, McNemar p {pair.p:.2g}"


def _shares(view: RunView, task: str) -> bool:
    """Whether every accuracy of a task that is a number lies from 0 to 1, the run's and the reference's."""
    of_both = (metrics[_metric(task)].values for metrics in (view.metrics, view.reference))
    return not any(bool(((values < 0.0) | (values > 1.0)).any()) for values in of_both)


def _tasks(findings: Findings) -> list[str]:
    view = findings.view
    return [t for t in view.tasks if len(view.metrics.get(_metric(t), ()))]


def _metric(task: str) -> str:
    return f"downstream/{task}/accuracy"


def _cannot(findings: Findings, summary: str) -> Judgement:
    return Judgement(RULE, "cannot tell", findings.at_step, summary, unit="accuracy")
