"""Fills a service with a run that reads every row again from step 101 on, as the lab's double-sharded loader does."""

from __future__ import annotations

import csv
import hashlib
import time
from collections import defaultdict
from uuid import UUID, uuid5

import httpx
import numpy as np

from service.context import Context
from service.references.shipped import BUNDLES, install_shipped
from service.worker.judge import Judge

LAB = BUNDLES / "lab"
SPACE = UUID("00000000-0000-0000-0000-00000000c0de")
TOKENS_PER_STEP = 1024
HOSTS, ROWS_PER_HOST = 4, 2
POOL = 200  # rows that a host really reads, of the 800 that it should
HELDOUT = "heldout/lab/ce_loss"
RATE = "optim/learning_rate"
TRAIN = "train/ce_loss"


def lab_curves() -> dict[str, dict[int, float]]:
    """The lab reference's own curves: metric, step, value."""
    curves: dict[str, dict[int, float]] = defaultdict(dict)
    with (LAB / "series" / "stage1.csv").open() as file:
        for row in csv.DictReader(file):
            curves[row["metric"]][int(row["step"])] = float(row["value"])
    return curves


class World:
    """Speaks to one service as a hook does. `client` is a httpx client of it."""

    def __init__(self, client: httpx.Client, context: Context) -> None:
        self.client, self.context = client, context
        self.curves = lab_curves()
        self._seqs: dict[tuple[str, str, int], int] = defaultdict(int)
        self._judge = Judge(context.engine, context.broker, context.settings.base_url, clear_seconds=60.0)

    def install_references(self) -> None:
        """Install the shipped references."""
        install_shipped(self.context.engine)

    def start(
        self,
        name: str,
        *,
        project: str = "lab",
        reference: str | None = "lab",
        stage: str = "stage1",
        start_step: int = 0,
        launch: int = 1,
        config: dict[str, object] | None = None,
        forked_from: dict[str, object] | None = None,
        topology: dict[str, object] | None = None,
    ) -> str:
        """Open a segment and return its id."""
        segment = str(uuid5(SPACE, f"{project} {name} {stage} {launch}"))
        body = {
            "project": project,
            "run": name,
            "role": "reproduction",
            "reference": reference,
            "stage": stage,
            "kind": "trainer",
            "start_step": start_step,
            "tokens_per_step": TOKENS_PER_STEP,
            "topology": topology or {"hosts": HOSTS, "processes": 1, "devices": 1, "device_kind": "cpu"},
            "config": {"learning_rate": 0.002} if config is None else config,
            "versions": {"jax": "0.10.2"},
            "data": {"rows": 3200, "epochs": 1},
            "sample_rows": 1,
            "started_at": time.time() + launch - 10.0,
            "forked_from": forked_from,
        }
        answer = self.client.put(f"/api/v1/segments/{segment}", json=body | self._sent(segment, "segment", 0))
        assert answer.status_code in (200, 201, 202), answer.text
        return segment

    def run_id(self, name: str) -> str:
        """The public id of a run."""
        items = self.client.get("/api/v1/runs", params={"limit": 500}).json()["items"]
        return next(item["id"] for item in items if item["name"] == name)

    def send(self, segment: str, steps: list[int], metrics: dict[str, list[float | str | None]]) -> None:
        """Log numbers."""
        now = time.time()
        body = {"steps": steps, "times": [now] * len(steps), "metrics": metrics}
        self._post(segment, "batches", body)

    def event(self, segment: str, step: int, kind: str, value: object) -> None:
        """Log an event."""
        self._post(segment, "events", {"step": step, "kind": kind, "value": value, "at": time.time()})

    def train(self, segment: str, first: int, last: int, *, double_shard: bool = True, seed: int = 5) -> None:
        """Send steps first … last with rows and, every 25 steps, evaluations.

        With `double_shard` rows repeat from step 101 on, train loss then sinks by 0.0013 nats a step below the
        reference, and held-out rises by a third of that.
        """
        rng = np.random.default_rng(seed)
        noise = rng.normal(0.0, 0.05, 10_000)
        steps = list(range(first, last + 1))
        sunk = {step: max(step - 100, 0) * 0.0013 if double_shard else 0.0 for step in range(last + 1)}
        train = [self.curves[TRAIN][s] + float(noise[s]) - sunk[s] for s in steps]
        rate = [self.curves[RATE][s] for s in steps]
        self.send(segment, steps, {TRAIN: train, RATE: rate})  # type: ignore[dict-item]
        evaluated = [s for s in steps if s % 25 == 0]
        if evaluated:
            metrics: dict[str, list[float | str | None]] = {
                HELDOUT: [self.curves[HELDOUT][s] + sunk[s] / 3 + 0.06 * float(noise[s]) for s in evaluated]
            }
            for metric, curve in self.curves.items():
                if metric.startswith("downstream/"):
                    moved = zip(evaluated, rng.integers(-1, 2, len(evaluated)) / 48, strict=True)
                    metrics[metric] = [min(max(curve[s] + float(by), 0.0), 1.0) for s, by in moved]
            self.send(segment, evaluated, metrics)
        self._send_rows(segment, steps, POOL if double_shard else 10_000)

    def _send_rows(self, segment: str, steps: list[int], pool: int) -> None:
        for host in range(HOSTS):
            read = [(s, f"{host} {((s - 1) * ROWS_PER_HOST + k) % pool}") for s in steps for k in range(ROWS_PER_HOST)]
            body = {
                "kind": "rows",
                "host": host,
                "sample": 1,
                "steps": [step for step, _ in read],
                "hashes": [hashlib.blake2b(row.encode(), digest_size=8).hexdigest() for _, row in read],
                "seen": [[steps[0], steps[-1], ROWS_PER_HOST]],
            }
            self._post(segment, "fingerprints", body, process=host)

    def judge(self) -> None:
        """Judge everything that has news, now."""
        self._judge.judge_due()

    def _post(self, segment: str, kind: str, body: dict[str, object], process: int = 0) -> None:
        sent = self._sent(segment, kind, process)
        answer = self.client.post(f"/api/v1/segments/{segment}/{kind}", json=body | sent)
        assert answer.status_code == 202, answer.text

    def _sent(self, segment: str, kind: str, process: int) -> dict[str, object]:
        key = (segment, kind, process)
        seq = self._seqs[key]
        self._seqs[key] += 1
        return {"process": process, "seq": seq, "sent_at": time.time()}
