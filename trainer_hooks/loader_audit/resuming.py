"""What the rows after a resume give away of where the loader went on, and why not where it should."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer_hooks.loader_audit.causes import BY_BLOCKS, SLICE_FIRST, UNKNOWN
from trainer_hooks.loader_audit.counting import BLOCKS, KEPT, OWN_SHUFFLE, Expected, Tally, whole_batches
from trainer_hooks.loader_audit.reading import Stream
from trainer_hooks.loader_audit.report import Cause

WRONG_UNIT = Cause(
    "step offset in the wrong unit",
    "",
    "Count what the loader counts: global rows (steps × rows of all hosts) where all hosts share one order, steps × "
    "rows of one host where each has its own; and nothing that is divided by hosts again.",
)
EARLY = Cause("resumes batches early", "", "The checkpoint of step k was saved after batch k: begin with the next one.")
LATE = Cause(
    "resumes batches late", "", "Save the loader's state with the weights, not after the next batch was taken."
)
NOT_RESTORED = Cause("position not restored", "", "Save the iterator's state in the checkpoint, or begin at the step.")
GLOBAL_BATCH = Cause(
    "global batch changed on resume",
    "",
    "Keep the rows of all hosts together: rows per host × hosts before = rows per host × hosts after.",
)
ONE_STATE = Cause(
    "state of one host used on another host count",
    "",
    "Save one global position (ElasticIterator, or MapDataset sliced after shuffle with the global batch kept).",
)
HOSTS_CHANGED = Cause("resume on another host count re-reads and skips", "", ONE_STATE.remedy)
WORKERS_CHANGED = Cause(
    "resume with another worker count re-reads and skips", "", "Keep worker_count, or resume by state."
)
WORKER_ROUND = Cause(
    "resume inside a round of workers",
    "",
    "Resume only at steps that the worker count divides, or by the iterator's state.",
)
REFUSED = Cause("state refused", "", "Resume as it was saved, or use an iterator whose state fits any host count.")
NOT_FIXED = Cause("two starts read different rows", "", "Give the shuffle a seed.")
EACH_EPOCH = Cause(
    "each later epoch begins where the resumed one did",
    "After the resume every epoch leaves out as many rows as were read before the stop.",
    "Skip rows in the resumed epoch only: set the start index back at its end.",
)


class Resume(NamedTuple):
    """A run of `hosts` × `workers` that was stopped after `step` batches and went on elsewhere.

    whole: what its hosts would have read without a stop, `order` how that lies to the single host's order.
    before: the part that they did read; after: what the new hosts read.
    """

    hosts: int
    workers: int
    step: int
    whole: Sequence[Stream]
    order: str
    before: Sequence[Stream]
    after: Sequence[Stream]
    new_workers: int

    @property
    def rows_before(self) -> int:
        """Rows that were read before the stop."""
        return sum(len(stream.keys) for stream in self.before)


def joined(resume: Resume) -> list[Stream]:
    """What each host index read before and after, as one stream."""
    empty = Stream(np.zeros(0, np.uint64), np.zeros(0, np.int64), True, {})
    made: list[Stream] = []
    for host in range(max(len(resume.before), len(resume.after))):
        parts = [streams[host] if host < len(streams) else empty for streams in (resume.before, resume.after)]
        keys = np.concatenate([part.keys for part in parts])
        made.append(Stream(keys, np.concatenate([part.sizes for part in parts]), parts[1].ended, {}))
    return made


def goes_on(resume: Resume) -> bool:
    """Whether every host reads what it would have read without the stop. Only for an unchanged topology."""
    if len(resume.after) != resume.hosts or resume.new_workers != resume.workers:
        return False
    for whole, before, after in zip(resume.whole, resume.before, resume.after, strict=True):
        left = whole.keys[len(before.keys) :]
        both = min(len(left), len(after.keys))
        if not (left[:both] == after.keys[:both]).all() or (both == 0 and len(left) > 0):
            return False
    return True


def legally_dropped_after(expected: Expected, resume: Resume, found: Tally) -> int:
    """As `legally_dropped`, for the rows that were left at the stop."""
    left = expected.rows - resume.rows_before
    enough = all(len(s.keys) >= whole_batches(max(left, 0), len(resume.after), s.batch) for s in resume.after)
    return found.never if enough and not found.twice else 0


def why_resumed(expected: Expected, resume: Resume, found: Tally) -> Cause | None:
    """The likely cause where rows were skipped or read again by the resume itself; None if it went on right."""
    if goes_on(resume):
        return None
    same_place = len(resume.after) == resume.hosts and resume.new_workers == resume.workers
    bad = found.twice or (not expected.partial and found.never > legally_dropped_after(expected, resume, found))
    if not bad and not same_place:
        return None
    begins = _own_starts(resume) if same_place else _global_start(expected, resume)
    for needed, place, unit in begins:
        cause = _misplaced(resume, needed, place, unit)
        if cause is not None:
            return cause
    if not bad:  # other rows than without a stop, yet each of them once: a shuffle in another order
        return None
    if same_place and not found.twice and all(map(_skips_in_later_epochs, resume.whole, resume.before, resume.after)):
        return EACH_EPOCH
    nothing = not sum(len(stream.keys) for stream in resume.after)
    if nothing:
        return replace(WRONG_UNIT, because="Nothing is left to read after the resume: it begins past the end.")
    in_turns = max(resume.workers, 1)
    if resume.step % in_turns and found.twice <= resume.hosts * in_turns * max(s.batch for s in resume.whole):
        because = f"Step {resume.step} is none that {in_turns} workers divide; rows of a batch lie {in_turns} apart."
        return replace(WORKER_ROUND, because=because)
    if resume.new_workers != resume.workers:
        return replace(WORKERS_CHANGED, because=f"{resume.workers} workers each became {resume.new_workers}.")
    return _other_hosts(expected, resume, found)


def _other_hosts(expected: Expected, resume: Resume, found: Tally) -> Cause:
    share = f"{found.twice:,} rows are read again, {found.never:,} never."
    if len(resume.after) == resume.hosts:
        return replace(
            UNKNOWN,
            because=f"{share} Where it went on is none of the rows read before; a smaller resume_at may tell.",
        )
    rising = all((np.diff(expected.where(stream.keys)) > 0).all() for stream in resume.after)
    if resume.order == OWN_SHUFFLE or (resume.order in ("", KEPT) and not rising):
        return replace(SLICE_FIRST, note=False, because=f"Each host shuffles a part of its own: {share}")
    if resume.order == BLOCKS:
        return replace(BY_BLOCKS, note=False, because=f"Blocks of {len(resume.after)} hosts are others: {share}")
    return replace(HOSTS_CHANGED, because=share)


def _own_starts(resume: Resume) -> list[tuple[int, int, int]]:
    """For the first host that went on elsewhere: (rows it had read, row at which it went on, rows of its batch)."""
    for whole, before, after in zip(resume.whole, resume.before, resume.after, strict=True):
        needed, batch = len(before.keys), whole.batch
        first = after.keys[: max(1, min(batch, len(after.keys)))]
        if not len(after.keys) or (whole.keys[needed : needed + len(first)] == first[: len(whole.keys) - needed]).all():
            continue
        return [(needed, place, batch) for place in _find(whole.keys, first)]
    return []


def _skips_in_later_epochs(whole: Stream, before: Stream, after: Stream) -> bool:
    """Whether a host goes on right, but leaves out again, once or more, as many rows as it had read at the stop."""
    left, read, skipped = whole.keys[len(before.keys) :], after.keys, 0
    while len(read):
        same = left[: len(read)] == read[: len(left)]
        right = len(same) if same.all() else int(np.argmin(same))
        if not right or (right == len(same) and right < len(read)):
            return False
        left, read = left[right:], read[right:]
        if len(read):
            left, skipped = left[len(before.keys) :], skipped + 1
    return skipped > 0


def _find(keys: NDArray[np.uint64], first: NDArray[np.uint64]) -> list[int]:
    places = np.flatnonzero(keys == first[0])[:1000]
    return [int(p) for p in places if np.array_equal(keys[p : p + len(first)], first[: len(keys) - p])]


def _global_start(expected: Expected, resume: Resume) -> list[tuple[int, int, int]]:
    """(rows read by all hosts, row of the single host's order at which they went on, rows of a global step)."""
    if resume.order not in (KEPT, "") or any(len(stream.sizes) == 0 for stream in resume.after):
        return []
    first = np.concatenate([stream.keys[: stream.sizes[0]] for stream in resume.after])
    places = np.sort(expected.where(first))
    rows = sum(stream.batch for stream in resume.whole)
    if places[0] >= 0 and (np.diff(places) == 1).all():
        return [(resume.rows_before, int(places[0]), rows)]
    return []


def _misplaced(resume: Resume, needed: int, place: int, batch: int) -> Cause | None:
    if place == needed:
        return None
    hosts, new_hosts = resume.hosts, len(resume.after)
    said = f"It goes on at row {place:,} of {'a host' if hosts == new_hosts else 'the common order'}, not {needed:,}"
    global_before, global_after = (sum(s.batch for s in streams) for streams in (resume.whole, resume.after))
    if global_before != global_after and place == resume.step * global_after:
        return replace(GLOBAL_BATCH, because=f"A step had {global_before:,} rows and has {global_after:,}. {said}.")
    if place == 0:
        return replace(NOT_RESTORED, because="It begins at the first row again.")
    late = place - needed
    steps = abs(late) // batch if late % batch == 0 else 0
    factor = next((f for f in _units(resume) if f > 1 and place in (needed * f, needed / f)), 0)
    if steps == 1 or (steps == 2 and not factor):
        count = f"{steps} batch{'es' * (steps > 1)} {'late' if late > 0 else 'early'}"
        return replace(LATE if late > 0 else EARLY, because=f"{said}: {count}.")
    if factor:
        times = f"{factor} times" if place > needed else f"1/{factor} of"
        return replace(
            WRONG_UNIT, because=f"{said}: {times} where it should, and {factor} is {_units(resume)[factor]}."
        )
    if hosts != new_hosts and abs(late) < hosts:
        return replace(ONE_STATE, because=f"{said}: one host's position stands for all, which had read further.")
    return None


def _units(resume: Resume) -> dict[int, str]:
    """By what a step may have been multiplied or divided wrongly."""
    rows = max(stream.batch for stream in resume.whole)
    return {
        max(resume.workers, 1): "the number of workers",
        rows * resume.hosts: "the rows of a step",
        len(resume.after): "the new number of hosts",
        rows: "the rows of a host's batch",
        resume.hosts: "the number of hosts",
    }
