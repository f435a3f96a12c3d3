"""JSON lines: one object per step, as Pacenote names things or as W&B's history does."""

from __future__ import annotations

import json
import math
from typing import IO

from service.exporters.run_series import RunSeries


def write_jsonl(series: RunSeries, out: IO[bytes]) -> int:
    """One object per step: step, tokens, time (unix seconds; both where known) and every metric that has a value there.

    Returns the number of points. Non-finite values are the strings "NaN", "Infinity", "-Infinity".
    """
    return _write(series, out, "step", "time", "tokens")


def write_wandb(series: RunSeries, out: IO[bytes]) -> int:
    """The same under W&B's names: `_step` and `_timestamp`, as `run.scan_history()` gives rows; without tokens."""
    return _write(series, out, "_step", "_timestamp", None)


def _write(series: RunSeries, out: IO[bytes], step_name: str, time_name: str, tokens_name: str | None) -> int:
    count = 0
    for window in series.windows():
        for place, step in enumerate(window.steps):
            row: dict[str, object] = {step_name: step}
            tokens, time = window.tokens[place], window.times[place]
            if tokens_name is not None and tokens is not None:
                row[tokens_name] = int(tokens) if tokens.is_integer() else tokens
            if time is not None:
                row[time_name] = time
            values = window.rows[place]
            row |= {name: value if math.isfinite(value) else _named(value) for name, value in values.items()}
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
            count += len(values)
    return count


def _named(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
