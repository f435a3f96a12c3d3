"""Which cause the whole engine names for each fault, and what it says of healthy runs: the confusion matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.detect_runs import rng_of
from benchmarks.detect_scenes import scene
from service.detect.engine import FAMILY_OF_RULE, evaluate
from service.detect.judgement import Cause, Judgement

WEIGHTS = ("shown", "likely", "possible")
# Beginnings of cause names -> what is named by them.
NAMES = (
    ("double shard", "double shard"), ("replay", "replay"), ("the loader reads the same rows", "replay"),
    ("every host", "every host the same"), ("sampling with replacement", "replacement"),
    ("repeated rows", "repeated rows"), ("natural twins", "twins"), ("correlated batches", "other order or mix"),
    ("another seed, mix", "other order or mix"), ("another loss definition", "loss definition"),
    ("z-loss is", "loss definition"), ("masked tokens", "loss definition"), ("the mean over", "loss definition"),
    ("another learning rate", "learning rate"), ("easier data", "gain"), ("a better optimizer", "gain"),
    ("harder data", "harder data"), ("training goes worse", "regression"), ("held-out text", "held-out text"),
    ("the set's documents", "held-out text"), ("evaluation rows are drawn", "held-out text"),
    ("the evaluation changed", "evaluation changed"), ("another evaluation set", "evaluation changed"),
    ("another mix of data, or", "evaluation changed"), ("memorization", "memorization"),
)  # fmt: skip
# Rules that say by themselves what it is, where no cause of the curve is named.
BY_RULE = {
    "non_finite": "non-finite", "throughput_changed": "throughput", "downstream": "accuracies",
    "evaluation_changed": "evaluation changed", "loss_spike": "spike",
}  # fmt: skip
# Faults that look alike from all that is sent: either name is right.
RIGHT = {
    "easier data": {"gain"}, "improvement": {"gain"}, "regression": {"regression", "harder data"},
    "train alone above": {"other order or mix", "harder data", "loss definition"},
    "other order or mix": {"other order or mix", "gain"},
}  # fmt: skip
SEVERAL = "several, none chosen"
# What a general answer leaves open: "training goes worse: optimizer, learning rate, data or a numerical fault".
GENERAL = {"regression": {"learning rate"}}


def named(judgements: Sequence[Judgement]) -> tuple[str, set[str]]:
    """What is named first, as a message of the alert would, and everything that is named with the same weight."""
    yes = [j for j in judgements if j.state == "yes" and j.rule != "data_order"]
    if not yes:
        return "quiet", {"quiet"}
    for rule in ("non_finite", "throughput_changed"):
        if all(j.rule == rule for j in yes) or (rule == "non_finite" and any(j.rule == rule for j in yes)):
            return BY_RULE[rule], {BY_RULE[rule]}
    causes: dict[str, Cause] = {}
    for judgement in yes:
        for cause in judgement.causes:
            held = causes.get(cause.name)
            if cause.weight in WEIGHTS and (
                held is None or WEIGHTS.index(cause.weight) < WEIGHTS.index(held.weight)
            ):  # fmt: skip
                causes[cause.name] = cause
    if not causes:
        return next((BY_RULE[j.rule] for j in yes if j.rule in BY_RULE), yes[0].rule), {yes[0].rule}
    best = min(WEIGHTS.index(c.weight) for c in causes.values())
    first = [_class_of(c.name) for c in causes.values() if WEIGHTS.index(c.weight) == best]
    distinct = list(dict.fromkeys(first))
    distinct = [kind for kind in distinct if kind not in GENERAL] or distinct
    if len(distinct) > 1 and WEIGHTS[best] != "shown":
        return SEVERAL, set(distinct)
    return distinct[0], set(distinct)


def _class_of(name: str) -> str:
    return next((kind for start, kind in NAMES if name.lower().startswith(start)), name)


def matrix(truth: str, count: int) -> tuple[str, Counter[str], int, int, Counter[str]]:
    """For one kind of run: what was named how often, how often rightly, how often the truth was among several with
    none chosen, and which rules said yes."""
    said: Counter[str] = Counter()
    rules: Counter[str] = Counter()
    right = among = 0
    accepted = RIGHT.get(truth, {truth})
    for i in range(count):
        judgements = evaluate(scene(rng_of(21, i, truth), truth).view)
        name, all_names = named(judgements)
        said[name] += 1
        for judgement in judgements:
            if judgement.state == "yes" and FAMILY_OF_RULE[judgement.rule] != "identity":
                rules[judgement.rule] += 1
        right += name in accepted
        among += (name == SEVERAL and bool(accepted & all_names)) or bool(accepted & GENERAL.get(name, set()))
    return truth, said, right, among, rules
