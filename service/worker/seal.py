"""Sealing: the background task that packs what has arrived. The journal is its queue."""

from __future__ import annotations

import time

from sqlalchemy import Engine

from service.database.engine import reading, writing
from service.fingerprints.repository import FingerprintRepository
from service.ingest.receipts import join_receipts
from service.series.sealing import claim, runs_to_seal, seal_rows


def seal_due(engine: Engine) -> int:
    """Seal every run whose journal is long or idle. Returns how many runs were sealed."""
    with reading(engine) as session:
        runs = runs_to_seal(session, time.time())
    return sum(seal_run(engine, run_id) for run_id in runs)


def seal_run(engine: Engine, run_id: int) -> bool:
    """Seal all that a run's journal holds now, a bounded amount per transaction.

    A crash leaves each batch in the journal or in chunks, never in both or neither. Returns whether anything was
    sealed; False too if another process is at it.
    """
    sealed = False
    more = True
    while more:
        with writing(engine) as session:
            if not claim(session, run_id):
                break
            rows, more = seal_rows(session, run_id, time.time())
            FingerprintRepository(session).join(run_id)
            join_receipts(session, run_id)
        sealed = sealed or rows > 0
    return sealed
