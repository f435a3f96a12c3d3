"""Losses that hold more than cross-entropy: what the log adds to them is taken away again, step by step.

MaxText's losses contain z-loss, which it logs beside them. The two may come in any order, and far apart: a table sorted
by metric has all of the one before any of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from service.importers.blocks import Floats, Ints
from service.importers.canonical import Target

Pair = tuple[Ints, Floats]  # steps (n,) and values (n,)


def _nothing() -> Pair:
    return np.empty(0, np.int64), np.empty(0)


@dataclass(slots=True)
class Subtraction:
    """One loss of one segment: takes its values and those of what it contains as they come, gives what is whole.

    A loss whose step has no value of what it contains waits. If the segment ends without any such value, it contained
    none; if it has some, but not at this step, then what the loss would be without it is not known.
    """

    target: Target
    _loss: Pair = field(default_factory=_nothing)
    _terms: dict[str, Pair] = field(default_factory=dict[str, Pair])
    _seen: bool = False

    def add(self, loss: Pair | None, others: Mapping[str, Pair]) -> Pair:
        """Take the next values, by the log's own names and steps; the losses that can be told now."""
        if loss is not None:
            self._loss = _joined(self._loss, loss)
        for name in self.target.minus:
            if name in others and len(others[name][0]):
                self._terms[name] = _joined(self._terms.get(name, _nothing()), others[name])
                self._seen = True
        if len(self._terms) < len(self.target.minus) or not len(self._loss[0]):
            return _nothing()
        steps, values = self._loss
        whole, taken = np.ones(len(steps), np.bool_), np.zeros(len(steps))
        for name in self.target.minus:
            at, terms = _last_of_each(*self._terms[name])
            place = np.minimum(np.searchsorted(at, steps), len(at) - 1)
            whole &= at[place] == steps
            taken += terms[place]
        self._loss = steps[~whole], values[~whole]
        if whole.any():
            done = int(steps[whole].max())
            self._terms = {name: _from(pair, done) for name, pair in self._terms.items()}
        return steps[whole], values[whole] - taken[whole] / self.target.divisor

    def rest(self) -> tuple[Pair, int]:
        """At the segment's end: the losses that contained nothing, else how many could not be told."""
        return (_nothing(), len(self._loss[0])) if self._seen else (self._loss, 0)


def subtracted(loss: Pair, terms: Mapping[str, Pair], target: Target) -> Pair:
    """The whole of a segment at once."""
    made = Subtraction(target)
    steps, values = made.add(loss, terms)
    rest, _ = made.rest()
    return _joined((steps, values), rest)


def _joined(first: Pair, second: Pair) -> Pair:
    if not len(first[0]):
        return second
    return np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]])


def _last_of_each(steps: Ints, values: Floats) -> Pair:
    """Each step once, with the value that came last."""
    if not (np.diff(steps) > 0).all():
        found, places = np.unique(steps[::-1], return_index=True)
        return found, values[::-1][places]
    return steps, values


def _from(pair: Pair, step: int) -> Pair:
    """What may still be asked for: a step that comes again at once has the value of before."""
    kept = pair[0] >= step
    return pair[0][kept], pair[1][kept]
