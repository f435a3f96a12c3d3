"""A small, valid bundle to change."""

from __future__ import annotations

from pathlib import Path

import pytest

TOML = """
slug = "small"
version = "1"
title = "A small run"
conflicts = ["two tables say different things"]

[source]
url = "https://example.org/small"
licence = "CC0-1.0"
citation = "Nobody, 2025"

[[stages]]
name = "stage1"
steps = 100
tokens_per_step = 512
series = "series/stage1.csv"

[[tasks]]
key = "arc"
items = 10
metric = "downstream/arc/accuracy"

[[heldout]]
name = "c4"
metric = "heldout/c4/ce_loss"
id = "c4-validation"
primary = true

[tolerance."train/ce_loss"]
value = 0.015
unit = "nats"
source = "assumed"
noise_sd = 0.02
window_steps = 50
"""

SERIES = """step,metric,value,segment
1,train/ce_loss,3.5,a
2,train/ce_loss,3.25,a
3,train/ce_loss,3.0,a
2,train/ce_loss,3.26,b
3,train/ce_loss,NaN,b
4,train/ce_loss,2.5,b
3,heldout/c4/ce_loss,4.0,a
"""

SEGMENTS = """stage,segment,launched,note
stage1,a,2025-07-21T06:03:59Z,
stage1,b,2025-07-22T06:03:59Z,restart
"""

SIBLING = """step,metric,value,segment
1,train/ce_loss,3.51,x
2,train/ce_loss,3.24,x
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The folder of a small bundle with an overlap, a NaN and a sibling."""
    folder = tmp_path / "small"
    for name, text in {
        "reference.toml": TOML,
        "series/stage1.csv": SERIES,
        "segments.csv": SEGMENTS,
        "siblings/seed-1.csv": SIBLING,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
