"""The loops of docs/adapters.md, run with the real Flax."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from adapter_spool import recorded

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"
LOOPS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("name", ["nnx", "linen"])
def test_a_loop_of_the_documentation(name: str, monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    (code,) = [loop for loop in LOOPS if f'start("{name}"' in loop]
    exec(compile(code, str(PAGE), "exec"), {"__name__": "example"})
    (segment,) = recorded(environment)
    assert segment.finished
    loss = segment.series("train/ce_loss")
    assert list(loss) == [1, 2, 3, 4, 5]
    assert loss[1] == pytest.approx(np.log(64), rel=0.1)  # before any update: as good as guessing
    assert segment.seen() == dict.fromkeys(range(1, 6), 8)
    assert segment.body["topology"]["device_kind"] == "cpu"
