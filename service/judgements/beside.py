"""What the rules look at beside series: events, evaluation sets, per-item results, held-out hits, what is declared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from sqlalchemy.orm import Session

from service.database.models import ItemResult
from service.database.models import Segment as SegmentRow
from service.detect.facts import Happening, HeldoutHits, Items, Knot, Loss, Recipe
from service.detect.inputs import DeclaredData, RowReadings, Segment, Series
from service.detect.recipe import ORDER, compare, flat, of_stage
from service.fingerprints.repository import FingerprintRepository
from service.references.description import Description
from service.runs.repository import RunRepository

EVALUATION_SET = "evaluation_set"
# What may change how a run goes on. Checkpoints do not, and are many.
TOLD = ("config", "code", "data", "evaluator", "hardware", "note", EVALUATION_SET)
LONGEST_TEXT = 200


@dataclass(frozen=True, slots=True)
class Beside:
    """Of one run: see the fields of `service.detect.inputs.RunView`."""

    happenings: Sequence[Happening]
    eval_sets: Mapping[str, Sequence[tuple[int, str]]]
    items: Mapping[str, Sequence[Items]]
    heldout_hits: Mapping[str, HeldoutHits] | None


def read_beside(session: Session, run_id: int) -> Beside:
    """All of it, live only."""
    runs = RunRepository(session)
    happenings: list[Happening] = []
    sets: dict[str, list[tuple[int, str]]] = {}
    for event in runs.live_events(run_id, TOLD):
        value: Any = event.value.get("value")
        if event.kind == EVALUATION_SET and isinstance(value, dict):
            said = cast("dict[str, Any]", value)
            known = sets.setdefault(str(said.get("metric")), [])
            known.append((event.step, str(said.get("set"))))
            if len(known) == 1:
                continue  # the first set is no change
        happenings.append(Happening(event.step, event.kind, in_words(value)))
    hits = FingerprintRepository(session).heldout_hits(run_id)
    return Beside(happenings, sets, items_of(runs.live_items(run_id)), hits or None)


def items_of(rows: Iterable[ItemResult]) -> dict[str, list[Items]]:
    """Per-item results by task, in order of steps."""
    found: dict[str, list[Items]] = {}
    for row in rows:
        bits = np.unpackbits(np.frombuffer(row.correct, np.uint8), count=row.items, bitorder="little")
        found.setdefault(row.task, []).append(Items(row.step, bits.astype(np.bool_)))
    return found


def in_words(value: Any) -> str:
    """What an event says, as one short text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def recipe_of(described: Description, stage: str, curve: Series | None, starts: Sequence[SegmentRow]) -> Recipe:
    """What a reference's description says of its experiment. `starts` are the launches its curve was put together
    from."""
    loss = described.loss
    entry = described.stage(stage)
    knots: list[Knot] = []
    if entry is not None:
        for step in (p.from_step for p in described.schedule if p.stage == stage and p.from_step > 0):
            at = entry.token_offset + step * float(entry.tokens_per_step)
            knots.append(Knot(at, f"step {step:,} of its schedule"))
    if curve is not None and len(curve):
        firsts = sorted({s.start_step for s in starts if s.start_step > int(curve.steps[0])})
        tokens = np.interp(firsts, curve.steps, curve.tokens)
        knots += [
            Knot(float(at), f"step {step:,}, where two of its recordings meet")
            for step, at in zip(firsts, tokens.tolist(), strict=True)
        ]  # fmt: skip
    return Recipe(
        entries=of_stage(described.recipe, stage),
        loss=Loss() if loss is None else Loss(loss.definition, loss.unit, loss.z_loss, loss.scored_share),
        sets={h.metric: h.id for h in described.heldout},
        knots=tuple(sorted(knots, key=lambda k: k.tokens)),
    )


def declared_data(data: Mapping[str, Any] | None, config: Mapping[str, Any]) -> DeclaredData | None:
    """What the trainer said it would read, None if it said nothing that can be used. Its configuration may say how
    often a pass holds one row (`data.copies`)."""
    rows, epochs = (data or {}).get("rows"), (data or {}).get("epochs")
    if not isinstance(rows, int) or rows <= 0:
        return None
    copies = _table(config, "data").get("copies")
    return DeclaredData(
        rows,
        float(epochs) if isinstance(epochs, int | float) and epochs > 0 else 1.0,
        copies if isinstance(copies, int) and copies > 0 else 1,
    )


def same_order(recipe: Recipe, config: Mapping[str, Any], data: DeclaredData | None) -> bool:
    """Whether the run says that it reads the reference's batches in the reference's order.

    It says so by `data.order = "reference"` in its configuration, or by declaring every entry alike that the reference
    says of its data, the seed of the order among them."""
    said = _table(config, "data").get("order")
    if isinstance(said, str):
        return said.strip().casefold() == "reference"
    own = flat(config)
    orders = {n: v for n, v in recipe.entries.items() if ORDER.search(n)}
    if not orders or any(own.get(f"recipe.{n}", own.get(n)) != value for n, value in orders.items()):
        return False
    declared = {} if data is None else {"data.rows": data.rows, "data.passes": data.epochs}
    others = {n: v for n, v in recipe.entries.items() if n.startswith("data.")}
    return all(e.same != "differs" for e in compare(others, config, declared))


def trainer_starts(
    rows: Iterable[SegmentRow], readings: RowReadings | None, reported: int | None = None
) -> list[Segment]:
    """Live trainer starts. Hosts: the largest of what is declared and what has reported rows (`reported` hosts, where
    that is known already)."""
    if reported is None:
        reported = 0 if readings is None else len(np.unique(readings.hosts))
    return [
        Segment(
            row.start_step, row.started_at, max(_declared_hosts(row), reported, 1), row.config, row.versions,
            row.topology, _rates(row),
        )
        for row in rows
        if row.kind != "evaluator"
    ]  # fmt: skip


def _rates(row: SegmentRow) -> tuple[tuple[int, int], ...]:
    if row.ramp:
        return tuple((int(step), int(tokens)) for step, tokens in row.ramp)
    return () if row.tokens_per_step is None else ((row.start_step + 1, row.tokens_per_step),)


def _declared_hosts(row: SegmentRow) -> int:
    declared: list[Any] = [row.topology.get("hosts"), _table(row.config, "data").get("shards")]
    return max((count for count in declared if isinstance(count, int)), default=0)


def _table(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Any = config.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
