"""Puts the package, which stands two folders above, into the wheel; an editable install only points to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class HooksBuildHook(BuildHookInterface):
    """Not in the project file: what is force-included there is copied by editable installs too, and grows old."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"][str(Path(self.root, "..", "..", "trainer_hooks").resolve())] = "trainer_hooks"
