"""Stretches of a residual signal that were there before, found by equal words of residual signs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .growing import same_bits

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Hit = tuple[int, int, float]  # index, lag, correlation

WORD = 24  # residual signs in one word; equal batches (r = 0.99) give equal words one time in three
FOLD = 4  # a piece of the index is joined to the one before it once that is not this many times as long
WORD_SAMPLE = 8  # words are compared only where their hash is 0 modulo this, so that copies are sampled together


def recurrences(signal: Floats, *, min_lag: int, window: int = 64, least: float = 0.9) -> list[Hit]:
    """Stretches of `signal` that were there before: (index, lag, correlation over `window` points), by index.

    Finds candidates by equal words of 24 residual signs, sampled by their hash as row fingerprints are, each with the
    occurrence before it; so the whole of a run is searched in a sort's time, and a stretch of some hundred points is
    found wherever it comes. Where a lag goes on, only its first sampled word is given."""
    return Recurrences(min_lag, window, least).find(signal, np.zeros(0))


@dataclass(slots=True)
class Recurrences:
    """`recurrences` of a signal that grows: its words are kept in order, and new ones are looked up among them."""

    min_lag: int
    window: int = 64
    least: float = 0.9
    _settled: Floats = field(default_factory=lambda: np.zeros(0))
    _pieces: list[tuple[Ints, Ints]] = field(default_factory=list[tuple[Ints, Ints]])  # words ascending, positions
    _late: Ints = field(default_factory=lambda: np.zeros((2, 0), np.int64))  # pairs whose window is not settled yet
    _hits: dict[int, Hit] = field(default_factory=dict[int, Hit])

    def find(self, settled: Floats, rest: Floats) -> list[Hit]:
        """Recurrences in `settled` (m,), which only ever grows at its end, and `rest`, which may change, behind it."""
        if same_bits(self._settled, settled) < len(self._settled):
            self._settled, self._pieces = np.zeros(0), []
            self._late, self._hits = np.zeros((2, 0), np.int64), {}
        done, self._settled = max(len(self._settled) - WORD + 1, 0), settled
        positions, words = sign_words(settled[done:])
        pairs = np.concatenate((self._late, self._pairs(positions + done, words)), axis=1)
        self._insert(positions + done, words)
        whole = pairs[0] + self.window <= len(settled)
        self._late = pairs[:, ~whole]
        _add(self._hits, self._judged(pairs[:, whole], settled, 0))
        hits = dict(self._hits)
        if len(rest):
            begin = max(len(settled) - WORD + 1, 0)
            back = max(len(settled) - 2 * self.window, 0)
            tail = np.concatenate((settled[back:], rest))
            positions, words = sign_words(tail[begin - back :])
            open_pairs = np.concatenate((self._late, self._pairs(positions + begin, words)), axis=1)
            reach = open_pairs[0] + self.window <= len(settled) + len(rest)
            _add(hits, self._judged(open_pairs[:, reach], tail, back))
        return sorted(hits.values())

    def _pairs(self, positions: Ints, words: Ints) -> Ints:
        """New words with the occurrence before each: (2, k) positions and lags of at least `min_lag`, by position."""
        order = np.lexsort((positions, words))
        words, positions = words[order], positions[order]
        before = np.full(len(words), -1, np.int64)
        for known, places in self._pieces:  # later ones hold later positions
            old = np.searchsorted(known, words, side="right") - 1
            met = (old >= 0) & (known[np.maximum(old, 0)] == words)
            before[met] = places[old[met]]
        again = np.flatnonzero(words[1:] == words[:-1]) + 1
        before[again] = positions[again - 1]
        lags = positions - before
        use = (before >= 0) & (lags >= self.min_lag)
        found = np.stack((positions[use], lags[use]))
        return found[:, np.argsort(found[0], kind="stable")]

    def _insert(self, positions: Ints, words: Ints) -> None:
        """Keep new words, with what is kept in few pieces: to put each among all others would move them all."""
        if len(words) == 0:
            return
        pieces = self._pieces
        order = np.argsort(words, kind="stable")
        pieces.append((words[order], positions[order]))
        while len(pieces) > 1 and len(pieces[-2][0]) < FOLD * len(pieces[-1][0]):
            (words, positions), (later, after) = pieces[-2:]
            words, positions = np.concatenate((words, later)), np.concatenate((positions, after))
            order = np.argsort(words, kind="stable")
            pieces[-2:] = [(words[order], positions[order])]

    def _judged(self, pairs: Ints, signal: Floats, start: int) -> list[Hit]:
        """The pairs whose windows are alike. `signal` holds the points from `start` on; earlier ones are settled."""
        index, lag = pairs
        if len(index) == 0:
            return []
        offsets = np.arange(self.window)
        now = np.nan_to_num(signal[index[:, None] - start + offsets])
        places = (index - lag)[:, None] + offsets
        then = signal[np.maximum(places - start, 0)]
        if start:
            then = np.where(places >= start, then, self._settled[np.minimum(places, len(self._settled) - 1)])
        then = np.nan_to_num(then)
        power = np.sqrt((now**2).sum(axis=1) * (then**2).sum(axis=1))
        floor = 0.1 * self.window
        r = np.where(power > floor, (now * then).sum(axis=1) / np.maximum(power, floor), 0.0)
        return [(int(index[i]), int(lag[i]), float(r[i])) for i in np.flatnonzero(r >= self.least)]


def _add(hits: dict[int, Hit], found: list[Hit]) -> None:
    for hit in sorted(found):
        first = hits.get(hit[1])
        if first is None or hit[0] < first[0]:
            hits[hit[1]] = hit


def sign_words(signal: Floats) -> tuple[Ints, Ints]:
    """Positions and values of the sampled words; words with a missing point are left out."""
    n = len(signal) - WORD + 1
    if n <= 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    word = (signal > 0.0).astype(np.int64)
    size = 1
    while size < WORD:  # doubling: a word of 2k signs is two words of k
        more = min(size, WORD - size)
        word = (word[: len(word) - more] << more) | (word[more:] & ((1 << more) - 1))
        size += more
    mixed = (word * 0x9E3779B1) >> 7
    keep = mixed % WORD_SAMPLE == 0
    bad = ~np.isfinite(signal) | (signal == 0.0)
    if bad.any():
        keep &= ~sliding_window_view(bad, WORD).any(axis=1)
    return np.flatnonzero(keep), word[keep]
