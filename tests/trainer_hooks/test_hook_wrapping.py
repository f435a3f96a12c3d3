"""A wrapped loader hands on everything, and its rows are told at the step at which they are trained on."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hook_service import HookService

import trainer_hooks
from trainer_hooks.wrapping import REMEMBERED_STATES, wrap

FIVES = np.full((2, 4), 5)
pytestmark = pytest.mark.usefixtures("environment")


class Told:
    """Stands in for a run: what was told, and what was refused."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, list[int], int | None]] = []
        self.refused: list[str] = []

    def log_rows(self, step: Any, rows: Any, host: int | None = None) -> None:
        self.rows.append((step, np.asarray(rows)[:, 0].tolist(), host))

    def refuse(self, call: str, error: Exception) -> None:
        self.refused.append(f"{call}: {error}")

    def steps(self) -> dict[int, list[int]]:
        return {step: [row for at, rows, _ in self.rows if at == step for row in rows] for step, *_ in self.rows}


def wrapped(
    told: Told, source: Any, rows: Any = "inputs", *, host: int | None = None, first: int = 1, per_step: int = 1,
    ahead: int = 0,
) -> Any:  # fmt: skip
    return wrap(told, source, rows, host, first, per_step, ahead)


def batches(count: int = 6) -> Iterator[dict[str, np.ndarray]]:
    return iter({"inputs": np.full((2, 4), k), "targets": np.zeros((2, 4))} for k in range(count))


def test_every_batch_is_told_at_its_step() -> None:
    told = Told()
    read = list(wrapped(told, batches(), host=3, first=11))
    assert [batch["inputs"][0, 0] for batch in read] == list(range(6))
    assert told.rows == [(11 + k, [k, k], 3) for k in range(6)]


def test_accumulated_batches_are_of_one_step() -> None:
    told = Told()
    list(wrapped(told, batches(), per_step=3))
    assert told.rows == [(1, [0, 0, 1, 1, 2, 2], None), (2, [3, 3, 4, 4, 5, 5], None)]
    told = Told()
    list(wrapped(told, batches(5), per_step=3, ahead=3))  # the last step is cut short
    assert told.rows == [(1, [0, 0, 1, 1, 2, 2], None), (2, [3, 3, 4, 4], None)]
    told = Told()
    list(wrapped(told, iter([np.zeros((1, 4), int), np.ones((1, 8), int)]), per_step=2))
    assert told.rows == [(1, [0], None), (1, [1], None)]


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        (FIVES, "inputs"),
        ({"inputs": FIVES}, "inputs"),
        (([5], FIVES), lambda batch: batch[1]),
        (type("Batch", (), {"tokens": FIVES})(), "tokens"),
    ],
)
def test_rows_are_found_in_any_batch(batch: Any, rows: Any) -> None:
    told = Told()
    assert next(wrapped(told, iter([batch]), rows)) is batch
    assert told.rows == [(1, [5, 5], None)]


def test_what_was_pulled_ahead_and_never_trained_on_is_not_told() -> None:
    told = Told()
    loader = wrapped(told, batches(), ahead=2)
    for _ in range(5):
        next(loader)
    assert sorted(told.steps()) == [1, 2, 3]
    assert list(loader) != []
    assert sorted(told.steps()) == [1, 2, 3, 4, 5, 6]  # the source has ended: what is held is trained on


def test_a_loader_may_use_its_memory_again() -> None:
    told, memory = Told(), np.zeros((2, 4), int)

    def source() -> Iterator[np.ndarray]:
        for k in range(3):
            memory[:] = k
            yield memory

    list(wrapped(told, source(), ahead=1))
    assert told.steps() == {1: [0, 0], 2: [1, 1], 3: [2, 2]}


def test_epochs_of_a_loader_go_on_counting() -> None:
    told = Told()
    loader = wrapped(told, [{"inputs": np.full((1, 4), k)} for k in range(3)])
    assert len(loader) == 3
    assert [len(list(loader)), len(list(loader))] == [3, 3]
    assert told.steps() == {step: [(step - 1) % 3] for step in range(1, 7)}
    assert not hasattr(wrapped(told, batches()), "__len__")


def test_failures_do_not_reach_training() -> None:
    told = Told()
    assert len(list(wrapped(told, batches(), "tokens"))) == 6
    assert told.rows == []
    assert "name its tokens by rows=" in told.refused[0]
    assert len(list(wrapped(told, batches(), lambda batch: 1 / 0))) == 6

    def broken() -> Iterator[int]:
        yield from ()
        raise OSError("the disk")

    with pytest.raises(OSError, match="the disk"):  # the loader's own failures are the loop's
        next(wrapped(told, broken()))


def grain_iterator() -> Any:
    import grain

    source = grain.MapDataset.source(list(range(40))).shuffle(seed=3)
    return iter(source.map(lambda k: {"inputs": np.full(4, k)}).batch(2).to_iter_dataset())


def test_grain_keeps_its_state_and_its_class() -> None:
    import grain

    told = Told()
    loader = wrapped(told, grain_iterator(), first=101)
    assert isinstance(loader, grain.DatasetIterator)
    plain = grain_iterator()
    first = [next(loader)["inputs"][:, 0].tolist() for _ in range(5)]
    assert first == [next(plain)["inputs"][:, 0].tolist() for _ in range(5)]
    state = loader.get_state()
    assert state == plain.get_state()
    ahead = [next(loader)["inputs"][:, 0].tolist() for _ in range(2)]
    loader.set_state(state)  # a rewind: the same rows at the same steps again
    assert loader.step == 106
    assert [next(loader)["inputs"][:, 0].tolist() for _ in range(2)] == ahead
    assert [(step, rows) for step, rows, _ in told.rows[5:]] == [(106, ahead[0]), (107, ahead[1])] * 2
    assert told.refused == []

    # A new process: its state is of another one, and its first batch is that of the next step.
    resumed = wrapped(told, grain_iterator(), first=106)
    resumed.set_state(state)
    assert told.refused == []
    assert next(resumed)["inputs"][:, 0].tolist() == ahead[0]
    assert told.rows[-1][:2] == (106, ahead[0])
    other = grain_iterator()
    next(other)
    resumed.set_state(other.get_state())
    assert "set its `step`" in told.refused[-1]
    resumed.step = 300
    next(resumed)
    assert told.rows[-1][0] == 300


def test_copies_and_pickles_are_wrapped_too() -> None:
    run = trainer_hooks.start("run", project="p", strict=True)
    loader = run.wrap([np.zeros((1, 4), int)])
    for other in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
        assert len(list(other)) == 1
        assert "wrapped" in repr(other)
    run.finish()


def test_from_a_run_to_the_service(service: HookService) -> None:
    heldout = np.random.default_rng(1).integers(0, 9_000, (20, 500))
    read = np.random.default_rng(2).integers(0, 9_000, (12, 4, 512))
    read[7, 2, 50:450] = heldout[4, 100:]
    with trainer_hooks.start("run", project="p", start_step=30, sample_rows=1, heldout={"c4": heldout}) as run:
        for batch in run.wrap(iter({"tokens": batch} for batch in read), rows="tokens", host=2):
            assert batch["tokens"].shape == (4, 512)
    bodies = service.bodies("fingerprints")
    assert {body["kind"] for body in bodies} == {"rows", "windows", "heldout_hits"}
    assert {body["host"] for body in bodies} == {2}
    rows = [
        (step, text)
        for body in bodies
        if body["kind"] == "rows"
        for step, text in zip(body["steps"], body["hashes"], strict=True)
    ]
    assert [step for step, _ in rows] == [step for step in range(31, 43) for _ in range(4)]
    for kind in ("rows", "windows", "heldout_hits"):
        seen = [run_ for body in bodies if body["kind"] == kind for run_ in body["seen"]]
        assert sum((last - first + 1) * count for first, last, count in seen) == 48
    assert [step for body in bodies if body["kind"] == "heldout_hits" for step in body["steps"]] == [38]


def test_bad_arguments_are_counted_and_harmless(service: HookService) -> None:
    run = trainer_hooks.start("run", project="p", heldout={"c4": np.zeros((3, 40)), "": np.zeros((1, 99), int)})
    source = batches()
    assert run.wrap(source, ahead=-1) is source
    run.watch_heldout("padding", np.zeros((4, 900), int))
    counts = run.finish().counts
    assert counts["refused wrap"] == 1
    assert counts["refused watch_heldout"] == 3
    disabled = trainer_hooks.Run(None, run._tally, strict=True)
    disabled.watch_heldout("c4", np.zeros((4, 900), int))
    assert len(list(disabled.wrap(batches()))) == 6


class Stateful:
    """A loader whose state is the number of its next batch."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Stateful:
        return self

    def __next__(self) -> np.ndarray:
        self.at += 1
        return np.full((1, 4), self.at)

    def get_state(self) -> int:
        return self.at

    def set_state(self, state: int) -> None:
        self.at = state


def test_the_newest_states_are_remembered_and_older_ones_are_asked_for() -> None:
    told = Told()
    loader = wrapped(told, Stateful())
    states = []
    for _ in range(300):
        next(loader)
        states.append(loader.get_state())
    loader.set_state(states[300 - REMEMBERED_STATES])
    assert (loader.step, told.refused) == (302 - REMEMBERED_STATES, [])
    loader.set_state(states[299 - REMEMBERED_STATES])  # forgotten
    assert "set its `step`" in told.refused[-1]
    assert REMEMBERED_STATES == 256


@pytest.mark.parametrize("wrong", [(1, 0, 0), (1, 1, -1), (-1, 1, 0)])
def test_counts_that_cannot_be_are_refused(wrong: tuple[int, int, int]) -> None:
    first, per_step, ahead = wrong
    with pytest.raises(ValueError, match="wrap needs batches_per_step ≥ 1, ahead ≥ 0, step ≥ 0"):
        wrap(Told(), batches(), "inputs", None, first, per_step, ahead)
