"""What is known of the rows that were read, and what their fingerprints cannot see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.database.models import Run, Segment
from service.judgements.beside import declared_data
from service.reports.document import DataAudit, Judged

RULES = ("replayed_batches", "data_order", "data_position", "heldout_text")


def data_audit(run: Run, launches: Sequence[Segment], rules: Mapping[str, Judged]) -> DataAudit:
    """The audit of a run. `launches` are its live segments, `rules` its newest answers."""
    trainers = [launch for launch in launches if launch.kind != "evaluator"]
    config: Mapping[str, Any] = trainers[-1].config if trainers else {}
    declared = declared_data(run.data, config)
    repeats = rules.get("repeated_rows")
    read, distinct = _number(repeats, "rows read"), _number(repeats, "distinct rows")
    sent = repeats is not None and repeats.value is not None
    sample = max((launch.sample_rows for launch in trainers), default=None) if sent else None
    coverage = distinct / declared.rows if distinct is not None and declared is not None else None
    return DataAudit(
        repeats=repeats, sample=sample, rows_read=read, distinct_rows=distinct,
        declared_rows=None if declared is None else declared.rows,
        declared_epochs=None if declared is None else declared.epochs, coverage=coverage,
        answers=[rules[name] for name in RULES if name in rules], blind=_blind(sample),
    )  # fmt: skip


def _number(judged: Judged | None, name: str) -> float | None:
    for item in judged.evidence if judged is not None else ():
        if item.get("name") == name and isinstance(item.get("value"), int | float):
            return float(item["value"])
    return None


def _blind(sample: int | None) -> list[str]:
    """What a reader must not take from the numbers above."""
    if sample is None:
        return ["No row fingerprints were sent: nothing is known of repeated rows, and nothing is said to be fine."]
    few = (
        f"Rows are sampled, 1 in {sample:,}: repeats of fewer rows than some times that may stay unseen, and counts of "
        "rows are scaled from the sample."
        if sample > 1
        else "Every row was hashed."
    )
    return [
        few,
        "A row is known again only if all its tokens are equal: the same text, packed or tokenized in another way, is "
        "another row.",
        "Only steps and hosts that sent fingerprints are covered, and only while they were sent.",
        "Fingerprints say which rows were read, not what stands in them: quality, mix and contamination are not seen.",
    ]
