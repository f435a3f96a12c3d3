"""Name maps: what a trainer's own metrics are called here, and what has to be done to their values.

One data file for each trainer stands in names/. The map works on the writing thread, on numbers: a loop hands over its
own metrics as they are, and pays nothing for it.

    run = trainer_hooks.start("my-run", project="olmo3-7b", names="maxtext")
    run.log(step + 1, {"learning/lm_loss": loss, "learning/z_loss": z})    # stored as train/ce_loss and train/z_loss
"""

from __future__ import annotations

import ast
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from trainer_hooks.batches import TOKENS

FILES = Path(__file__).parent / "names"
MAX_OTHERS = 1_000  # names without an entry in one run, so that a thousand histograms leave room for the loss
MAX_PLANS = 1_000  # sets of names that are remembered
CANONICAL = re.compile(
    r"train/(ce_loss|z_loss|scored_tokens)|optim/(learning_rate|grad_norm|skipped)|heldout/[^/]+/ce_loss"
    r"|downstream/[^/]+/accuracy|throughput/(tokens_per_second_per_device|step_seconds)|data/.+"
)
_NODES = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.USub, ast.Constant, ast.Name)


@dataclass(frozen=True, slots=True)
class Entry:
    """One name, or pattern of names, and what it stands for.

    `value` is arithmetic over `x` (the trainer's value), the names of `uses` (other metrics of the same call) and the
    map's parameters; empty where the value stays as it is. An entry holds only where all that it uses is there.
    """

    name: str
    to: str
    value: str
    uses: Mapping[str, str]
    why: str
    pattern: re.Pattern[str]
    formula: CodeType | None

    def conversion(self) -> dict[str, str]:
        """What the segment declares of it: metric, from, formula in the trainer's own names, why."""
        terms = {"x": self.name, **self.uses}
        formula = re.sub(r"\b[a-z_]+\b", lambda found: terms.get(found[0], found[0]), self.value)
        return {"metric": self.to, "from": self.name, "formula": formula, "why": self.why}


Step = tuple[str, str, Entry | None, dict[str, str]]  # name, target, its entry, names of what it uses


@dataclass(frozen=True)
class NameMap:
    """The names of one trainer. `shift` and `eval_shift` are added to its steps, so that they count updates made."""

    trainer: str
    title: str
    entries: tuple[Entry, ...]
    parameters: Mapping[str, float]
    shift: int
    eval_shift: int
    steps: str

    def given(self, **parameters: float) -> NameMap:
        """The map with these of its parameters set, such as `accumulation`. Raises ValueError for one it lacks."""
        unknown = parameters.keys() - self.parameters.keys()
        if unknown:
            raise ValueError(f"the names of {self.title} have no parameter {', '.join(sorted(unknown))}")
        return replace(self, parameters={**self.parameters, **{k: float(v) for k, v in parameters.items()}})

    def plan(self, names: tuple[str, ...]) -> list[Step]:
        """What becomes of each of `names`, which came in one call. The entry that stands first in the map counts."""
        present = set(names)
        taken = {name for name in names if CANONICAL.fullmatch(name)}  # the loop's own word goes before the map
        steps: dict[str, Step] = {name: (name, name, None, {}) for name in names}
        for entry in self.entries:
            for name in names:  # names that are no text are refused later
                match = entry.pattern.fullmatch(name) if steps[name][2] is None and name not in taken else None
                if match is None:
                    continue
                groups = {key: re.sub(r"[-/]", "_", text) for key, text in match.groupdict().items()}
                uses = {key: used.format(**match.groupdict()) for key, used in entry.uses.items()}
                target = entry.to.format(**groups)
                if target not in taken and present.issuperset(uses.values()):
                    taken.add(target)
                    steps[name] = (name, target, entry, uses)
        return list(steps.values())

    def knows(self, names: Iterable[str]) -> bool:
        """Whether any of `names` is a metric of the map, or one of ours."""
        return any(CANONICAL.fullmatch(step[0]) or step[2] is not None for step in self.plan(tuple(names)))

    def declared(self) -> dict[str, Any]:
        """What the segment says of it: every conversion that may change a value, the steps, and the parameters.

        A conversion was made where a metric `raw` + `from` stands beside the converted one.
        """
        changed = [entry.conversion() for entry in self.entries if entry.value]
        return {
            "names": self.title,
            "steps": self.steps,
            "conversions": changed,
            "parameters": dict(self.parameters),
            "raw": f"raw/{self.trainer}/",
        }


class Translator:
    """Turns the values of one call. Used by one thread."""

    def __init__(self, names: NameMap) -> None:
        self.names = names
        self._plans: dict[tuple[str, ...], list[Step]] = {}
        self._others: set[str] = set()

    def __call__(self, values: dict[str, float], refuse: Callable[[str, str], None]) -> dict[str, float]:
        """`values` under our names: converted ones with the raw value beside them, unknown ones as they are.

        A formula that has no result (the logarithm of 0, a division by 0) gives NaN. Tokens, if the trainer counts
        them, come back as `axis/tokens`. What is beyond `MAX_OTHERS` unknown names goes to `refuse`.
        """
        key = tuple(values)
        plan = self._plans.get(key)
        if plan is None:
            plan = self.names.plan(key)
            if len(self._plans) < MAX_PLANS:
                self._plans[key] = plan
        found: dict[str, float] = {}
        for name, target, entry, uses in plan:
            if entry is None:
                if self._may_pass(name):
                    found[name] = values[name]
                else:
                    refuse("names", f"metric {name[:60]!r} is one more than {MAX_OTHERS:,} that no map names")
            elif entry.formula is None:
                found[target] = values[name]
            else:
                terms = {"x": values[name], **self.names.parameters, **{k: values[v] for k, v in uses.items()}}
                found[target] = _evaluate(entry.formula, terms)
                found[f"raw/{self.names.trainer}/{name}"] = values[name]
        return found

    def _may_pass(self, name: str) -> bool:
        if name not in self._others and not CANONICAL.fullmatch(name):
            if len(self._others) >= MAX_OTHERS:
                return False
            self._others.add(name)
        return True


def load(source: str | Path | NameMap) -> NameMap:
    """The map of a trainer (`maxtext`, …, a file of names/), or of a file of the same form.

    Raises ValueError that says what is wrong with the name or the file.
    """
    if isinstance(source, NameMap):
        return source
    path = Path(source) if str(source).endswith(".toml") else FILES / f"{source}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in FILES.glob("*.toml")))
        raise ValueError(f"there is no name map {str(source)!r:.80}; there are {known}, and files that end in .toml")
    try:
        return _read(path)
    except (KeyError, TypeError, AttributeError, SyntaxError, ValueError) as error:
        raise ValueError(f"the name map {path.name} is not valid: {error!r}") from error


@cache
def _read(path: Path) -> NameMap:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    parameters = {name: float(value) for name, value in content.get("parameters", {}).items()}
    entries = tuple(_entry(fields, parameters) for fields in content["metrics"])
    steps = content["steps"]
    return NameMap(path.stem, content["title"], entries, parameters, steps["train"], steps["eval"], steps["meaning"])


def _entry(fields: Mapping[str, Any], parameters: Iterable[str]) -> Entry:
    uses, value = fields.get("uses", {}), fields.get("value", "")
    formula = _formula(value, {"x", *uses, *parameters}) if value else None
    parts = re.split(r"\{(\w+)\}", fields["name"])
    pattern = "".join(f"(?P<{part}>.+?)" if i % 2 else re.escape(part) for i, part in enumerate(parts))
    to = TOKENS if fields["to"] == "tokens" else fields["to"]  # they place the point, and are no metric
    return Entry(fields["name"], to, value, uses, fields.get("why", ""), re.compile(pattern), formula)


def _formula(text: str, terms: set[str]) -> CodeType:
    """Compiles arithmetic over `terms`, and `log`. Raises ValueError for anything else."""
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "log"
        known = not isinstance(node, ast.Name) or node.id in terms or node.id == "log"
        if not (call or isinstance(node, (*_NODES, ast.Load))) or not known:
            raise ValueError(f"{text!r} is no arithmetic over {', '.join(sorted(terms))}")
    return compile(tree, "<name map>", "eval")


def _evaluate(formula: CodeType, terms: Mapping[str, float]) -> float:
    try:
        return float(eval(formula, {"__builtins__": {}, "log": math.log}, dict(terms)))
    except (ArithmeticError, ValueError):
        return math.nan
