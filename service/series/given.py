"""Tokens that trainers gave with their steps: the latest for each step, and from where on two sets of them differ."""

from __future__ import annotations

import numpy as np

from service.compare.growing import same_bits
from service.series.live import NO_LIMIT, GivenTokens, TokenAxis
from service.series.repository import Floats, Ints


def tokens_differ(old: TokenAxis, new: TokenAxis) -> int:
    """The first step whose tokens may differ between two axes of the same segments."""
    first = NO_LIMIT
    for segment in old.given.keys() | new.given.keys():
        before, now = old.given.get(segment), new.given.get(segment)
        if before is None or now is None:
            return 0
        same = min(same_bits(before.steps, now.steps), same_bits(before.tokens, now.tokens))
        if same < max(len(before.steps), len(now.steps)):  # between two given points tokens may be interpolated
            first = min(first, int(now.steps[same - 1]) + 1 if same else 0)
    return first


def latest(steps: Ints, tokens: Floats) -> GivenTokens:
    """Of what was given several times for one step, the latest."""
    order = np.argsort(steps, kind="stable")
    steps, tokens = steps[order], tokens[order]
    last = np.append(steps[1:] != steps[:-1], True)
    return GivenTokens(steps[last], tokens[last])
