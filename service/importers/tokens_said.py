"""How many tokens a step takes, as far as a log says it itself: its own count of tokens, its config, its batch size."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from service.importers.canonical import TOKENS, Target
from service.importers.rows import Account
from service.importers.survey import MetricFound

EXACT = 1e-6
BATCHES = ("global batch size", "global_batch_size")
NUMBER = r"(?P<tokens>\d[\d,_]*)"
STATED = re.compile(
    rf"tokens per (?:iteration|step|update|batch)(?: will be)?\s*[:=]\s*{NUMBER}"  # nanoGPT and its kin
    rf"|total desired batch size\s*[:=]\s*{NUMBER.replace('tokens', 'desired')}"  # build-nanogpt
    rf"|train_batch_tokens\s*[:=]\s*{NUMBER.replace('tokens', 'batch')}"  # modded-nanogpt and its kin
    rf"|seq_len T=\d+.*\btotal_batch_size\s*[:=]\s*{NUMBER.replace('tokens', 'total')}",  # llm.c
    re.IGNORECASE,
)
LENGTH = re.compile(r"\bseq(?:uence)?_length[ .]*[ .:=]\s*(?P<length>\d{1,9})\b")  # Megatron prints its arguments


@dataclass(frozen=True, slots=True)
class Said:
    """A number of tokens per step, and what says so."""

    per_step: int
    by: str


def hear(line: str, account: Account) -> None:
    """Look whether a line that holds no values says how large a batch is."""
    if len(line) > 4096:
        return
    found = STATED.search(line) if "atch" in line or "okens per" in line else None
    if found is not None:
        text = next(text for text in found.groupdict().values() if text)
        account.stated.setdefault("tokens", set()).add(int(re.sub("[,_]", "", text)[:18]))
    length = LENGTH.search(line) if "_length" in line else None
    if length is not None:
        account.stated.setdefault("length", set()).add(int(length["length"]))


def tokens_said(
    metrics: Mapping[str, Sequence[MetricFound]], known: Mapping[str, Target], account: Account
) -> Said | None:
    """What a run's log says of it; None where it says nothing, or different things at different steps."""
    for name, target in known.items():
        if target.metric == TOKENS and name in metrics:
            rate = _rate(metrics[name], target.shift)
            if rate is not None:
                return Said(rate, f"its own count of tokens, {name}")
    stated = account.stated.get("tokens", set())
    if len(stated) == 1 and min(stated) > 0:
        return Said(min(stated), "its config")
    lengths = account.stated.get("length", set())
    for name, found in metrics.items():
        sizes = {size for metric in found for size in (metric.minimum, metric.maximum)}
        if name.rpartition("/")[2] in BATCHES and len(sizes) == 1 and len(lengths) == 1:
            size = min(sizes) * min(lengths)
            if size >= 1 and size == int(size):
                return Said(int(size), f"{name} x the sequence length of its config")
    return None


def _rate(found: Sequence[MetricFound], shift: int) -> int | None:
    steps = np.array([step + shift for metric in found for step in metric.sample_steps], np.float64)
    values = np.array([value for metric in found for value in metric.sample], np.float64)
    good = np.isfinite(values) & (steps > 0) & (values > 0)
    if not good.any():
        return None
    rates = values[good] / steps[good]
    middle = float(np.median(rates))
    if middle < 1.0 or np.abs(rates - middle).max() > EXACT * middle:
        return None
    return round(middle) if abs(middle - round(middle)) <= EXACT * middle else None
