"""The peak of a device, from its kind."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Peak:
    """Dense bfloat16 peak of one JAX device, in TFLOP/s; `devices` of them are one chip. `source` is who states it."""

    name: str
    tflops: float
    devices: int
    source: str


def peak(device_kind: str | None) -> Peak | None:
    """The peak of a device kind as JAX spells it; None where it is not in peaks.toml."""
    return next((found for kinds, found in _table() if device_kind and kinds.fullmatch(device_kind)), None)


@cache
def _table() -> tuple[tuple[re.Pattern[str], Peak], ...]:
    text = resources.files("service.hardware").joinpath("peaks.toml").read_text(encoding="utf-8")
    return tuple(
        (
            re.compile("|".join(row["kinds"]), re.IGNORECASE),
            Peak(row["name"], row["tflops"] / row["devices"], row["devices"], row["source"]),
        )
        for row in tomllib.loads(text)["device"]
    )
