"""Prints a verdict and the judgements behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console


def print_verdict(verdict: dict[str, Any], judgements: Sequence[dict[str, Any]], what_now: str | None = None) -> None:
    """The verdict, what to do now, then one paragraph per judgement with its evidence, causes and next checks."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"Verdict: {verdict['state']}. {verdict['body'].get('because', '')}".strip())
    if what_now is not None:
        console.print(f"What now: {what_now}")
    for judgement in judgements:
        console.print(f"{judgement['rule']}: {judgement['state']}. {judgement['summary']}")
        if judgement["state"] != "yes":
            continue
        for evidence in judgement["evidence"]:
            console.print(f"  {evidence['name']}: {_measured(evidence['value'], evidence['unit'])}")
        for cause in judgement["causes"]:
            console.print(f"  {cause['weight']}: {cause['name']}. {cause['because']}")
        for check in judgement["next_checks"]:
            console.print(f"  next: {check}")


def _measured(value: Any, unit: str) -> str:
    """A number with its unit; what is no number speaks for itself."""
    if value is None:
        return "not known"
    if isinstance(value, str):
        return value
    return f"{value:,} {unit}" if isinstance(value, int) else f"{value:.5g} {unit}"
