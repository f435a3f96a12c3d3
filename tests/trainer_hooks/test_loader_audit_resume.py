"""The cause that an audit names where a resume re-reads or skips rows, and that it names none where it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grain
import grain_loaders as loaders
import numpy as np
import pytest

from trainer_hooks.loader_audit import Pass, audit

ROWS = loaders.ROWS
ONE_STATE = "state of one host used on another host count"
UNIT = "step offset in the wrong unit"


def resumed(make: Callable[..., Any], hosts: int, new_hosts: int, step: int = 5, **arguments: Any) -> Pass:
    arguments = {"workers": [0], "records": ROWS, **arguments}
    report = audit(make, hosts=[hosts], resume_at=step, resume_hosts=[new_hosts], **arguments)
    _, found = report.passes
    assert found.resumed_from == (hosts, arguments["workers"][0], step)
    return found


def names(found: Pass) -> list[str]:
    return [cause.name for cause in found.causes]


@pytest.mark.parametrize(
    ("make", "hosts", "new_hosts"),
    [
        (partial(loaders.loader_by_state, where="sampler"), 4, 4),
        (loaders.loader_by_state, 4, 4),
        (loaders.by_state, 4, 4),
        (loaders.by_state, 4, 1),
        (loaders.by_state, 4, 2),
        (loaders.by_state, 4, 8),
        (partial(loaders.by_state, first=True), 4, 4),
        (loaders.elastic, 4, 4),
        (loaders.elastic, 4, 1),
        (loaders.elastic, 4, 2),
        (loaders.elastic, 4, 8),
        (loaders.mended, 4, 4),
        (loaders.mended, 16, 4),  # on a slice a quarter of the size, with the same global batch
        (partial(loaders.incident, shards=False), 4, 4),
    ],
)
def test_exact(make: Callable[..., Any], hosts: int, new_hosts: int) -> None:
    found = resumed(make, hosts, new_hosts)
    assert found.ok
    assert (found.twice, found.never, found.distinct) == (0, 0, ROWS)


def test_the_state_of_the_last_host_is_exact_where_the_first_ones_is_not() -> None:
    for new_hosts in (1, 2, 8):
        found = resumed(loaders.loader_by_state, 4, new_hosts)
        assert names(found) == [ONE_STATE]
        assert (found.twice, found.never) == (3, 3)
        assert resumed(loaders.loader_by_state, 4, new_hosts, state_host=-1).ok


@pytest.mark.parametrize(
    ("new_hosts", "twice", "never"), [(1, 120, 0), (2, 80, 0), (8, 0, 160)]
)  # five steps instead of ten: half of what was measured
def test_the_batch_of_a_host_is_kept_so_the_global_one_is_not(new_hosts: int, twice: int, never: int) -> None:
    found = resumed(partial(loaders.by_state, total=None), 4, new_hosts)
    assert names(found) == ["global batch changed on resume"]
    assert (found.twice, found.never) == (twice, never)


def test_slice_before_shuffle_on_another_host_count() -> None:
    for hosts, new_hosts in ((4, 1), (4, 2), (4, 8), (1, 4)):
        found = resumed(partial(loaders.by_state, first=True), hosts, new_hosts)
        assert names(found) == ["slice before shuffle"]
        assert found.twice == found.never > 0.1 * ROWS


@pytest.mark.parametrize("new_hosts", [1, 2, 8])
def test_a_state_that_is_refused_is_said_with_the_refusal(new_hosts: int) -> None:
    found = resumed(partial(loaders.loader_by_state, where="sampler"), 4, new_hosts)
    assert names(found) == ["state refused"]
    assert "Sampler in checkpoint does not match" in found.causes[0].because


def test_blocks_of_other_hosts_are_other_blocks() -> None:
    found = resumed(partial(loaders.incident, shards=False, total=64), 16, 4, step=4)
    assert names(found) == ["a block of rows per host"]
    assert found.twice == found.never == ROWS // 4  # as measured: a quarter read twice, a quarter never


def test_the_incident_is_two_causes_at_once() -> None:
    found = resumed(loaders.incident, 4, 4)
    assert names(found) == [UNIT, "sharded in source and loader"]
    assert "1/4 of where it should, and 4 is the number of hosts" in found.causes[0].because


@pytest.mark.parametrize(
    ("make", "step", "cause"),
    [
        (partial(loaders.mended, unit="host"), 4, UNIT),  # also a skip that is divided by the ranks
        (partial(loaders.mended, unit="steps"), 4, UNIT),
        (partial(loaders.incident, shards=False, off_by=-1), 5, "resumes batches early"),
        (partial(loaders.incident, shards=False, off_by=1), 5, "resumes batches late"),
        (partial(loaders.incident, shards=False, off_by=-100), 5, "position not restored"),
    ],
)
def test_where_it_goes_on(make: Callable[..., Any], step: int, cause: str) -> None:
    found = resumed(make, 4, 4, step)
    assert names(found) == [cause]
    assert found.twice == found.never > 0
    if "batches" in cause:  # of a second epoch some rows are by chance those that were left out
        assert 28 <= found.never <= 32


# --- workers: threads of Grain that take shares as its processes do, and at last the processes ---


def whole(process_index: int, process_count: int) -> grain.MapDataset:
    return loaders.mapped(loaders.Source()).shuffle(seed=3)[process_index::process_count]


def test_the_last_batch_of_each_worker() -> None:
    make = loaders.threaded(whole, batch=12)
    one, two, three = audit(make, hosts=[4], workers=[0, 2, 3], records=ROWS).passes
    assert one.ok
    assert one.dropped == one.never == ROWS - 4 * 120
    assert names(two) == []  # 10 batches of a host are 5 and 5
    assert names(three) == ["last batch dropped per worker"]  # 3, 3 and 3
    assert (two.read, three.read) == (4 * 120, 4 * 108)
    assert audit(loaders.threaded(whole, drop=False, batch=12), hosts=[4], workers=[0, 3], records=ROWS).ok


def test_a_resume_by_step_inside_a_round_of_workers() -> None:
    def make(process_index: int, process_count: int, worker_count: int, start_step: int = 0) -> Any:
        def skipped(index: int, count: int) -> grain.MapDataset:
            return whole(index, count)[start_step * 8 :]

        return WithoutState(loaders.threaded(skipped)(process_index, process_count, worker_count))

    assert resumed(make, 4, 4, 6, workers=[2]).ok
    found = resumed(make, 4, 4, 5, workers=[2])
    assert names(found) == ["resume inside a round of workers"]
    assert found.twice == 4 * 4  # half a batch of each host; as many rows are skipped


class WithoutState:
    """An iterator whose state is not offered."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Any:
        return (batch for batch in self.dataset)


def test_other_workers_on_resume_are_refused() -> None:
    assert resumed(loaders.threaded(whole), 2, 2, workers=[2]).ok
    found = resumed(loaders.loader_by_state, 2, 2, workers=[0], resume_workers=2)
    assert names(found) == ["state refused"]
    assert "Worker count in checkpoint does not match" in found.causes[0].because


def test_real_worker_processes() -> None:
    (twice,) = audit(loaders.source_and_sampler, hosts=[2], workers=[2], records=ROWS).passes
    assert names(twice) == ["sharded in source and loader"]
    assert twice.distinct == ROWS // 2


@pytest.mark.parametrize("hosts", [1, 4])
@pytest.mark.parametrize("again", [False, True])
def test_several_epochs_are_one_pass_of_all_their_rows(hosts: int, again: bool) -> None:
    """With `again`, every epoch after a resume begins at the start index of the resumed one."""

    def make(process_index: int, process_count: int, start_step: int = 0) -> Iterator[np.ndarray]:
        for epoch in range(3):
            order = np.random.default_rng(epoch).permutation(64)
            for at in range(8 * start_step if again or epoch == 0 else 0, 64, 8):
                yield order[at : at + 8][process_index::process_count, None] * 10 + np.arange(4)

    found = resumed(make, hosts, hosts, step=3, records=3 * 64)
    assert found.ok != again
    assert names(found) == ["each later epoch begins where the resumed one did"] * again
    assert (found.never, found.twice) == (2 * 24 * again, 0)
