"""Prints a verdict and what a person needs of the judgements behind it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rich.console import Console

NOT_TOLD = re.compile(r"^cannot tell(?: yet)?[:.,]?\s*", re.IGNORECASE)
# Rules that lack one of these say so in words of their own; one line tells what would answer them all.
LACKING = {
    "row fingerprints": re.compile(r"fingerprint|windows"),
    "held-out loss": re.compile(r"held-out"),
    "accuracies": re.compile(r"accurac"),
}


def print_verdict(verdict: dict[str, Any], judgements: Sequence[dict[str, Any]], what_now: str | None = None) -> None:
    """The verdict and what to do now; each alarm with its evidence, causes and next checks; what is fine, in one line;
    what could not be told, one line for each thing that is lacking."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"Verdict: {verdict['state']}. {verdict['body'].get('because', '')}".strip())
    if what_now is not None:
        console.print(f"What now: {what_now}")
    for judgement in judgements:
        if judgement["state"] == "yes":
            _print_alarm(console, judgement)
    fine = [judgement["rule"] for judgement in judgements if judgement["state"] == "no"]
    if fine:
        console.print(f"Judged fine ({len(fine)}): {', '.join(fine)}")
    untold = [judgement for judgement in judgements if judgement["state"] not in ("yes", "no")]
    if untold:
        console.print(f"Cannot tell ({len(untold)}):")
        for rules, reason in _grouped(untold):
            console.print(f"  {', '.join(rules)}: {reason}")


def _print_alarm(console: Console, judgement: dict[str, Any]) -> None:
    console.print(f"{judgement['rule']}: yes. {judgement['summary']}")
    for evidence in judgement["evidence"]:
        value = evidence["value"]
        if value is not None and not (isinstance(value, str) and NOT_TOLD.match(value)):
            console.print(f"  {evidence['name']}: {_measured(value, evidence['unit'])}")
    for cause in judgement["causes"]:
        console.print(f"  {cause['weight']}: {cause['name']}. {cause['because']}")
    for check in judgement["next_checks"]:
        console.print(f"  next: {check}")


def _grouped(judgements: Sequence[dict[str, Any]]) -> list[tuple[list[str], str]]:
    """The rules that lack the same, each group with the shortest of their reasons."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for judgement in judgements:
        reason = NOT_TOLD.sub("", judgement["summary"]).strip() or judgement["summary"]
        lacking = next((name for name, words in LACKING.items() if words.search(judgement["summary"])), reason)
        groups.setdefault(lacking, []).append((judgement["rule"], reason))
    return [([rule for rule, _ in group], min((reason for _, reason in group), key=len)) for group in groups.values()]


def _measured(value: Any, unit: str) -> str:
    """A number with its unit; text speaks for itself."""
    if isinstance(value, str):
        return value
    return f"{value:,} {unit}" if isinstance(value, int) else f"{value:.5g} {unit}"
