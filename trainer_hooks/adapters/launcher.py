"""The command line of launchers: `python -m trainer_hooks.adapters.<trainer> [options] -- <its own arguments>`."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import Any


def parse(trainer: str, argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Arguments for `start`, and what stands after `--`. Ends the process with a message where that is missing."""
    parser = argparse.ArgumentParser(
        prog=f"python -m trainer_hooks.adapters.{trainer}", usage=f"%(prog)s [options] -- <{trainer} arguments>"
    )
    parser.add_argument("--project", help="project of the run (default: PACENOTE_PROJECT)")
    parser.add_argument("--name", help="name of the run (default: the trainer's own)")
    parser.add_argument("--reference", help="slug of the published run that it reproduces")
    parser.add_argument("--stage", help="stage of the training (default: stage1)")
    parser.add_argument("--rows", type=int, help="rows in the data set, for coverage")
    parser.add_argument("--epochs", type=float, default=1.0, help="passes over the data that are meant (default: 1)")
    parser.add_argument("--sample-rows", type=int, help="one row hash in so many is sent (default: 1024)")
    own = list(argv)
    cut = own.index("--") if "--" in own else len(own)
    options = vars(parser.parse_args(own[:cut]))
    if cut + 1 >= len(own):
        parser.error(f"the arguments of {trainer} are missing: give them after --")
    rows, epochs = options.pop("rows"), options.pop("epochs")
    found = {name: value for name, value in options.items() if value is not None}
    return found | ({"data": {"rows": rows, "epochs": epochs}} if rows else {}), own[cut + 1 :]


def first_of(*modules: str) -> Any:
    """The first of `modules` that there is. Raises ImportError that names them all; what fails inside one is raised."""
    for name in modules:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    raise ImportError(f"there is none of {', '.join(modules)}: is the trainer installed?")
