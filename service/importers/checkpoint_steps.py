"""The step of a checkpoint from the name of a file, a folder or a revision."""

from __future__ import annotations

import re
from pathlib import Path

_NAMED = re.compile(r"(?:global[-_]?step|step|iteration|iter|checkpoint|ckpt)[-_=]?(\d{1,18})(?!\d)", re.IGNORECASE)


def step_in(text: str) -> int | None:
    """The last step a text names ("410m_step1000.json", "checkpoint-500", "stage1-step5000-tokens21B")."""
    found = _NAMED.findall(text)
    return int(found[-1]) if found else None


def step_of_file(path: Path) -> int | None:
    """The step a file's name tells, else the nearest folder's."""
    for name in (path.name, *(parent.name for parent in list(path.absolute().parents)[:3])):
        step = step_in(name)
        if step is not None:
            return step
    return None
