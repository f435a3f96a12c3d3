"""Windows of held-out text in training rows: more than any corpus shows?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .facts import HeldoutHits
from .inputs import Floats, Ints, RunView
from .rows import HIGHEST_NATURAL_SHARE, NATURAL_SHARE, wilson
from .sequential import episodes

EARLY_ROWS = 2_000_000  # looked-through rows from which a run's own background is taken
EARLY_HITS = 5
SHARES = (0.1, 0.01, 0.001)  # shares of rows with a hit that are watched for
BLOCK_HITS = 4_096
ALARM = 18.0  # log likelihood ratio, as for repeated rows
# A text that was read once gains some 0.2 nats; the noise of a held-out loss is 0.0017 (C4, the reference's own): as
# much of a set as this moves its loss by more than that.
WHOLE = 0.01
EDGE = 5.0  # an alternative is at least this many times the natural share


@dataclass(frozen=True, slots=True)
class SetFinding:
    """One held-out set. `rows` were looked through; `hits` of them, scaled by `sample`, hold a passage of the set,
    `windows` different ones; `share` (with its 95 % interval) is of the rows since the onset where an episode is open.
    1 window of the set in `rate` is looked for, `looked_for` in all (0: not known); `pieces` rows hold at least one,
    `met` windows in all. `documents` rows hold a whole document, each counted once: together `whole` of the set (0 to
    1); `whole_since`: (last step without, step with) which that made a hundredth of it, where it does. `onset`: (last
    step without, first step with) the excursion's first hit; None: none."""

    name: str
    sample: int
    rows: int
    hits: int
    windows: int
    share: float
    interval: tuple[float, float]
    natural: float
    natural_source: str
    onset: tuple[int, int] | None
    rate: int = 1
    looked_for: int = 0
    pieces: int = 0
    met: int = 0
    documents: int = 0
    whole: float = 0.0
    whole_since: tuple[int, int] | None = None


def find(view: RunView) -> list[SetFinding]:
    """Every held-out set that is looked for, by name."""
    hits: Mapping[str, HeldoutHits] = view.heldout_hits or {}
    return [_of_set(name, hits[name], view) for name in sorted(hits)]


def _of_set(name: str, hits: HeldoutHits, view: RunView) -> SetFinding:
    order = np.argsort(hits.steps, kind="stable")
    steps, hashes = hits.steps[order], hits.hashes[order]
    sample = max(int(hits.sample), 1)
    windows = len(np.unique(hashes))
    steps = steps[_counted(hashes)]
    read = np.cumsum(np.maximum(hits.seen_rows, 0))
    total = int(read[-1]) if len(read) else 0
    at, counts = np.unique(steps, return_counts=True)
    before = _rows_up_to(hits.seen_steps, read, at)
    natural, source = view.limit("heldout_text", *_natural(hits, before, counts, total, sample))
    onset = _onset(counts, before / sample, total / sample, natural)
    since, rows = len(steps), total
    span: tuple[int, int] | None = None
    if onset is not None:
        began = int(at[onset])
        last = int(at[onset - 1]) if onset else int(min(hits.seen_steps[:1].tolist() or [began])) - 1
        span = (min(last + 1, began), began)
        since = int(counts[onset:].sum())
        # Rows since the last hit before it: they held none.
        rows = total - (int(before[onset - 1]) if onset else 0)
    seen = max(rows // sample, since)
    share = since / seen if seen else 0.0
    return SetFinding(
        name, sample, total, len(hashes), windows, share, wilson(since, seen), natural, source, span, hits.rate,
        hits.windows, hits.pieces or len(hashes), hits.met or len(hashes), len(hits.long_steps), *_whole(hits),
    )  # fmt: skip


def _whole(hits: HeldoutHits) -> tuple[float, tuple[int, int] | None]:
    """How much of the set was read as whole documents, and since when that is too much."""
    if not len(hits.long_steps) or hits.windows <= 0:
        return 0.0, None
    share = np.minimum(np.cumsum(hits.long_windows) / hits.windows, 1.0)
    over = np.flatnonzero(share >= WHOLE)
    step = int(hits.long_steps[over[0]]) if len(over) else 0
    return float(share[-1]), (step - 1, step) if len(over) else None


def _counted(hashes: NDArray[np.uint64]) -> Ints:
    """Indices of the hits that count: each window once among 4,096 hits. One that comes again and again is boilerplate,
    or stands in a repeated row, which another rule tells."""
    block = np.arange(len(hashes)) // BLOCK_HITS
    order = np.lexsort((np.arange(len(hashes)), hashes, block))
    head = np.ones(len(hashes), np.bool_)
    head[1:] = (hashes[order][1:] != hashes[order][:-1]) | (block[order][1:] != block[order][:-1])
    return np.sort(order[head]).astype(np.int64)


def _rows_up_to(seen_steps: Ints, read: Ints, steps: Ints) -> Ints:
    """Rows looked through up to and with each step."""
    at = np.searchsorted(seen_steps, steps, side="right")
    return np.where(at > 0, read[np.maximum(at, 1) - 1], 0) if len(read) else np.zeros(len(steps), np.int64)


def _natural(hits: HeldoutHits, before: Ints, counts: Ints, total: int, sample: int) -> tuple[float, str]:
    if hits.natural is not None and np.isfinite(hits.natural) and hits.natural > 0.0:
        return min(hits.natural, HIGHEST_NATURAL_SHARE), "measured with the set"
    if total >= EARLY_ROWS:
        early = int(counts[before <= EARLY_ROWS].sum())
        share = early * sample / EARLY_ROWS
        if early >= EARLY_HITS and NATURAL_SHARE < share <= HIGHEST_NATURAL_SHARE:
            return share, f"this run's first {EARLY_ROWS:,} rows"
    return NATURAL_SHARE, "assumed: quotations and boilerplate in a corpus"


def _onset(counts: Ints, exposed: Floats, total: float, natural: float) -> int | None:
    """Index of the first step of the open excursion: a CUSUM of Poisson log likelihood ratios.

    `counts` (m,): hits of each step that has any; `exposed` (m,): sampled rows looked through up to it, `total` in
    all."""
    if len(counts) == 0:
        return None
    gone = np.diff(np.concatenate(([0.0], exposed, [max(total, float(exposed[-1]))])))
    onsets: list[int] = []
    for share in SHARES:
        rate = max(share, EDGE * natural)
        gain = np.append(counts, 0) * float(np.log(rate / natural)) - (rate - natural) * gone
        found = episodes(gain, ALARM)
        if found and found[-1].end is None:
            onsets.append(min(found[-1].onset, len(counts) - 1))
    return min(onsets, default=None)
