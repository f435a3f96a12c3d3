"""What one start of a training process is: its id, its place among other processes, and the body that describes it."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from trainer_hooks.jsonable import jsonable
from trainer_hooks.values import as_float, as_integer, is_device_array

KINDS = ("trainer", "evaluator", "import")
CONFIG_BYTES = 2**20
NAME_BYTES = 256
REPORTED_MODULES = ("jax", "jaxlib", "flax", "optax", "grain", "orbax.checkpoint", "numpy", "torch", "maxtext")
_RANKS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))


class Place(NamedTuple):
    """This process among those of the launch; `jax` is the module if its devices may be asked for."""

    process: int
    processes: int
    jax: Any = None


def find_place() -> Place:
    """Asks jax if it is imported and initialised (asking earlier would initialise it), else the launcher's variables.

    Those count only with PACENOTE_LAUNCH_ID, which says that several processes are one launch.
    """
    jax = sys.modules.get("jax")
    bridge = sys.modules.get("jax._src.xla_bridge")
    try:
        distributed = getattr(getattr(jax, "distributed", None), "is_initialized", None)
        ready = bridge is not None and bridge.backends_are_initialized()
        if jax is not None and (ready or (distributed is not None and distributed())):
            return Place(jax.process_index(), jax.process_count(), jax)
    except Exception:  # another version of jax than these names are from: a launch without devices
        pass
    if os.environ.get("PACENOTE_LAUNCH_ID"):
        for rank, size in _RANKS:
            if os.environ.get(rank, "").isdigit():
                processes = os.environ.get(size, "")
                return Place(int(os.environ[rank]), int(processes) if processes.isdigit() else 1)
    return Place(0, 1)


def topology(place: Place, mesh: Any = None, batch_shape: Any = None) -> dict[str, Any]:
    """Hosts, processes and devices of the launch; devices are null where jax is not initialised.

    `mesh`: a jax mesh, or axis -> devices; `batch_shape`: of the global batch. Raises ValueError for anything else.
    """
    found: dict[str, Any] = {"hosts": place.processes, "processes": place.processes}
    found.update(devices=None, device_kind=None)
    if place.jax is not None:
        devices = place.jax.devices()
        found["devices"] = len(devices)
        found["local_devices"] = place.jax.local_device_count()
        found["device_kind"] = str(devices[0].device_kind)
        found["platform"] = str(devices[0].platform)
    if mesh is not None:
        found["mesh"] = {str(axis): _whole("mesh", size) for axis, size in dict(getattr(mesh, "shape", mesh)).items()}
    if batch_shape is not None:
        found["batch_shape"] = [_whole("batch_shape", size) for size in batch_shape]
    return found


def versions() -> dict[str, str]:
    """Versions of Python and of those libraries that are loaded, and the commit of the working directory."""
    from trainer_hooks import __version__

    found = {"python": platform.python_version(), "trainer_hooks": __version__}
    for name in REPORTED_MODULES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = version
    commit = git_commit(Path.cwd())
    if commit:
        found["commit"] = commit
    return found


def git_commit(folder: Path) -> str:
    """The commit checked out around `folder`, read from .git without running git; empty if there is none."""
    try:
        root = next((f for f in (folder, *folder.parents) if (f / ".git").is_dir()), None)
        if root is None:
            return ""
        head = (root / ".git" / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        ref = head.removeprefix("ref: ")
        if (root / ".git" / ref).is_file():
            return (root / ".git" / ref).read_text().strip()
        packed = (root / ".git" / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {ref}")), "")
    except (OSError, ValueError):
        return ""


def describe(
    name: str,
    *,
    project: str | None,
    reference: str | None,
    stage: str,
    kind: str,
    start_step: Any,
    start_tokens: Any,
    tokens_per_step: Any,
    forked_from: tuple[str, int] | None,
    config: Any,
    data: Mapping[str, Any] | None,
    sample_rows: Any,
    place: Place,
    mesh: Any = None,
    batch_shape: Any = None,
    names: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The wire body of a segment but for `sent_at`. Raises ValueError or TypeError that names a bad argument."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    steps, ramp = _tokens_per_step(tokens_per_step)
    plain, digest = _config(config)
    if names is not None:
        plain["trainer_hooks"] = dict(names)
    return {
        # Process 0 speaks for the launch: the body is the same whichever process sends it.
        "process": 0,
        "seq": 0,
        "project": _text("project (or PACENOTE_PROJECT)", project or os.environ.get("PACENOTE_PROJECT")),
        "run": _text("the run's name", name),
        "role": "reproduction",
        "reference": None if reference is None else _text("reference", reference),
        "stage": _text("stage", stage),
        "kind": kind,
        "start_step": _whole("start_step", start_step),
        "start_tokens": None if start_tokens is None else _whole("start_tokens", start_tokens),
        "tokens_per_step": steps,
        "ramp": ramp,
        "forked_from": None if forked_from is None else _fork(forked_from),
        "topology": topology(place, mesh, batch_shape),
        "config": plain,
        "versions": versions() | {"config_hash": digest},
        "data": None if data is None else _data(data),
        "sample_rows": _whole("sample_rows", sample_rows, at_least=1),
        "started_at": time.time(),
    }


def _config(config: Any) -> tuple[dict[str, Any], str]:
    """The configuration, and a hash of it that also tells configurations apart that are too large to be sent.

    Always an object on the wire: what is none is the value of one. The hash is BLAKE2b of 8 bytes over its JSON, keys
    sorted.
    """
    found: Any = {} if config is None else jsonable(config, sys.maxsize)
    text = json.dumps(found, sort_keys=True, separators=(",", ":"))
    if len(text) > CONFIG_BYTES:
        found = f"left out: {len(text):,} bytes of JSON"
    plain = dict(cast("dict[str, Any]", found)) if isinstance(found, dict) else {"value": found}
    return plain, hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{what} must be a name, not {value!r:.60}")
    # A lone surrogate raises UnicodeEncodeError, a ValueError. The service would refuse the whole run for the others.
    if len(value.encode()) > NAME_BYTES or "\0" in value:
        raise ValueError(f"{what} must be at most {NAME_BYTES} bytes without NUL, not {value!r:.60}")
    return value


def _whole(what: str, value: Any, at_least: int = 0) -> int:
    if is_device_array(value):  # a state's step counter; at a start there is time to wait for it
        value = value.item()
    number = as_integer(value)
    if isinstance(value, bool) or number < at_least:
        raise ValueError(f"{what} must be a whole number ≥ {at_least}, not {value!r}")
    return number


def _tokens_per_step(value: Any) -> tuple[int | None, list[list[int]] | None]:
    """(tokens per step, None), or (None, ramp) for a sequence of (from_step, tokens_per_step)."""
    if value is None:
        return None, None
    if not isinstance(value, Sequence):
        return _whole("tokens_per_step", value, at_least=1), None
    ramp = [
        [_whole("a ramp's step", step), _whole("a ramp's tokens_per_step", tokens, at_least=1)]
        for step, tokens in cast("Sequence[tuple[Any, Any]]", value)
    ]
    if not ramp or any(later[0] <= earlier[0] for earlier, later in itertools.pairwise(ramp)):
        raise ValueError("a ramp of tokens_per_step must be (from_step, tokens_per_step) pairs in order of step")
    return None, ramp


def _fork(value: tuple[str, int]) -> dict[str, Any]:
    run, step = value
    return {"run": _text("forked_from's run", run), "step": _whole("forked_from's step", step)}


def _data(value: Mapping[str, Any]) -> dict[str, Any]:
    epochs = as_float(value.get("epochs", 1))
    if set(value) - {"rows", "epochs"} or not 0 < epochs < float("inf"):
        raise ValueError(
            f'data must be {{"rows": rows in the data set, "epochs": passes over it}}, not {dict(value)!r}'
        )
    return {"rows": _whole("data's rows", value["rows"], at_least=1), "epochs": epochs}
