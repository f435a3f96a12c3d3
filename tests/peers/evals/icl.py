"""AI2's own in-loop evaluation on the logits of the fake model: what ours has to equal.

Run as a script, it writes the golden files anew: `python tests/peers/evals/icl.py`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "trainer_hooks")]

import evals_fakes as fakes  # noqa: E402
import jax  # noqa: E402
import torch  # noqa: E402
from olmo_eval import HFTokenizer, ICLMetric, build_task  # noqa: E402

from trainer_hooks.evals import EIGHT_TASKS, Task, task_keys  # noqa: E402
from trainer_hooks.evals.tasks import Choice, Sizes  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "evals"
# Key and metric type. The eight, and each other kind of request there is.
SCORED = (
    *((key, "acc") for key in EIGHT_TASKS),
    *((key, "len_norm") for key in EIGHT_TASKS),
    ("arc_challenge_test_rc_5shot", "len_norm"),
    ("hellaswag_rc_5shot", "len_norm"),
    ("winogrande_val_rc_5shot", "len_norm"),  # contexts differ between choices, continuations do not
    ("copycolors_10way_fast", "acc"),  # ten choices in one pass
    ("copycolors_10way", "acc"),
    ("mmlu_stem_val_mc_5shot_fast", "len_norm"),
    ("mmlu_stem_val_rc_5shot", "len_norm"),
    ("mmlu_humanities_val_rc_var", "len_norm"),
    ("hellaswag_bpb_5shot", "bpb"),
    ("codex_humaneval_gold_bpb_3shot", "bpb"),  # hundreds of tokens scored
    ("lambada_bpb_0shot", "bpb"),  # labels are texts
    ("mmlu_stem_val_bpb_5shot", "bpb"),
    ("hellaswag_bpb_5shot", "ce_loss"),
)
ENCODER = HFTokenizer(fakes.TOKENIZER, pad_token_id=1, eos_token_id=50279)
_hidden = jax.jit(fakes.hidden)


@dataclass
class Icl:
    """What ICLMetric says of one task: `choices` (n,) log-likelihoods in the order of items and choices."""

    metrics: dict[str, float]
    choices: np.ndarray
    correct: np.ndarray | None


class Logits:
    """Stands where ICLMetric indexes `logits[row][from:to]`; the head is applied where it is asked for.

    The same float32 numbers as the whole array (rows, length, vocabulary), which would not fit.
    """

    def __init__(self, rows: np.ndarray, head: torch.Tensor) -> None:
        self._rows = torch.from_numpy(rows)
        self._head = head

    def __getitem__(self, row: int) -> Any:
        return _Row(self._rows[row], self._head)


class _Row:
    def __init__(self, row: torch.Tensor, head: torch.Tensor) -> None:
        self._row, self._head = row, head

    def __getitem__(self, positions: slice) -> torch.Tensor:
        return self._row[positions] @ self._head


def dataset(key: str, context_length: int = 2048) -> Any:
    """AI2's data set of a task, samples in its order."""
    return build_task(key, ENCODER, model_ctx_len=context_length)


def task_of(key: str, data: Any) -> Task:
    """The package's own samples of a task, in our form."""
    documents = {d: i for i, d in enumerate(sorted({s["doc_id"] for s in data.samples}))}
    found: dict[tuple[int, int], Choice] = {}
    answers: dict[int, int] = {}
    for sample in data.samples:
        item = documents[sample["doc_id"]]
        answers.setdefault(item, sample["label_id"])
        sizes = Sizes(
            sample["cont_str_len_no_leading_space"],
            sample["cont_byte_len_no_leading_space"],
            sample["cont_str_len"],
            sample["cont_byte_len"],
        )
        context = np.array(sample["ctx"], np.int32)
        several = [[token] for token in sample["choices"]] if data.fast_mc else [sample["continuation"]]
        for choice, continuation in enumerate(several, start=sample["cont_id"]):
            tokens = np.array(continuation, np.int32)
            found.setdefault((item, choice), Choice(item, choice, context, tokens, sizes))
    ordered = tuple(found[place] for place in sorted(found))
    return Task(key, data.metric_type, ordered, np.array([answers[i] for i in range(len(documents))]), data.fast_mc)


def score(data: Any, metric_type: str, weights: dict[str, np.ndarray], every: int = 1, batch: int = 16) -> Icl:
    """ICLMetric over the items 0, every, … of a data set."""
    documents = {d: i for i, d in enumerate(sorted({s["doc_id"] for s in data.samples}))}
    samples = sorted((s for s in data.samples if documents[s["doc_id"]] % every == 0), key=lambda s: len(s["query"]))
    metric = ICLMetric(metric_type)
    head = torch.from_numpy(weights["head"])
    for start in range(0, len(samples), batch):
        collated = data.collate_fn(samples[start : start + batch])
        states = np.array(_hidden(weights, collated["input_ids"].numpy()))
        metric.update(collated, Logits(states, head))
    found: dict[tuple[int, int], float] = {}
    for document, choice, value in metric.loglikelihoods:
        found.setdefault((document, choice), value)
    correct = None
    if metric_type in ("acc", "len_norm"):
        labels = {document: label for document, _, label in metric.labels}
        best = _best(found, labels)
        correct = np.array([best[d] == labels[d] for d in sorted(labels)])
    computed = {name: float(value) for name, value in metric.compute().items()}
    return Icl(computed, np.array([found[key] for key in sorted(found)], np.float32), correct)


def _best(found: dict[tuple[int, int], float], labels: dict[int, int]) -> dict[int, int]:
    rows: dict[int, list[float]] = {d: [] for d in labels}
    for document, choice in sorted(found):
        rows[document].append(found[document, choice])
        assert len(rows[document]) == choice + 1
    return {document: int(torch.tensor(values).argmax()) for document, values in rows.items()}


def write_metrics() -> None:
    """`icl_metric.json`, and `icl_metric.npz` with the log-likelihoods."""
    weights, summary, arrays = fakes.weights(), {}, {}
    for key, metric_type in SCORED:
        result = score(dataset(key), metric_type, weights, fakes.EVERY)
        name = f"{key} {metric_type}"
        summary[name] = {"metrics": result.metrics}
        if result.correct is not None:
            summary[name]["correct"] = "".join("01"[int(c)] for c in result.correct)
        arrays[name.replace(" ", "__")] = result.choices
        print(name, result.metrics, flush=True)
    (GOLDEN / "icl_metric.json").write_text(json.dumps(summary, indent=1) + "\n")
    np.savez_compressed(GOLDEN / "icl_metric.npz", **arrays)


def write_samples() -> None:
    """`samples.json`; takes half an hour, since the package goes over all samples for every item of the fast form."""
    samples = {key: task_of(key, dataset(key)).eval_set_id for key in task_keys()}
    (GOLDEN / "samples.json").write_text(json.dumps(samples, indent=1) + "\n")


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    write_metrics()
    write_samples()
