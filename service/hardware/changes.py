"""What differs between two starts of a trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.database.models import Segment
from service.hardware.shape import OWN, flat

HASH = "config_hash"
LONGEST = 400  # characters of a value


@dataclass(frozen=True, slots=True)
class Change:
    """One entry that is not the same: dotted `name`, its value before and after (None where it is not there)."""

    name: str
    before: Any
    after: Any


def changes(before: Segment, after: Segment) -> list[Change]:
    """What differs in topology, versions, batch and configuration, in this order; times and places in steps do not
    count.

    A configuration too large to be sent shows as `config`, by its hash.
    """
    found = _different(_described(before), _described(after))
    configs = _different(_config(before), _config(after), "config.")
    hashes = before.versions.get(HASH), after.versions.get(HASH)
    if not configs and hashes[0] != hashes[1]:
        configs = [Change("config", f"hash {hashes[0]}", f"hash {hashes[1]}")]
    return [*found, *configs]


def _described(segment: Segment) -> dict[str, Any]:
    versions = {name: value for name, value in segment.versions.items() if name != HASH}
    return flat(
        {
            "topology": segment.topology,
            "versions": versions,
            "tokens_per_step": segment.tokens_per_step,
            "ramp": segment.ramp,
            "sample_rows": segment.sample_rows,
        }
    )


def _config(segment: Segment) -> dict[str, Any]:
    return {name: value for name, value in flat(segment.config).items() if not name.startswith(OWN)}


def _different(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> list[Change]:
    names = [*before, *(name for name in after if name not in before)]
    return [
        Change(f"{prefix}{name}", _short(before.get(name)), _short(after.get(name)))
        for name in names
        if before.get(name) != after.get(name)
    ]


def _short(value: Any) -> Any:
    text = str(value)
    return f"{text[:LONGEST]}…" if len(text) > LONGEST else value
