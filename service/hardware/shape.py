"""The shape of a model, from the configuration that its trainer sent. What is not there is never guessed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, cast

from service.hardware.flops import NotCountedError, Shape

NUMBERS = ("d_model", "d_hidden", "n_layers", "n_heads", "vocab_size")
OWN = "trainer_hooks."  # what the hook wrote into the configuration
MOST_LAYERS = 10_000


def shape_of(config: Mapping[str, Any], batch_shape: Sequence[Any] | None = None) -> Shape:
    """The shape that a trainer's configuration describes; rows are as long as `batch_shape` (rows, length) says, else
    as the configuration does.

    Heads for keys and values that are not given are as many as query heads, and a head's width is d_model / heads, as
    every trainer has it. Raises NotCountedError that names what is missing or stands in the way.
    """
    entries = {name: value for name, value in flat(config).items() if value is not None and not name.startswith(OWN)}
    if not entries:
        raise NotCountedError("the trainer sent no configuration, so the model's shape is not known")
    _refuse_what_is_not_plain(entries)
    found = {key: _number(entries, key) for key in NUMBERS}
    missing = [key for key in NUMBERS if found[key] is None]
    if missing:
        names = "; ".join(f"{key} ({', '.join(_names()[key][:3])})" for key in missing)
        raise NotCountedError(f"the configuration lacks {names}")
    d_model, d_hidden, n_layers, n_heads, vocab_size = (cast("int", found[key]) for key in NUMBERS)
    if n_layers > MOST_LAYERS:
        raise NotCountedError(f"{n_layers} layers are more than any model has")
    head_dim = _number(entries, "head_dim")
    if head_dim is None and d_model % n_heads:
        raise NotCountedError(f"d_model {d_model} is no multiple of {n_heads} heads, and head_dim is not given")
    row_length = _row_length(batch_shape) or _number(entries, "row_length")
    if row_length is None:
        raise NotCountedError("the length of a row is not known: start the run with batch_shape=(rows, length)")
    kind, matrices = _mlp(entries)
    return Shape(
        d_model=d_model,
        d_hidden=d_hidden,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=_number(entries, "n_kv_heads") or n_heads,
        head_dim=head_dim or d_model // n_heads,
        vocab_size=vocab_size,
        mlp_matrices=matrices,
        row_length=row_length,
        windows=_windows(entries, kind, n_layers),
    )


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested table by dotted names; lists are values."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= flat(cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


@cache
def _data() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files("service.hardware").joinpath("shape_names.toml").read_text(encoding="utf-8"))


def _names() -> dict[str, list[str]]:
    return _data()["names"]


def _values(entries: Mapping[str, Any], name: str) -> list[Any]:
    """The different values of the entries whose dotted name is `name` or ends in it."""
    found: list[Any] = []
    for entry, value in entries.items():
        if (entry == name or entry.endswith(f".{name}")) and value not in found:
            found.append(value)
    return found


def _value(entries: Mapping[str, Any], key: str) -> Any:
    """What the first of a key's names says; None without one."""
    for name in _names()[key]:
        found = _values(entries, name)
        if len(found) > 1:
            raise NotCountedError(f"{name} has several values in the configuration: {found[0]!r}, {found[1]!r}")
        if found:
            return found[0]
    return None


def _number(entries: Mapping[str, Any], key: str) -> int | None:
    value = _value(entries, key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 1:
        raise NotCountedError(f"{key} is {value!r:.40}, which is no positive whole number")
    return int(value)


def _row_length(batch_shape: Sequence[Any] | None) -> int | None:
    return (
        int(batch_shape[1]) if batch_shape is not None and len(batch_shape) == 2 and int(batch_shape[1]) > 0 else None
    )


def _refuse_what_is_not_plain(entries: Mapping[str, Any]) -> None:
    for name, harmless in _data()["plain"].items():
        odd = [value for value in _values(entries, name) if value not in harmless]
        if odd:
            raise NotCountedError(f"{name} = {odd[0]!r:.40}: only dense decoders are counted")
    if "mla" in _values(entries, "attention_type"):
        raise NotCountedError("attention_type = 'mla': only multi-head and grouped-query attention are counted")
    moe = next((name for name in entries if "feed_forward_moe." in name), None)
    if moe:
        raise NotCountedError(f"{moe}: only dense decoders are counted")


def _mlp(entries: Mapping[str, Any]) -> tuple[str, int]:
    """The kind of model, and how many matrices its MLP has."""
    kind = str(_value(entries, "kind") or "").rpartition(".")[2].lower()
    activations = _values(entries, "mlp_activations")
    if len(activations) == 1 and isinstance(activations[0], list):  # MaxText: one matrix in for each, and one out
        return kind, len(cast("list[Any]", activations[0])) + 1
    gated = _values(entries, "gated")
    if len(gated) == 1 and isinstance(gated[0], bool):
        return kind, 3 if gated[0] else 2
    if kind not in _data()["gated"]:
        said = f"model kind {kind!r} is not known here" if kind else "the configuration names no model kind"
        raise NotCountedError(f"{said}, so whether its MLP is gated is not known (set model.gated to true or false)")
    return kind, 3


def _windows(entries: Mapping[str, Any], kind: str, n_layers: int) -> tuple[int | None, ...] | None:
    """What each layer attends to; None where there is a window and no saying which layers use it."""
    full: tuple[int | None, ...] = (None,) * n_layers
    patterns = _values(entries, "sliding_window.pattern")
    if patterns:
        return _olmo_core(entries, patterns[0], n_layers) if len(patterns) == 1 else None
    window = _window(entries)
    if window is None:
        return full
    types = _values(entries, "layer_types")
    if types:
        listed = cast("list[Any]", types[0]) if isinstance(types[0], list) else []
        known = len(types) == 1 and len(listed) == n_layers and set(listed) <= {"sliding_attention", "full_attention"}
        return tuple(window if kind == "sliding_attention" else None for kind in listed) if known else None
    if True in _values(entries, "use_sliding_window"):
        return None
    windowed = "all" if "local_sliding" in _values(entries, "attention_type") else _data()["gated"].get(kind)
    if isinstance(windowed, int):
        return tuple(None if layer % windowed == windowed - 1 else window for layer in range(n_layers))
    return {"all": (window,) * n_layers, "none": full}.get(str(windowed))


def _window(entries: Mapping[str, Any]) -> int | None:
    value = _value(entries, "window")
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _olmo_core(entries: Mapping[str, Any], pattern: Any, n_layers: int) -> tuple[int | None, ...] | None:
    """OLMo-core's SlidingWindowAttentionConfig: a pattern over the layers (-1: full), its two ends forced to full."""
    if not isinstance(pattern, list) or not pattern:
        return None
    sizes = [int(size) for size in cast("list[Any]", pattern)]
    first = _values(entries, "sliding_window.force_full_attention_on_first_layer") != [False]
    last = _values(entries, "sliding_window.force_full_attention_on_last_layer") != [False]
    windows: list[int | None] = []
    for layer in range(n_layers):
        forced = (first and layer == 0) or (last and layer == n_layers - 1)
        size = sizes[(layer - first) % len(sizes)]
        windows.append(None if forced or size < 0 else size)
    return tuple(windows)
