"""Since when rows repeat too often, and what pattern the repeats have, of a run that grows: what was settled is charted
once. Readings that may still be sent late are charted anew each time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from .inputs import Floats, Ints, RowReadings
from .repeats import Repeats
from .sequential import Chart, Episode

ALTERNATIVES = (0.5, 0.01, 0.001)  # repeat shares watched for: a replay, a leak, a trickle
HIGHEST_SHARE = 0.9  # of a corpus so full of repeats that five times its own share would be more than everything
ONSET_SHARE = 0.01  # the chart whose excursion dates the first repeats
ALARM = 18.0  # log likelihood ratio; about one false alarm in e^18 chances
TILE = 4_096  # sampled readings that are settled at once
OPEN = 1_024  # of the newest that are not settled: hosts report the same steps one after another

Told = tuple[tuple[int, int], ...]  # first and last reading of episodes that another chart has told


def evidence_of(share: float, natural: float, count: Floats) -> Floats:
    """Log likelihood ratio of a repeat share against the natural one, by reading: `count` (n,) is 1 for a repeat."""
    share = max(share, min(5.0 * natural, HIGHEST_SHARE))
    fresh, repeated = float(np.log((1.0 - share) / (1.0 - natural))), float(np.log(share / natural))
    return fresh + (repeated - fresh) * count


@dataclass(slots=True)
class RowCharts:
    """The charts of the repeat shares that are watched for, by the repeats of one run."""

    _natural: float = -1.0
    _charts: dict[float, tuple[Told, Chart]] = field(default_factory=dict[float, tuple[Told, Chart]])
    _onsets: dict[tuple[float, Episode, Told], int] = field(
        default_factory=dict[tuple[float, Episode, Told], int]
    )  # fmt: skip

    def watch(self, found: Repeats, n: int, natural: float, told_before: int) -> Episode | None:
        """The open episode (indices into the n readings) of the highest share that has one; None: none is open. The
        first `told_before` readings say what they said the time before.

        To open an episode a hash counts once in its window, or a cluster of equal rows would make an alarm. While one
        is open each repeat counts: a small pool that is read over and over with some new rows among it would else be an
        all-clear, once each of its rows has counted. What a faster chart has told and closed does not keep a slower one
        open."""
        if natural != self._natural:
            told_before = 0
        self._natural = natural
        self._forget(told_before)
        told: Told = ()
        for share in ALTERNATIVES:
            episodes = self._episodes(found, n, natural, share, told)
            if episodes and episodes[-1].end is None:
                return replace(episodes[-1], onset=self._onset(found, natural, share, episodes[-1], told))
            told += tuple((e.onset, e.end or 0) for e in episodes)
        return None

    def _forget(self, told_before: int) -> None:
        self._charts = {share: held for share, held in self._charts.items() if held[1].fed <= told_before}
        self._onsets = {key: onset for key, onset in self._onsets.items() if key[1].alarm < told_before}

    def _episodes(self, found: Repeats, n: int, natural: float, share: float, told: Told) -> list[Episode]:
        before, chart = self._charts.get(share, ((), Chart(ALARM, 2.0 * ALARM)))
        if before != told:
            chart = Chart(ALARM, 2.0 * ALARM)
        settled = max(n - OPEN, 0) // TILE * TILE
        if chart.fed < settled:
            chart.advance(*both_increments(found, chart.fed, settled, share, natural, told))
        self._charts[share] = (told, chart)
        if not chart.open and found.repeats_in(chart.fed, n) == 0:
            return chart.episodes  # without a repeat the sum can but fall
        now = chart.copy()
        now.advance(*both_increments(found, chart.fed, n, share, natural, told))
        return now.episodes

    def _onset(self, found: Repeats, natural: float, share: float, episode: Episode, told: Told) -> int:
        """Where the excursion began that holds the alarm, as seen by the chart for a share of 1 in 100: a leak that
        swells into a replay began with its first repeats."""
        key = (share, episode, told)
        if key not in self._onsets:
            parts = increments(found, 0, episode.alarm + 1, ONSET_SHARE, natural, told)
            total = np.concatenate(([0.0], np.cumsum(parts)))
            lowest = len(total) - 1 - int(np.argmin(total[::-1]))
            held = total[-1] - total[lowest] > 0.0
            self._onsets[key] = min(episode.onset, lowest) if held else episode.onset
        return self._onsets[key]


def increments(found: Repeats, begin: int, end: int, share: float, natural: float, told: Told) -> Floats:
    """What the readings `begin` up to `end` add to the chart of a share that is to open."""
    return both_increments(found, begin, end, share, natural, told)[0]


def both_increments(
    found: Repeats, begin: int, end: int, share: float, natural: float, told: Told
) -> tuple[Floats, Floats]:
    """What the readings `begin` up to `end` add to the chart of a share: before an episode, and while one is open."""
    count, live = np.zeros(end - begin), np.ones(end - begin, np.bool_)
    low, high = np.searchsorted(found.where.array, (begin, end))
    places: Ints = found.where.array[low:high] - begin
    legal, counted = found.legal.array[low:high], found.counted.array[low:high]
    again = np.zeros(end - begin, np.bool_)
    again[places[~legal & ~counted]] = True
    count[places[~legal]] = 1.0
    for first, last in told:
        live[max(first - begin, 0) : max(last + 1 - begin, 0)] = False
    every = evidence_of(share, natural, count) * live
    return np.where(again, 0.0, every), every


@dataclass(frozen=True, slots=True)
class Counts:
    """How often each value came: `values` (k,) ascending, `counts` (k,)."""

    values: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def with_more(self, new: Ints) -> Counts:
        """With these values as well."""
        values, counts = np.unique(new, return_counts=True)
        at = np.searchsorted(self.values, values)
        known = np.zeros(len(values), np.bool_)
        inside = at < len(self.values)
        known[inside] = self.values[at[inside]] == values[inside]
        total = self.counts.copy()
        total[at[known]] += counts[known]
        fresh = ~known
        return Counts(
            np.insert(self.values, at[fresh], values[fresh]), np.insert(total, at[fresh], counts[fresh])
        )  # fmt: skip

    @property
    def commonest(self) -> tuple[int, int]:
        """The value that came most often (of several the lowest), and how often."""
        top = int(np.argmax(self.counts))
        return int(self.values[top]), int(self.counts[top])


@dataclass(frozen=True, slots=True)
class Tally:
    """What the repeats among the readings `start` up to `end` have in common: their lags in steps, how many lie within
    one step on two hosts, or on the host of their first reading, and how many hashes they have."""

    start: int
    end: int
    lags: Counts = field(default_factory=Counts)
    same_step: int = 0
    own_host: int = 0
    hashes: int = 0

    def grown(self, found: Repeats, readings: RowReadings, end: int) -> Tally:
        """Up to a later end."""
        those = found.of_repeats(self.end, end)
        where, before, first = found.where.array[those], found.previous.array[those], found.first.array[those]
        if len(where) == 0:
            return replace(self, end=end)
        steps, hosts = readings.steps, readings.hosts
        lags = steps[where] - steps[before]
        apart = (lags == 0) & (hosts[where] != hosts[before])
        return Tally(
            self.start, end, self.lags.with_more(lags), self.same_step + int(np.count_nonzero(apart)),
            self.own_host + int(np.count_nonzero(hosts[where] == hosts[first])),
            self.hashes + int(np.count_nonzero(found.last.array[those] < self.start)),
        )  # fmt: skip
