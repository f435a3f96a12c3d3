"""`make soak`: messages to bad receivers while the service is killed again and again; what must hold is checked.

Every message arrives whole; none twice but under the id by which receivers drop doubles, and then only where a process
was killed or an answer broken off; those of one alert in order at each channel; a process's memory does not grow.
`python -m benchmarks soak [--alerts N] [--kills N] [--processes N] [--database-url URL]`.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import psutil
from sqlalchemy import Engine, func, select

from benchmarks.soak_receivers import MANNERS, CutOff, Receivers
from benchmarks.soak_service import KEY
from service.channels import outbox
from service.channels.vault import Vault
from service.database.engine import open_engine, reading, writing
from service.database.migrate import ensure_schema
from service.database.models import Alert, AlertChange, Channel, Delivery, Project, Run
from service.worker.deliver import THREADS

CHANNELS = 20
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
GROWTH, SLACK = 1.1, 4.0  # what memory may have grown by from a life's second quarter to its last: factor, MiB
JUDGED = 40  # samples of memory below which a life was too short to say
KILLED_BY = 0.7  # share of the messages by which the last kill has come
LOOK = 0.25  # seconds


@dataclass(slots=True)
class Outcome:
    """What a soak came to. `broken` says what did not hold; `memory`: median MiB in each quarter of the last life."""

    alerts: int = 0
    messages: int = 0
    accepted: int = 0
    doubles: int = 0
    after_broken_answer: int = 0
    kills: int = 0
    replayed: int = 0
    cut_off: list[CutOff] = field(default_factory=list[CutOff])
    seconds: float = 0.0
    spoiled: dict[str, int] = field(default_factory=dict[str, int])
    memory: list[float] = field(default_factory=list[float])
    samples: int = 0
    broken: list[str] = field(default_factory=list[str])


def main(arguments: Sequence[str]) -> int:
    """Run a soak and print what came of it; 1 if something did not hold."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--alerts", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--processes", type=int, default=1, help="service processes on one database")
    parser.add_argument("--database-url", help="an empty database; by default a SQLite file that is removed again")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        url = given.database_url or f"sqlite:///{folder}/soak.db"
        outcome = soak(url, alerts=given.alerts, kills=given.kills, processes=given.processes, seed=given.seed)
    print(
        f"{outcome.alerts:,} alerts, {outcome.messages:,} messages over {CHANNELS} channels in {outcome.seconds:.0f} s"
    )
    print(f"killed -9 {outcome.kills} times; spoiled answers: {outcome.spoiled}")
    print(f"accepted {outcome.accepted:,}, of them again under the same id: {outcome.doubles} after a kill, ", end="")
    print(f"{outcome.after_broken_answer} after an answer that was broken off")
    read = ", ".join(f"{one.read:,} of {one.declared:,}" for one in outcome.cut_off)
    print(
        f"requests whose sender was killed within the body: {len(outcome.cut_off)}", f"(bytes: {read})" if read else ""
    )
    print(f"given up by a 410 and replayed: {outcome.replayed}")
    quarters = " → ".join(f"{each:.1f}" for each in outcome.memory)
    said = "flat or not is judged" if outcome.samples >= JUDGED else "too short a life to judge whether it is flat"
    print(f"memory of the last process, by quarters of its life: {quarters} MiB ({outcome.samples} samples; {said})")
    print("all held" if not outcome.broken else "\n".join(f"NOT HELD: {said}" for said in outcome.broken))
    return 1 if outcome.broken else 0


def soak(url: str, *, alerts: int, kills: int, processes: int = 1, seed: int = 1, limit: float = 3600.0) -> Outcome:
    """One soak on an empty database, within `limit` seconds."""
    began, dice = time.monotonic(), random.Random(seed)
    engine, receivers = open_engine(url), Receivers(SECRET, seed)
    ensure_schema(engine)
    _make_world(engine, receivers.url)
    each = max(1, alerts // CHANNELS)
    outcome = Outcome()
    places = [dice.randrange(processes) for _ in range(kills)]
    services = [_Service(url, each, place, processes) for place in range(processes)]
    spare = _Service(url, each, places[0], processes) if places else None
    try:
        for service in services:
            service.begin()
        expected = each * CHANNELS * 3
        while not _is_over(engine, each):
            if time.monotonic() - began > limit:
                outcome.broken.append(f"not over after {limit:g} s")
                break
            outcome.replayed += _revive(engine)
            due = (outcome.kills + 1) / (kills + 1) * KILLED_BY * expected
            if outcome.kills < kills and len(receivers.log.accepted) >= due:
                time.sleep(dice.random() * LOOK)
                assert spare is not None
                place = places[outcome.kills]
                services[place].kill()
                services[place] = spare
                spare.begin()
                outcome.kills += 1
                spare = _Service(url, each, places[outcome.kills], processes) if outcome.kills < kills else None
            services[-1].sample()
            time.sleep(LOOK)
        outcome.seconds = time.monotonic() - began
        judge_memory(services[-1].memory, outcome)
    finally:
        for service in (*services, *([spare] if spare else [])):
            service.kill()
        receivers.close()
    _check(engine, receivers, outcome, each, kills)
    engine.dispose()
    return outcome


class _Service:
    """A process that is under soak, and its memory in MiB."""

    def __init__(self, url: str, each: int, place: int, of: int) -> None:
        command = [sys.executable, "-m", "benchmarks.soak_service", url, str(each), str(place), str(of)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=os.environ, text=True)
        self._seen = psutil.Process(self._process.pid)
        self.memory: list[float] = []

    def begin(self) -> None:
        """Let it work as soon as it is ready."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def sample(self) -> None:
        self.memory.append(self._seen.memory_full_info().uss / 2**20)  # its own: no pages of mapped files

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def judge_memory(samples: Sequence[float], outcome: Outcome) -> None:
    """Flat: the last quarter of a life holds hardly more than the second, in which all has been loaded."""
    outcome.samples = len(samples)
    if len(samples) < 4:
        return
    quarter = len(samples) / 4
    parts = [samples[round(i * quarter) : round((i + 1) * quarter)] for i in range(4)]
    outcome.memory = [statistics.median(part) for part in parts]
    second, last = outcome.memory[1], outcome.memory[3]
    if len(samples) >= JUDGED and last > GROWTH * second + SLACK:
        outcome.broken.append(f"memory grew from {second:.1f} to {last:.1f} MiB within one life")


def _make_world(engine: Engine, address: str) -> None:
    """A run for each channel, which gets that run's alerts; manners go round."""
    vault, manners = Vault(KEY), list(MANNERS)
    with writing(engine) as session:
        project = Project(slug="soak", created_at=0.0)
        session.add(project)
        session.flush()
        for i in range(CHANNELS):
            run = Run(uuid=uuid4(), project_id=project.id, name=f"run-{i}", stage="s", role="reproduction",
                      reference="lab", token_offset=0.0, created_at=0.0)  # fmt: skip
            session.add(run)
            session.flush()
            url = vault.seal(f"{address}/{i}/{manners[i % len(manners)]}")
            session.add(Channel(uuid=uuid4(), name=f"channel-{i}", kind="webhook", url=url, secret=vault.seal(SECRET),
                                run_id=run.id, enabled=True, created_at=0.0))  # fmt: skip


def _is_over(engine: Engine, each: int) -> bool:
    with reading(engine) as session:
        resolved = session.scalar(select(func.count()).select_from(Alert).where(Alert.state == "resolved"))
        left = session.scalar(select(func.count()).select_from(Delivery).where(Delivery.state != "delivered"))
    return resolved == each * CHANNELS and left == 0


def _revive(engine: Engine) -> int:
    """Switch on again what a 410 disabled, and replay what was given up; how many messages that is."""
    with reading(engine) as session:
        gone = list(session.scalars(select(Channel.id).where(Channel.enabled.is_(False))))
    count = 0
    for channel_id in gone:
        with writing(engine) as session:
            session.get_one(Channel, channel_id).enabled = True
            failed = select(Delivery).where(Delivery.channel_id == channel_id, Delivery.state == "failed")
            for delivery in session.scalars(failed):
                outbox.replay(delivery, time.time())
                count += 1
    return count


def _check(engine: Engine, receivers: Receivers, outcome: Outcome, each: int, kills: int) -> None:
    with reading(engine) as session:
        deliveries = session.execute(
            select(Delivery.uuid, Alert.uuid, Delivery.change_number, Delivery.state).join(Alert)
        ).all()
        changes = session.execute(select(AlertChange.alert_id, AlertChange.kind)).all()
        outcome.alerts = session.scalar(select(func.count()).select_from(Alert)) or 0
    log, known = receivers.log, {str(row[0]): row for row in deliveries}
    outcome.messages, outcome.accepted, outcome.spoiled = len(deliveries), len(log.accepted), dict(log.spoiled)
    say = outcome.broken.append
    times = Counter(message.id for message in log.accepted)
    if missing := set(known) - set(times):
        say(f"{len(missing)} messages did not arrive")
    outcome.cut_off = list(log.cut_off)
    if lost := {one.id for one in log.cut_off} - set(times):
        say(f"{len(lost)} messages were cut off and not sent again")
    if foreign := set(times) - set(known):
        say(f"{len(foreign)} ids that the outbox does not know")
    if log.unsigned:
        say(f"{log.unsigned} requests whose signature does not verify")
    pairs = Counter((str(alert), number) for _, alert, number, _ in deliveries)
    if any(count > 1 for count in pairs.values()):
        say("a change was written to a channel under two ids")
    again = {key: count - 1 for key, count in times.items() if count > 1}
    outcome.after_broken_answer = sum(count for key, count in again.items() if key in log.broken_off)
    outcome.doubles = sum(again.values()) - outcome.after_broken_answer
    if outcome.doubles > kills * THREADS:
        say(f"{outcome.doubles} doubles, more than {kills} kills of {THREADS} senders can leave")
    _check_order(receivers, say)
    lives: dict[int, Counter[str]] = defaultdict(Counter)
    for alert, kind in changes:
        lives[alert][kind] += 1
    if outcome.alerts != each * CHANNELS or any(
        life["firing"] != 1 or life["resolved"] != 1 for life in lives.values()
    ):
        say("an alert was not raised once and resolved once")


def _check_order(receivers: Receivers, say: object) -> None:
    assert callable(say)
    seen: dict[tuple[str, str], int] = {}
    ids: set[str] = set()
    wrong = 0
    for message in receivers.log.accepted:
        if message.id in ids:
            continue
        ids.add(message.id)
        before = seen.get((message.path, message.alert), 0)
        wrong += message.change <= before
        seen[message.path, message.alert] = message.change
    if wrong:
        say(f"{wrong} messages came after a later one of the same alert")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
