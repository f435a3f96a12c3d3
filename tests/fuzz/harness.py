"""One atheris harness: `python tests/fuzz/harness.py TARGET [libFuzzer's options]`. `make fuzz` runs them all."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["service.importers"]):
    from invariants import TARGETS, check_import, check_readers


def main() -> None:
    """Fuzz until libFuzzer's time is up; a finding ends the process with another status than 0."""
    target = sys.argv.pop(1)
    formats = TARGETS.get(target)

    def one(content: bytes) -> None:
        if formats is None:
            check_import(content)
        else:
            check_readers(content, formats)

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
