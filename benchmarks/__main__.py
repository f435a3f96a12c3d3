"""`python -m benchmarks [NAME …]`: the named benchmarks in turn; without a name, what the service and the hook cost."""

from __future__ import annotations

import importlib
import sys

USUAL = ("hooks", "store")
NAMES = ("hooks", "store", "detect", "signature", "bank", "importers", "live", "soak", "web")


def main() -> int:
    """Run each benchmark in this process; the status of the worst one."""
    arguments = sys.argv[1:]
    names = [argument for argument in arguments if argument in NAMES] or list(USUAL)
    options = [argument for argument in arguments if argument not in NAMES]
    statuses = [int(importlib.import_module(f"benchmarks.{name}").main(options) or 0) for name in names]
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())
