"""The run's recipe beside the reference's: which entries are equal, which differ, which cannot be compared."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, cast

Same = Literal["same", "differs", "unknown"]

# Not of the recipe: what the data order is shows in the losses, and has a rule of its own.
ORDER = re.compile(r"(^|\.)(data_order|order(_seed)?|shuffle(_seed)?|seed)$")
LONGEST = 16  # entries of a list that have a name each: `betas[0]`
CLOSE = 1e-6  # relative: what a number loses when it is written down
SCHEDULE = "schedule"
# Which part of a recipe a declared deviation may name an entry's by, where it is not its first word.
ITEMS = {"data_order": "order", "model": "other"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the reference's recipe: its value there, the run's and the name it has there (None: not found)."""

    name: str
    reference: Any
    run: Any
    found_as: str | None
    same: Same

    @property
    def item(self) -> str:
        """The part of the recipe it is in, as declared deviations call it."""
        first = self.name.partition(".")[0]
        return ITEMS.get(first, first)


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested table by dotted names; lists are values."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found |= flat(cast("dict[str, Any]", value), f"{name}.")
        else:
            found[name] = value
    return found


def of_stage(recipe: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """A described recipe by dotted names, as it is in one stage: its table `stages` says what a stage has otherwise."""
    stages: Mapping[str, Any] = recipe.get("stages", {})
    return flat({key: value for key, value in recipe.items() if key != "stages"}) | flat(stages.get(stage, {}))


def compare(reference: Mapping[str, Any], config: Mapping[str, Any], declared: Mapping[str, Any]) -> list[Entry]:
    """Every entry of the reference's recipe beside the run's.

    `reference`: by dotted name. `config`: the trainer's own configuration, in which entries are looked for under their
    own name, then under the names trainers have for them (recipe_names.toml); its table `recipe`, where it has one, is
    looked in first. `declared`: what else the run declared (`data.rows`, …)."""
    own = flat(config)
    for key in [k for k, v in own.items() if isinstance(v, list | tuple)]:
        own |= {f"{key}[{i}]": one for i, one in enumerate(cast("Sequence[Any]", own[key])[:LONGEST])}
    recipe = {name.removeprefix("recipe."): value for name, value in own.items() if name.startswith("recipe.")}
    known = {name: value for name, value in own.items() if not name.startswith("recipe.")}
    entries: list[Entry] = []
    for name, value in reference.items():
        if ORDER.search(name):
            continue
        places = [(recipe, n, f"recipe.{n}") for n in (name,)] + [(declared, name, name)]
        places += [(known, n, n) for n in (name, *names_of(name))]
        hit = next(((table[n], label) for table, n, label in places if n in table and table[n] is not None), None)
        if hit is None:
            entries.append(Entry(name, value, None, None, "unknown"))
        else:
            entries.append(Entry(name, value, *hit, _same(value, hit[0])))
    return entries


@cache
def _aliases() -> dict[str, tuple[str, ...]]:
    text = resources.files("service.detect").joinpath("recipe_names.toml").read_text(encoding="utf-8")
    return {name: tuple(names) for name, names in tomllib.loads(text).items()}


def names_of(entry: str) -> Sequence[str]:
    """The names that trainers have for an entry of a recipe."""
    return _aliases().get(entry, ())


def _same(reference: Any, run: Any) -> Same:
    """Numbers and truth values are compared as such, lists entry by entry, words if they are written alike; words that
    are not may still mean the same."""
    if isinstance(reference, bool) or isinstance(run, bool):
        return "same" if reference is run else "differs"
    if isinstance(reference, int | float):
        number = _number(run)
        if number is None:
            return "unknown"
        return "same" if abs(number - reference) <= CLOSE * max(abs(number), abs(reference)) else "differs"
    if isinstance(reference, list) and isinstance(run, list | tuple):
        mine, theirs = cast("Sequence[Any]", run), cast("list[Any]", reference)
        if len(mine) != len(theirs):
            return "differs"
        each = {_same(a, b) for a, b in zip(theirs, mine, strict=True)}
        return "differs" if "differs" in each else "unknown" if "unknown" in each else "same"
    if isinstance(reference, str) and isinstance(run, str):
        if _words(reference) == _words(run):
            return "same"
        return "differs" if _is_name(reference) and _is_name(run) else "unknown"
    return "unknown"


def _number(value: Any) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def _words(text: str) -> str:
    return " ".join(text.casefold().split())


def _is_name(text: str) -> bool:
    """One name, hash or path, of which another spelling is another thing; not a description in words."""
    return bool(text) and not re.search(r"\s", text.strip())
