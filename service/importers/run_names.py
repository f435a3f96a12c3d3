"""Names of runs, where a tracker lets several runs have one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def distinct(names: Sequence[str], ids: Sequence[str]) -> list[str]:
    """The names; those that occur more than once, or are empty, with their id."""
    count = Counter(names)
    return [
        (name if count[name] == 1 else f"{name} ({id_})") if name else id_ for name, id_ in zip(names, ids, strict=True)
    ]
