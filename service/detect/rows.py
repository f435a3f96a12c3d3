"""Sampled row fingerprints: which readings are repeats, since when there are too many, and what pattern they have."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from .inputs import Floats, Ints, RowReadings, RunView
from .judgement import Evidence
from .sequential import Episode, episodes

Bools = NDArray[np.bool_]

NATURAL_SHARE = 1e-4  # equal rows that a healthy corpus holds anyway
HIGHEST_NATURAL_SHARE = 1e-3  # an early background above this is no background
BACKGROUND_READINGS = 20_000  # sampled readings from which the run's own background is taken
BACKGROUND_REPEATS = 5
WINDOW_READINGS = 65_536  # sampled readings within which a hash counts once: clusters of equal rows stay one event
ALTERNATIVES = (0.5, 0.01, 0.001)  # repeat shares watched for: a replay, a leak, a trickle
ONSET_SHARE = 0.01  # the chart whose excursion dates the first repeats
RETURN_READINGS = 4_096  # sampled readings behind a trainer start that are looked at
ALARM = 18.0  # log likelihood ratio; about one false alarm in e^18 chances


@dataclass(frozen=True, slots=True)
class RowPattern:
    """What the repeats since the onset look like. Shares are of the repeated readings, 0 to 1.

    `lag`/`lag_share`: the commonest distance in steps to the hash's previous reading, and how many have it;
    `same_step`: read twice within one step, by another host; `own_host`: first read by the same host; `new_share`:
    readings since the onset whose hash was new; `copies`: readings per repeated hash; `growth`: repeat share of the
    last third of the readings since the onset minus that of the first third."""

    lag: int
    lag_share: float
    same_step: float
    own_host: float
    new_share: float
    copies: float
    growth: float
    readings: int
    repeats: int


@dataclass(frozen=True, slots=True)
class RowReturn:
    """Rows of steps up to the trainer start at `restart` (updates made) that came back after it.

    Of the first `readings` sampled ones behind it, `returned` had been read up to it; `hits` of these lie exactly `lag`
    steps behind, the first of them at step `first`."""

    restart: int
    readings: int
    returned: int
    lag: int
    hits: int
    first: int


@dataclass(frozen=True, slots=True)
class RowFinding:
    """`sampled` readings, of them `repeats` (a hash seen before) and `distinct` hashes; `rows_read` counts all rows, at
    1 in `sample`. `share` with its 95 % interval is of the readings since the onset while an episode is open, else of
    all readings. `distinct_at_onset` and `read_at_onset` are sampled counts. `hosts` is how many hosts reported."""

    sample: int
    sampled: int
    repeats: int
    distinct: int
    rows_read: int
    legal: int
    share: float
    interval: tuple[float, float]
    natural: float
    natural_source: str
    episode: Episode | None
    onset: tuple[int, int] | None
    distinct_at_onset: int
    read_at_onset: int
    hosts: int
    pattern: RowPattern | None
    returns: list[RowReturn] = field(default_factory=list[RowReturn])

    @property
    def distinct_rows(self) -> int:
        """Distinct rows read, scaled from the sample."""
        return self.distinct * self.sample


def find(view: RunView) -> RowFinding | None:
    """Judge the row readings of a view; None where no fingerprints were sent."""
    readings = view.rows
    if readings is None or (len(readings.hashes) == 0 and len(readings.seen_steps) == 0):
        return None
    order = np.argsort(readings.steps, kind="stable")
    steps, hosts = readings.steps[order], readings.hosts[order]
    ordinal, previous, first, identity = occurrences(readings.hashes[order])
    again = ordinal > 0
    legal = _legal(view, readings, steps, ordinal) & again
    repeat = again & ~legal
    counted = repeat & _once_per_window(identity, repeat)
    natural, source = view.limit("repeated_rows", *_background(counted))
    open_episode = _watch(counted, repeat, natural)
    n, repeats = len(steps), int(repeat.sum())
    start = n
    onset: tuple[int, int] | None = None
    pattern: RowPattern | None = None
    if open_episode is not None:
        began = int(steps[open_episode.onset])
        start = int(np.count_nonzero(steps < began))
        # Since the last sampled reading that was no repeat nothing is known: the repeats may have begun right after it.
        quiet: Ints = steps[:start][~repeat[:start]]
        earliest = int(quiet[-1]) + 1 if len(quiet) else int(steps[0])
        onset = (min(earliest, began), began)
        pattern = _pattern(steps, hosts, previous, first, identity, repeat, again, start)
    since = repeat[start:] if open_episode is not None else repeat
    share = float(since.mean()) if len(since) else 0.0
    return RowFinding(
        sample=readings.sample,
        sampled=n,
        repeats=repeats,
        distinct=int((~again).sum()),
        rows_read=int(readings.seen_rows.sum()),
        legal=int(legal.sum()),
        share=share,
        interval=wilson(int(since.sum()), len(since)),
        natural=natural,
        natural_source=source,
        episode=open_episode,
        onset=onset,
        distinct_at_onset=int((~again[:start]).sum()),
        read_at_onset=start,
        hosts=_host_count(view, hosts),
        pattern=pattern,
        returns=_returns(view, steps, previous, repeat),
    )


def occurrences(hashes: NDArray[np.uint64]) -> tuple[Ints, Ints, Ints, Ints]:
    """Per reading (n,): how many earlier readings had its hash, the index of the previous one and of the first one
    (-1: none), and a small integer that stands for the hash."""
    n = len(hashes)
    by_hash = np.argsort(hashes, kind="stable")
    ordered = hashes[by_hash]
    head = np.append(True, ordered[1:] != ordered[:-1])[:n]
    group = np.cumsum(head) - 1
    starts = np.flatnonzero(head)
    place = np.arange(n) - (starts[group] if n else 0)
    ordinal, previous, first, identity = (np.full(n, -1, np.int64) for _ in range(4))
    ordinal[by_hash] = place
    before = np.where(place > 0, np.append(-1, by_hash[:-1])[:n], -1)
    previous[by_hash] = before
    first[by_hash] = np.where(place > 0, by_hash[starts[group]] if n else 0, -1)
    identity[by_hash] = group
    return ordinal, previous, first, identity


def wilson(hits: int, n: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927); (0, 1) without observations."""
    if n == 0:
        return 0.0, 1.0
    z, share = 1.96, hits / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * float(np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)))
    return max(centre - half, 0.0), min(centre + half, 1.0)


def evidence(finding: RowFinding | None) -> list[Evidence]:
    """The named numbers `share of repeated rows`, `rows read`, `distinct rows`."""
    scaled = ""
    if finding is not None and finding.sample > 1:
        scaled = f", {finding.distinct:,} sampled x {finding.sample:,}"
    if finding is None:
        none = "no row fingerprints were sent"
        return [
            Evidence("share of repeated rows", None, "share", none),
            Evidence("rows read", None, "rows", none),
            Evidence("distinct rows", None, "rows", none),
        ]
    where = "of the readings since the onset" if finding.episode is not None else "of all readings"
    return [
        Evidence(
            "share of repeated rows", finding.share, "share",
            f"{where}, against {finding.natural:.1g} that is natural; {finding.sampled:,} readings sampled 1 in "
            f"{finding.sample:,}",
        ),
        Evidence("rows read", finding.rows_read, "rows", "all rows that the hosts reported, over all live steps"),
        Evidence(
            "distinct rows", finding.distinct_rows, "rows",
            f"different rows among them{scaled}",
        ),
    ]  # fmt: skip


def _legal(view: RunView, readings: RowReadings, steps: Ints, ordinal: Ints) -> Bools:
    """A row's j-th further reading is planned once j passes over the declared rows have been read; where parts of the
    mix are upsampled on purpose a pass may hold it `copies` times."""
    data = view.data
    if data is None or data.rows <= 0 or len(readings.seen_steps) == 0:
        return np.zeros(len(steps), bool)
    read = np.cumsum(readings.seen_rows)
    at = np.searchsorted(readings.seen_steps, steps, side="right") - 1
    so_far = np.where(at >= 0, read[np.maximum(at, 0)], 0)
    return so_far >= ordinal // max(data.copies, 1) * data.rows


def _returns(view: RunView, steps: Ints, previous: Ints, repeat: Bools) -> list[RowReturn]:
    """What came back behind each trainer start, of all that was read up to it."""
    found: list[RowReturn] = []
    starts = sorted({s.start_step for s in view.segments if s.start_step > 0})
    for i, start in enumerate(starts):
        begin = int(np.searchsorted(steps, start, side="right"))
        end = int(np.searchsorted(steps, starts[i + 1], side="right")) if i + 1 < len(starts) else len(steps)
        end = min(end, begin + RETURN_READINGS)
        if begin == 0 or end <= begin:
            continue
        where = begin + np.flatnonzero(repeat[begin:end])
        where = where[steps[previous[where]] <= start]
        lag, hits, first = 0, 0, 0
        if len(where):
            lags = steps[where] - steps[previous[where]]
            values, counts = np.unique(lags, return_counts=True)
            lag, hits = int(values[np.argmax(counts)]), int(counts.max())
            first = int(steps[where[lags == lag][0]])
        found.append(RowReturn(start, end - begin, len(where), lag, hits, first))
    return found


def _once_per_window(identity: Ints, repeat: Bools) -> Bools:
    where = np.flatnonzero(repeat)
    key = identity[where] * (len(identity) // WINDOW_READINGS + 1) + where // WINDOW_READINGS
    _, index = np.unique(key, return_index=True)
    counted = np.zeros(len(identity), bool)
    counted[where[index]] = True
    return counted


def _background(counted: Bools) -> tuple[float, str]:
    """The natural share: assumed, or this run's own over its first 20,000 sampled readings, once they are in."""
    if len(counted) >= BACKGROUND_READINGS:
        early = int(counted[:BACKGROUND_READINGS].sum())
        share = early / BACKGROUND_READINGS
        if early >= BACKGROUND_REPEATS and NATURAL_SHARE < share <= HIGHEST_NATURAL_SHARE:
            return share, f"this run's first {BACKGROUND_READINGS:,} sampled readings"
    return NATURAL_SHARE, "assumed: natural twins in a corpus"


def _watch(counted: Bools, repeat: Bools, natural: float) -> Episode | None:
    """The open episode (indices into the readings) of the highest share that has one; None: none is open.

    Log likelihood ratio of a repeat share against the natural one, reading by reading; a hash that repeats again within
    its window counts neither way, or a cluster of equal rows would make an alarm, and a third pass an all-clear. What a
    faster chart has told and closed does not keep a slower one open."""
    count = counted.astype(np.float64)
    live = ~(repeat & ~counted)
    for share in ALTERNATIVES:
        found = episodes(_evidence_of(share, natural, count) * live, ALARM)
        if found and found[-1].end is None:
            return replace(found[-1], onset=_first_repeat(found[-1], _evidence_of(ONSET_SHARE, natural, count) * live))
        for told in found:
            live[told.onset : (told.end or 0) + 1] = False
    return None


def _evidence_of(share: float, natural: float, count: Floats) -> Floats:
    share = max(share, 5.0 * natural)
    fresh, repeated = float(np.log((1.0 - share) / (1.0 - natural))), float(np.log(share / natural))
    return fresh + (repeated - fresh) * count


def _first_repeat(episode: Episode, increments: Floats) -> int:
    """Where the excursion began that holds the alarm, as seen by the chart for a share of 1 in 100: a leak that swells
    into a replay began with its first repeats."""
    total = np.concatenate(([0.0], np.cumsum(increments[: episode.alarm + 1])))
    lowest = len(total) - 1 - int(np.argmin(total[::-1]))
    return min(episode.onset, lowest) if total[-1] - total[lowest] > 0.0 else episode.onset


def _pattern(
    steps: Ints, hosts: Ints, previous: Ints, first: Ints, identity: Ints, repeat: Bools, again: Bools, start: int
) -> RowPattern:
    where = start + np.flatnonzero(repeat[start:])
    total = len(steps) - start
    if len(where) == 0:
        return RowPattern(0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, total, 0)
    lags = steps[where] - steps[previous[where]]
    values, counts = np.unique(lags, return_counts=True)
    top = int(np.argmax(counts))
    same_step = (lags == 0) & (hosts[where] != hosts[previous[where]])
    third = max(total // 3, 1)
    last, early = repeat[len(steps) - third :], repeat[start : start + third]
    return RowPattern(
        lag=int(values[top]),
        lag_share=float(counts[top] / len(where)),
        same_step=float(same_step.mean()),
        own_host=float((hosts[where] == hosts[first[where]]).mean()),
        new_share=float((~again[start:]).mean()),
        copies=1.0 + len(where) / len(np.unique(identity[where])),
        growth=float(last.mean() - early.mean()) if total >= 3 else 0.0,
        readings=total,
        repeats=len(where),
    )


def _host_count(view: RunView, hosts: Ints) -> int:
    declared = max((s.hosts for s in view.segments), default=0)
    return max(declared, len(np.unique(hosts)))
