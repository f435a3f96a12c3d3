"""What an audit makes of all sorts of loaders and arguments, with plain Python loaders."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import sys
import types
from collections.abc import Iterator
from typing import Any

import grain
import grain_loaders as loaders
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_hooks.fingerprints import row_hashes, snapshot
from trainer_hooks.loader_audit import Report, assert_reads_each_row_once, audit
from trainer_hooks.loader_audit.hosts import Host, simulated_hosts
from trainer_hooks.loader_audit.keys import RowKeys


def rows_of(numbers: Any) -> np.ndarray:
    return np.asarray(numbers, np.int32)[:, None] * 10 + np.arange(4, dtype=np.int32)


class Plain:
    """`size` rows, every `hosts`-th in batches; the state is how many batches were read."""

    def __init__(self, host: int, hosts: int, size: int = 96, batch: int = 4, start: int = 0) -> None:
        mine = np.arange(host, size, hosts)
        self.batches = [rows_of(mine[i : i + batch]) for i in range(0, len(mine), batch)]
        self.read = start

    def __iter__(self) -> Plain:
        return self

    def __next__(self) -> np.ndarray:
        if self.read >= len(self.batches):
            raise StopIteration
        self.read += 1
        return self.batches[self.read - 1]

    def get_state(self) -> dict[str, int]:
        return {"read": self.read}

    def set_state(self, state: dict[str, int]) -> None:
        self.read = state["read"]


def plain(process_index: int, process_count: int) -> Plain:
    return Plain(process_index, process_count)


def causes(report: Report) -> list[str]:
    return [cause.name for cause in report.causes]


# --- the factory ---


def test_a_host_whose_factory_raises_is_named_and_the_others_are_read() -> None:
    def make(process_index: int, process_count: int) -> Plain:
        if process_index == 3:
            raise FileNotFoundError("no shard\n00003")
        return plain(process_index, process_count)

    report = audit(make, hosts=[1, 4, 2], workers=[0])
    assert [one.ok for one in report.passes] == [True, False, True]
    assert report.causes[0].because == "host 3 of 4: FileNotFoundError: no shard 00003"
    assert "host 3 of 4" in str(report)


def test_a_loader_that_raises_half_way_or_yields_no_rows() -> None:
    def fails(process_index: int, process_count: int) -> Iterator[Any]:
        yield from plain(process_index, process_count)
        if process_count > 1:
            raise OSError("disk gone")

    assert causes(audit(fails, hosts=[2], workers=[0])) == ["the loader fails"]
    assert "disk gone" in str(audit(fails, hosts=[2], workers=[0]))
    for yielded in (None, 7, "text", 3.5, {"a": [1], "b": [1, 2]}):
        report = audit(lambda y=yielded: [y], hosts=[1], workers=[0])
        assert causes(report) == ["the loader fails"], yielded
    with pytest.raises(ValueError, match="yields no rows"):
        audit(list, hosts=[1], workers=[0])


def test_what_cannot_be_audited_is_said_in_a_line() -> None:
    for arguments, message in (
        ({"hosts": [0]}, "hosts must be whole numbers ≥ 1, not 0"),
        ({"hosts": []}, "hosts is empty"),
        ({"workers": [1.5]}, "workers must be whole numbers ≥ 0, not 1.5"),
        ({"records": 0}, "records must be"),
        ({"resume_hosts": [2]}, "need resume_at"),
        ({"resume_at": 24}, "resume_at=24 is past the end: with 1 host a pass has 24 batches a host"),
        ({"key": "inputs"}, None),
    ):
        if message is None:
            assert "has no field 'inputs': it is a ndarray" in str(audit(plain, workers=[0], **arguments))
            continue
        with pytest.raises(ValueError, match=message):
            audit(plain, **{"workers": [0], **arguments})
    with pytest.raises(TypeError, match="make_loader needs path, which an audit does not know"):
        audit(lambda path, process_index: plain(0, 1))
    with pytest.raises(TypeError, match="must be a function"):
        audit(plain(0, 1))
    with pytest.raises(ValueError, match="the factory takes no start_step"):
        audit(lambda process_index, process_count: list(plain(process_index, process_count)), resume_at=2)


def test_a_loader_that_never_ends() -> None:
    def endless(process_index: int, process_count: int) -> Iterator[np.ndarray]:
        while True:
            yield from plain(process_index, process_count)

    with pytest.raises(ValueError, match=r"did not end after [\d,]+ rows: give records="):
        audit(endless, hosts=[1], workers=[0])
    assert audit(endless, hosts=[1, 3, 4], workers=[0], records=96).ok
    empty = itertools.repeat(np.zeros((0, 4), np.int32))
    with pytest.raises(ValueError, match="did not end after 0 rows"):
        audit(lambda: empty, workers=[0])

    def endless_on_several(process_index: int, process_count: int) -> Any:
        return endless(0, 1) if process_count > 1 else plain(0, 1)

    assert causes(audit(endless_on_several, hosts=[4], workers=[0])) == ["nobody shards"]


def test_less_than_a_pass_tells_repeats_but_not_what_is_never_read() -> None:
    report = audit(loaders.sliced_last, hosts=[4], workers=[0], records=256)
    assert report.ok
    assert "rows never read cannot be told" in report.notes[0]
    assert causes(audit(loaders.source_and_sampler, hosts=[4], workers=[0], records=256)) == [
        "sharded in source and loader"
    ]


def test_a_slice_that_repeat_leaves() -> None:
    def make(process_index: int, process_count: int) -> Any:
        part = loaders.mapped(loaders.Source()).shuffle(seed=3)[:256].repeat()
        return loaders.batches(part[process_index::process_count])

    assert causes(audit(make, hosts=[1, 4], workers=[0], records=256)) == ["slice between shuffle and repeat"]


def test_two_starts_that_differ() -> None:
    def make(process_index: int, process_count: int, start_step: int = 0) -> Iterator[np.ndarray]:
        order = np.random.default_rng().permutation(96)
        yield from rows_of(order[process_index::process_count]).reshape(-1, 4, 4)[start_step:]

    report = audit(make, hosts=[1], workers=[0], resume_at=5)
    assert "no fixed seed" in report.notes[0]
    assert causes(report) == ["two starts read different rows"]


def test_workers_that_a_state_is_silent_about() -> None:
    class Workers(Plain):
        def __init__(self, host: int, hosts: int, workers: int) -> None:
            super().__init__(host, hosts, batch=1)
            self.batches = [b for w in range(max(workers, 1)) for b in self.batches[w :: max(workers, 1)]]

    def make(process_index: int, process_count: int, worker_count: int) -> Plain:
        return Workers(process_index, process_count, worker_count)

    report = audit(make, hosts=[2], workers=[2], resume_at=6, resume_workers=4)
    assert causes(report) == ["resume with another worker count re-reads and skips"]
    assert audit(make, hosts=[2], workers=[2], resume_at=6).ok


def test_a_pass_that_is_too_short_for_the_resume_by_a_fault_shows_the_fault() -> None:
    def make(process_index: int, process_count: int) -> list[np.ndarray]:
        mine = rows_of(range(96))[process_index::process_count][process_index::process_count]
        return [mine[i : i + 2] for i in range(0, len(mine), 2)]

    report = audit(make, hosts=[4], workers=[0], resume_at=10)
    assert causes(report) == ["sharded in source and loader"]
    assert report.notes == ("resume_at=10 is past the end: with 4 hosts a pass has 3 batches a host",)


# --- what jax answers ---


def test_jax_answers_as_the_host_and_is_itself_again() -> None:
    before = jax.process_index, jax.process_count
    holder = types.ModuleType("a_module_that_imported_it_by_name")
    holder.process_index = jax.process_index
    sys.modules[holder.__name__] = holder
    late = types.ModuleType("a_module_that_a_loader_imports")
    sys.modules[late.__name__] = late
    try:
        with contextlib.suppress(KeyError), simulated_hosts() as simulation:
            assert (jax.process_index(), jax.process_count()) == (0, 1)
            with simulation.playing(Host(3, 16)):
                late.process_count = jax.process_count
                assert (jax.process_index(), late.process_count(), holder.process_index()) == (3, 16, 3)
                assert grain.sharding.ShardByJaxProcess().shard_index == 3
            assert jax.process_count() == 1
            raise KeyError
        assert (jax.process_index, jax.process_count) == before
        assert (holder.process_index, late.process_count) == before
    finally:
        del sys.modules[holder.__name__], sys.modules[late.__name__]


# --- rows ---


def test_a_row_is_what_fingerprints_take_it_for_however_it_is_held() -> None:
    tokens = np.array([[1, 2, 3], [4, 5, 6]])
    expected = row_hashes(snapshot(tokens))
    keys = RowKeys()
    for batch in (
        tokens,
        tokens.astype(np.uint16),
        jax.numpy.asarray(tokens),
        tokens.tolist(),
        [np.array([1, 2, 3]), (4, 5, 6)],
        {"inputs": tokens, "targets": tokens + 1},
        {"input_ids": tokens.tolist(), "labels": None},
        {"tokens": tokens},
    ):
        assert keys(batch).tolist() == expected.tolist()
    assert RowKeys("targets")({"inputs": tokens, "targets": tokens}).tolist() == expected.tolist()
    assert RowKeys(lambda batch: batch[0])((tokens, 1)).tolist() == expected.tolist()
    assert RowKeys(batched=False)({"inputs": tokens[0]}).tolist() == expected[:1].tolist()
    assert RowKeys(padding=0)(np.array([[0, 0, 0], [1, 2, 3]])).tolist() == expected[:1].tolist()
    ids = [5, 2**40]
    whole = [int.from_bytes(hashlib.blake2b(i.to_bytes(8, "little"), digest_size=8).digest(), "big") for i in ids]
    assert keys(np.array(ids)).tolist() == keys(ids).tolist() == whole


def test_every_field_of_other_batches_counts_and_rows_may_be_ragged() -> None:
    keys = RowKeys()
    image = np.arange(24.0).reshape(2, 3, 4)
    named = {"image": image, "label": np.array([1, 2]), "epoch": 3}
    assert len(set(keys(named)) | set(keys(named | {"label": np.array([1, 3])}))) == 3
    assert len(set(keys((image, np.array([1, 1]))))) == 2
    ragged = [[1, 2, 3], [4], [], [1, 2, 3]]
    assert len(set(keys(ragged).tolist())) == 3
    assert keys({"text": ["a", "b"], "id": [1, 2]}).shape == (2,)
    assert keys([{"inputs": [1, 2, 3]}, {"inputs": [4]}]).shape == (2,)


def test_unequal_batches_and_equal_rows() -> None:
    def make(process_index: int, process_count: int) -> Iterator[np.ndarray]:
        mine = rows_of(np.arange(30)[process_index::process_count] % 10)  # each row thrice in the data
        yield mine[:3]
        yield mine[3:4]
        yield mine[4:]

    report = audit(make, hosts=[1, 2, 3], workers=[0])
    assert report.ok
    assert "20 of a single host's rows have the content of another" in report.notes[0]


def test_rows_that_are_packed_after_they_are_shared_out() -> None:
    def make(process_index: int, process_count: int) -> Iterator[np.ndarray]:
        mine = np.arange(process_index, 96, process_count)
        yield from mine.reshape(-1, 3, 4)

    assert causes(audit(make, hosts=[4], workers=[0])) == ["rows differ from those of one host"]


def test_too_few_rows_for_a_batch() -> None:
    def make(process_index: int, process_count: int) -> Iterator[np.ndarray]:
        mine = rows_of(np.arange(process_index, 96, process_count))
        yield from mine[: len(mine) // 16 * 16].reshape(-1, 16, 4)

    one, four, eight = audit(make, hosts=[1, 4, 8], workers=[0]).passes
    assert (one.ok, four.ok, four.dropped) == (True, True, 96 - 64)
    assert [cause.name for cause in eight.causes] == ["too few rows for a batch on every host"]


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 60),
    hosts=st.integers(1, 5),
    batch=st.integers(1, 7),
    step=st.integers(1, 4),
    new_hosts=st.integers(1, 5),
)
def test_a_loader_that_is_right_is_right_whatever_the_sizes(
    size: int, hosts: int, batch: int, step: int, new_hosts: int
) -> None:
    """One order for all, a global batch that is kept, a global position: no fault on any host count."""
    total = batch * hosts * new_hosts

    def make(process_index: int, process_count: int, start_step: int = 0) -> Iterator[np.ndarray]:
        part = total // process_count
        for start in range(start_step * total, size * total, total):
            yield rows_of(np.arange(start + process_index, start + total, process_count))[:part]

    resume: dict[str, Any] = {"resume_at": step, "resume_hosts": [new_hosts]} if step < size else {}
    report = audit(make, hosts=[1, hosts], workers=[0], **resume)
    assert report.ok, str(report)
    assert all(one.order in ("kept", "") and one.read == size * total for one in report.passes)


@settings(max_examples=40, deadline=None)
@given(
    reads=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=40), min_size=1, max_size=4),
)
def test_counts_are_those_of_counting(reads: list[list[int]]) -> None:
    def make(process_index: int, process_count: int) -> list[np.ndarray]:
        return [rows_of(range(31) if process_count == 1 else reads[process_index])]

    one = audit(make, hosts=[len(reads) if len(reads) > 1 else 1], workers=[0], records=31).passes[0]
    flat = [number for host in reads for number in host] if len(reads) > 1 else list(range(31))
    assert (one.read, one.distinct) == (len(flat), len(set(flat)))
    assert (one.never, one.twice) == (31 - len(set(flat)), len(flat) - len(set(flat)))
    if len(set(flat)) < len(flat):
        assert not one.ok


# --- reports ---


def test_a_report_as_json_and_for_pytest() -> None:
    assert assert_reads_each_row_once(plain, hosts=[1, 4], workers=[0]).ok
    with pytest.raises(AssertionError, match=r"likely cause: nobody shards\. All 4 hosts read the same rows"):
        assert_reads_each_row_once(lambda: plain(0, 1), hosts=[4], workers=[0])
    report = audit(lambda: plain(0, 1), hosts=[1, 4], workers=[0], resume_at=3)
    found = json.loads(report.to_json())
    assert found["ok"] is False
    assert [cause["name"] for cause in found["causes"]] == ["nobody shards"]
    assert found["passes"][2]["name"] == "4 hosts"
    row = found["passes"][2]["rows"][0]
    assert (row["reads"], row["expected"], row["hosts"]) == (4, 1, [0, 1, 2, 3])
    assert row["key"] in {f"{key:016x}" for key in row_hashes(snapshot(rows_of(range(96)))).tolist()}
    assert report.rows


def test_progress_names_each_host() -> None:
    said: list[str] = []
    audit(plain, hosts=[2], workers=[0], progress=said.append)
    assert said[-2:] == ["host 0 of 2", "host 1 of 2"]
