"""kill -9 of a trainer that sends windows and held-out hits: what was told before is there, and nothing is twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from hook_service import HookService

from trainer_hooks.fingerprints import snapshot
from trainer_hooks.sync import sync
from trainer_hooks.windows import Rolling, chosen

LENGTH, EACH, EVERY, SAMPLE = 256, 4, 20, 2
TRAINER = f"""
import time, numpy as np, trainer_hooks
heldout = np.random.default_rng(7).integers(0, 5000, 20_000)
run = trainer_hooks.start("killed", project="p", sample_rows={SAMPLE}, heldout={{"set": heldout}})
for step in range(1, 1_000_000):
    rows = np.random.default_rng(step).integers(5000, 9000, ({EACH}, {LENGTH}))
    if step % {EVERY} == 0:
        rows[1] = heldout[(step // {EVERY} - 1) % 70 * {LENGTH} :][:{LENGTH}]
    run.log_rows(step, rows)
    time.sleep(0.002)
"""


def read(step: int) -> np.ndarray:
    """What the trainer feeds at a step."""
    rows = np.random.default_rng(step).integers(5000, 9000, (EACH, LENGTH))
    if step % EVERY == 0:
        heldout = np.random.default_rng(7).integers(0, 5000, 20_000)
        rows[1] = heldout[(step // EVERY - 1) % 70 * LENGTH :][:LENGTH]
    return rows


def steps_of(bodies: list[dict]) -> list[int]:
    """Every step that bodies say was looked through, as often as they do."""
    return [step for body in bodies for first, last, _ in body["seen"] for step in range(first, last + 1)]


def test_windows_and_hits_survive_a_kill_and_are_told_once(service: HookService, environment: Path) -> None:
    variables = {**os.environ, "PACENOTE_MODE": "online"}
    process = subprocess.Popen([sys.executable, "-c", TRAINER], env=variables)
    of_kind = lambda kind: [body for body in service.bodies("fingerprints") if body["kind"] == kind]  # noqa: E731
    service.wait_for(lambda _: sum(len(body["steps"]) for body in of_kind("heldout_hits")) >= 10)
    told = {kind: set(steps_of(of_kind(kind))) for kind in ("windows", "heldout_hits")}
    process.send_signal(signal.SIGKILL)
    process.wait()
    report = sync(service.url)
    assert report.complete

    rolling = Rolling()
    for kind in ("windows", "heldout_hits"):
        bodies = of_kind(kind)
        seen = Counter(steps_of(bodies))
        assert told[kind] <= set(seen)
        assert sorted(seen) == list(range(1, len(seen) + 1))  # no gap, and nothing told twice
        assert set(seen.values()) == {1}
        sent = Counter(
            (step, value) for body in bodies for step, value in zip(body["steps"], body["hashes"], strict=True)
        )
        assert set(sent.values()) == {1}
        if kind == "heldout_hits":
            hits = sorted(step for step, _ in sent)
            assert len(hits) >= 10
            # A row of 256 tokens holds 3.5 windows of 1 in 64 on average: most are met.
            assert set(hits) <= set(range(EVERY, len(seen) + 1, EVERY))
            assert len(hits) >= 0.85 * (len(seen) // EVERY)
        else:
            expected = Counter[tuple[int, str]]()
            for step in sorted(seen):
                rows = snapshot(read(step))
                made = chosen(rows, rolling(rows.reshape(-1)), SAMPLE * LENGTH)
                expected += Counter((step, f"{number:016x}") for number in made)
            assert sent == expected

    taken = len(service.taken)
    assert sync(service.url, again=True).accepted == 0
    assert len(service.taken) == taken
