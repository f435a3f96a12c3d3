"""Sampled row fingerprints: which readings are repeats, since when there are too many, and what pattern they have."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.compare.growing import same_bits

from .cache import LevelCache
from .inputs import Ints, RowReadings, RunView
from .judgement import Evidence
from .repeats import Repeats, in_order
from .row_charts import OPEN, TILE, RowCharts, Tally
from .sequential import Episode

NATURAL_SHARE = 1e-4  # equal rows that a healthy corpus holds anyway
HIGHEST_NATURAL_SHARE = 1e-3  # an early background above this is no background
BACKGROUND_READINGS = 20_000  # sampled readings from which the run's own background is taken
BACKGROUND_REPEATS = 5
RETURN_READINGS = 4_096  # sampled readings behind a trainer start that are looked at


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


def find(view: RunView, cache: LevelCache | None = None) -> RowFinding | None:
    """Judge the row readings of a view; None where no fingerprints were sent. With the `cache` of a run that grows only
    what is new is looked at."""
    readings = view.rows
    if readings is None or (len(readings.hashes) == 0 and len(readings.seen_steps) == 0):
        return None
    return (RowWatch() if cache is None else cache.kept(RowWatch)).find(view, readings)


@dataclass(slots=True)
class RowWatch:
    """The row readings of one run while it grows."""

    _repeats: Repeats = field(default_factory=Repeats)
    _charts: RowCharts = field(default_factory=RowCharts)
    _tally: Tally | None = None
    _steps: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # known to be in order
    _returns: dict[tuple[int, int, int], RowReturn] = field(default_factory=dict[tuple[int, int, int], RowReturn])

    def find(self, view: RunView, readings: RowReadings) -> RowFinding:
        """`find` of the view."""
        readings = in_order(readings, same_bits(self._steps, readings.steps))
        steps, n, found = readings.steps, len(readings.steps), self._repeats
        self._steps = steps
        known = found.advance(readings, view.data, [s.start_step for s in view.segments if s.start_step > 0])
        natural, source = self._natural(view, n)
        episode = self._charts.watch(found, n, natural, known)
        start = n
        onset: tuple[int, int] | None = None
        pattern: RowPattern | None = None
        if episode is not None:
            began = int(steps[episode.onset])
            start = int(np.searchsorted(steps, began))
            # Since the last sampled reading that was no repeat nothing is known: the repeats may have begun right
            # after it.
            quiet = _last_quiet(found, start)
            earliest = int(steps[0]) if quiet is None else int(steps[quiet]) + 1
            onset = (min(earliest, began), began)
            pattern = self._pattern(readings, start, known)
        repeats = found.repeats_in(0, n)
        since = start if episode is not None else 0
        hits, size = found.repeats_in(since, n), n - since
        again = found.again_in(0, n)
        return RowFinding(
            sample=readings.sample,
            sampled=n,
            repeats=repeats,
            distinct=n - again,
            rows_read=int(found.read.array[-1]) if len(found.read) else 0,
            legal=again - repeats,
            share=hits / size if size else 0.0,
            interval=wilson(hits, size),
            natural=natural,
            natural_source=source,
            episode=episode,
            onset=onset,
            distinct_at_onset=start - found.again_in(0, start),
            read_at_onset=start,
            hosts=max(max((s.hosts for s in view.segments), default=0), len(found.hosts)),
            pattern=pattern,
            returns=self._all_returns(view, steps, known),
        )

    def _natural(self, view: RunView, n: int) -> tuple[float, str]:
        """The share of repeats that is natural, and its source."""
        return view.limit("repeated_rows", *_background(self._repeats, n))

    @property
    def repeats(self) -> Repeats:
        """Which of the readings that were judged last are repeats."""
        return self._repeats

    def met(self, hashes: NDArray[np.uint64]) -> bool:
        """Whether one of these was among the readings that were judged last, or stands here twice."""
        return self._repeats.met(hashes)

    def _pattern(self, readings: RowReadings, start: int, known: int) -> RowPattern:
        found, n = self._repeats, len(readings.steps)
        tally = self._tally
        if tally is None or tally.start != start or tally.end > known:
            tally = Tally(start, start)
        self._tally = tally.grown(found, readings, max(max(n - OPEN, 0) // TILE * TILE, tally.end))
        now, total = self._tally.grown(found, readings, n), n - start
        repeats = found.repeats_in(start, n)
        if repeats == 0:
            return RowPattern(0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, total, 0)
        lag, times = now.lags.commonest
        third = max(total // 3, 1)
        last, early = found.repeats_in(n - third, n), found.repeats_in(start, start + third)
        return RowPattern(
            lag=lag,
            lag_share=times / repeats,
            same_step=now.same_step / repeats,
            own_host=now.own_host / repeats,
            new_share=(total - found.again_in(start, n)) / total,
            copies=1.0 + repeats / now.hashes,
            growth=last / third - early / third if total >= 3 else 0.0,
            readings=total,
            repeats=repeats,
        )

    def _all_returns(self, view: RunView, steps: Ints, known: int) -> list[RowReturn]:
        """What came back behind each trainer start, of all that was read up to it."""
        starts = sorted({s.start_step for s in view.segments if s.start_step > 0})
        edges = [*np.searchsorted(steps, np.array(starts, np.int64), side="right").tolist(), len(steps)]
        before = {key: told for key, told in self._returns.items() if key[2] <= known}
        self._returns = {}
        for i, start in enumerate(starts):
            begin, end = edges[i], min(edges[i + 1], edges[i] + RETURN_READINGS)
            if begin > 0 and end > begin:
                key = (start, begin, end)
                self._returns[key] = before.get(key) or self._one_return(steps, *key)
        return list(self._returns.values())

    def _one_return(self, steps: Ints, start: int, begin: int, end: int) -> RowReturn:
        those = self._repeats.of_repeats(begin, end)
        where, previous = self._repeats.where.array[those], self._repeats.previous.array[those]
        back = steps[previous] <= start
        where, lags = where[back], (steps[where] - steps[previous])[back]
        if len(where) == 0:
            return RowReturn(start, end - begin, 0, 0, 0, 0)
        values, counts = np.unique(lags, return_counts=True)
        lag, hits = int(values[np.argmax(counts)]), int(counts.max())
        return RowReturn(start, end - begin, len(where), lag, hits, int(steps[where[lags == lag][0]]))


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
            f"{where}, against {finding.natural:.2g} that is natural ({finding.natural_source}); "
            f"{finding.sampled:,} readings sampled 1 in {finding.sample:,}",
        ),
        Evidence("rows read", finding.rows_read, "rows", "all rows that the hosts reported, over all live steps"),
        Evidence(
            "distinct rows", finding.distinct_rows, "rows",
            f"different rows among them{scaled}",
        ),
    ]  # fmt: skip


def _background(found: Repeats, n: int) -> tuple[float, str]:
    """The natural share: assumed, or this run's own over its first 20,000 sampled readings, once they are in."""
    if n >= BACKGROUND_READINGS:
        upto = int(np.searchsorted(found.where.array, BACKGROUND_READINGS))
        early = int(np.count_nonzero(found.counted.array[:upto]))
        share = early / BACKGROUND_READINGS
        if early >= BACKGROUND_REPEATS and NATURAL_SHARE < share <= HIGHEST_NATURAL_SHARE:
            return share, f"this run's first {BACKGROUND_READINGS:,} sampled readings"
    return NATURAL_SHARE, "assumed: natural twins in a corpus"


def _last_quiet(found: Repeats, start: int) -> int | None:
    """The last reading before `start` that is no repeat."""
    where, legal = found.where.array, found.legal.array
    place, at = start - 1, int(np.searchsorted(where, start)) - 1
    while at >= 0 and where[at] == place and not legal[at]:
        place, at = place - 1, at - 1
    return place if place >= 0 else None
