"""The service under soak, to be killed at any moment: raises alerts by script and sends their messages.

`python -m benchmarks.soak_service DATABASE_URL ALERTS_OF_A_RUN [NUMBER OF]`, the NUMBERth of so many processes. What a
run has still to raise is read from the database, so that the next process goes on where a killed one was. Retries,
claims and rests of channels are shorter than usual, since a soak has minutes and not days.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterator

from sqlalchemy import Engine, func, select

from service.alerts.message import RunLabel
from service.alerts.record import RunKey, record
from service.arenas import share_arenas
from service.broker import Broker
from service.channels import outbox
from service.channels.sending import Sender
from service.channels.vault import Vault
from service.database.engine import open_engine, reading, writing
from service.database.models import Alert, Project, Run
from service.detect.judgement import Judgement
from service.worker.deliver import Deliverer

KEY = "c29hayBvbmx5OiBub3QgYSBrZXkgdG8ga2VlcCEhISE="
FAMILIES = {"repeated_rows": "curve_and_data", "train_drift": "curve_and_data"}
TIMEOUT, LEASE = 1.0, 2.0  # seconds
SCHEDULE = (0.1, 0.2) + (0.4,) * 100
REST = 0.25
TOGETHER = 10  # runs that are judged in one transaction
LIVES = (("yes", "no"), ("yes", "yes"), ("no", "no"), ("no", "no"))  # what both rules say in turn: one alert


def main() -> None:
    """Work until killed, from when a line comes on stdin: a process that is to follow a killed one is ready before."""
    url, each = sys.argv[1], int(sys.argv[2])
    number, of = (int(word) for word in sys.argv[3:] or ("0", "1"))
    share_arenas()
    outbox.FIRST_REST = REST
    engine, free = open_engine(url), threading.Event()
    sender = Sender(allow_private=True, timeout=TIMEOUT)
    deliverer = Deliverer(
        engine, Broker(), sender, lambda: Vault(KEY), on_free=free.set, schedule=SCHEDULE, lease=LEASE
    )
    print("ready", flush=True)
    if not sys.stdin.readline():  # whoever started it has gone
        return
    threading.Thread(target=raise_alerts, args=(engine, each, number, of), daemon=True).start()
    while True:
        free.clear()
        if not deliverer.deliver_due():
            free.wait(0.05)


def raise_alerts(engine: Engine, each: int, number: int = 0, of: int = 1) -> None:
    """Let every run go through alerts until it has had `each` of them. A run is judged by one process: here the one
    whose `number` is its key's remainder by `of`."""
    steps = itertools.count(int(time.time() * 1000.0))
    while keys := [key for key in _unfinished(engine, each) if key.run_id % of == number]:
        for some in _batches(keys):
            for first, second in LIVES:
                step = next(steps)
                said = [_answer("repeated_rows", first, step), _answer("train_drift", second, step)]
                with writing(engine) as session:
                    for key in some:
                        record(
                            session, key, said, FAMILIES, now=time.time(), clear_seconds=0.0, base_url="http://soak"
                        )  # fmt: skip


def _unfinished(engine: Engine, each: int) -> list[RunKey]:
    resolved = func.count(Alert.id).filter(Alert.state == "resolved")
    with reading(engine) as session:
        found = session.execute(
            select(Run, Project.slug)
            .join(Project)
            .outerjoin(Alert, Alert.run_id == Run.id)
            .group_by(Run.id, Project.slug)
            .having(resolved < each)
        ).all()
    return [RunKey(r.id, r.project_id, RunLabel(r.uuid, r.name, r.stage, slug, "lab", "1")) for r, slug in found]


def _batches(keys: list[RunKey]) -> Iterator[list[RunKey]]:
    for start in range(0, len(keys), TOGETHER):
        yield keys[start : start + TOGETHER]


def _answer(rule: str, state: str, step: int) -> Judgement:
    since = (step, step) if state == "yes" else None
    return Judgement(rule, "yes" if state == "yes" else "no", step, f"{rule} says {state}.", since_step=since)


if __name__ == "__main__":
    main()
