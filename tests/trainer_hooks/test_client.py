"""The client against a real service: frames, exact values, a live tail, bounded retries."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.cli.serving import Serving
from tests.ingest.store_client import Store
from trainer_hooks import client as client_module
from trainer_hooks import frames
from trainer_hooks.client import Client, ClientError, Update

TRAIN, HELDOUT = "train/ce_loss", "heldout/lab/ce_loss"
TOKEN = "a-token-of-twenty-three"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    serving = Serving(tmp_path_factory.mktemp("client"), PACENOTE_TOKEN=TOKEN)
    yield serving
    serving.kill()


@pytest.fixture(scope="module")
def store(service: Serving) -> Iterator[Store]:
    with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        yield Store(http, "lab")


@pytest.fixture(params=["arrow", "json"])
def client(service: Serving, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Client:
    if request.param == "json":
        monkeypatch.setattr(client_module, "find_spec", lambda name: None)
    return Client(service.url, TOKEN)


def send(store: Store, name: str, **more: Any) -> str:
    """A run of 10 steps, with a restart from step 5."""
    segment = store.start(name, reference="lab", tokens_per_step=100, **more)
    values: list[float | None] = [float("nan"), float("inf"), -0.0, 1 / 3, *(1.0 * step for step in range(5, 11))]
    assert store.batch(segment, list(range(1, 11)), {TRAIN: values, HELDOUT: [None] * 9 + [2.5]}).status_code == 202
    second = store.start(name, reference="lab", tokens_per_step=100, start_step=5, **more)
    assert store.batch(second, [6, 7], {TRAIN: [60.0, 70.0]}).status_code == 202
    return store.run(name)


def test_frames_are_exact(store: Store, client: Client) -> None:
    run = send(store, f"frames-{time.time()}")
    frame = client.series(run)
    assert dict(frame.dtypes.astype(str)) == {
        "metric": "category",
        "step": "int64",
        "tokens": "float64",
        "value": "float64",
    }
    train = frame[frame.metric == TRAIN]
    assert train.step.tolist() == [1, 2, 3, 4, 5, 6, 7]
    np.testing.assert_array_equal(train.value, [np.nan, np.inf, -0.0, 1 / 3, 5.0, 60.0, 70.0])
    assert np.signbit(train.value.iloc[2])
    assert train.tokens.tolist() == [100.0 * step for step in range(1, 8)]
    assert client.series(run, TRAIN, from_step=2, to_step=3).step.tolist() == [2, 3]
    every = client.series(run, [TRAIN], superseded=True)
    assert (len(every), int(every.live.sum()), every.segment.nunique()) == (12, 7, 2)
    wide = client.series(run, wide=True)
    assert list(wide.columns) == [HELDOUT, TRAIN]
    assert wide.loc[6, TRAIN] == 60.0
    assert client.series(run, []).empty
    assert client.metrics(run) == [HELDOUT, TRAIN]


def test_what_is_known_of_runs(store: Store, client: Client, service: Serving) -> None:
    name = f"known-{time.time()}"
    run = send(store, name)
    assert run == Client.run_id("lab", name)
    runs = client.runs("lab", "reproduction")
    assert runs.loc[run, "name"] == name
    assert str(runs.created_at.dtype).startswith("datetime64")
    assert len(client.runs(role="reference")) >= 2
    deadline = time.monotonic() + 60
    while (found := client.judgements(run)).empty:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert found.loc["non_finite", "state"] == "yes"
    assert "finite" in found.loc["non_finite", "summary"]
    while (alerts := client.alerts(run)).empty:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert alerts.iloc[0].run == run
    gap = client.gap(run, points=5)
    assert list(gap.columns) == ["first_step", "last_step", "first_tokens", "last_tokens", "gap", "low", "high", "n"]
    assert gap.attrs["reference"] == "lab"
    assert client.events(run).empty


def test_a_live_tail(store: Store, client: Client) -> None:
    """New points come with their values, also those of a restart; nothing comes twice."""
    name = f"tail-{time.time()}"
    segment = store.start(name, tokens_per_step=100)
    assert store.batch(segment, [1, 2, 3], {TRAIN: [1.0, 2.0, 3.0]}).status_code == 202
    updates = client.tail(store.run(name), from_step=2)
    hello = next(updates)
    assert (hello.kind, points(hello)) == ("hello", [(2, 2.0), (3, 3.0)])
    assert store.batch(segment, [4, 5], {TRAIN: [4.0, 5.0], HELDOUT: [None, 9.0]}).status_code == 202
    assert collected(updates, 3) == [(4, 4.0), (5, 5.0), (5, 9.0)]
    second = store.start(name, tokens_per_step=100, start_step=3)
    assert store.batch(second, [4], {TRAIN: [4.5]}).status_code == 202
    assert collected(updates, 1) == [(4, 4.5)]
    only_new = client.tail(store.run(name), TRAIN)
    assert points(next(only_new)) == []


def points(update: Update) -> list[tuple[int, float]]:
    assert update.points is not None
    return sorted(zip(update.points["step"].tolist(), update.points["value"].tolist(), strict=True))


def collected(updates: Iterator[Update], count: int) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []
    while len(found) < count:
        update = next(updates)
        found += points(update) if update.points is not None else []
    return sorted(found)


def test_refusals(service: Serving, store: Store) -> None:
    with pytest.raises(ClientError, match="token") as refused:
        Client(service.url, "wrong-token-wrong-token").runs()
    assert refused.value.status == 401
    client = Client(service.url, TOKEN)
    with pytest.raises(ClientError, match="no run") as refused:
        client.series("00000000-0000-0000-0000-000000000000", "x")
    assert refused.value.status == 404
    with pytest.raises(ClientError) as refused:
        next(client.tail("no-id"))
    assert refused.value.status in (404, 422)
    with pytest.raises(ValueError, match="no address"):
        Client("")
    with pytest.raises(ValueError, match="address of a service"):
        Client("localhost:8350")
    with pytest.raises(ValueError, match="one value per metric"):
        client.series("x", superseded=True, wide=True)


class Moody(BaseHTTPRequestHandler):
    """Answers 503 `bad` times, then an empty page."""

    bad, asked = 0, 0
    retry_after: str | None = None

    def do_GET(self) -> None:
        type(self).asked += 1
        good = self.asked > self.bad
        body = b'{"items": [], "next_cursor": null}' if good else json.dumps({"detail": "not now"}).encode()
        self.send_response(200 if good else 503)
        if self.retry_after and not good:
            self.send_header("Retry-After", self.retry_after)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        """Says nothing."""


@pytest.mark.parametrize(("bad", "retries"), [(2, 2), (3, 2)])
def test_retries_are_bounded(monkeypatch: pytest.MonkeyPatch, bad: int, retries: int) -> None:
    waits: list[float] = []
    monkeypatch.setattr(client_module.time, "sleep", waits.append)
    handler = type("Handler", (Moody,), {"bad": bad, "retry_after": "7"})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        client = Client(f"http://127.0.0.1:{server.server_address[1]}", "", retries=retries)
        if bad > retries:
            with pytest.raises(ClientError, match="not now"):
                client.runs()
        else:
            assert client.runs().empty
    finally:
        server.shutdown()
        server.server_close()
    assert handler.asked == retries + 1
    assert waits == [7.0, 7.0], "as the service asked"


@pytest.mark.parametrize(("asked", "least", "most"), [("86400", 60.0, 60.0), ("nan", 0.25, 0.5), ("soon", 0.25, 0.5)])
def test_a_wait_is_a_bounded_number(monkeypatch: pytest.MonkeyPatch, asked: str, least: float, most: float) -> None:
    waits: list[float] = []
    monkeypatch.setattr(client_module.time, "sleep", waits.append)
    handler = type("Handler", (Moody,), {"bad": 1, "retry_after": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        Client(f"http://127.0.0.1:{server.server_address[1]}", "", retries=1).runs()
    finally:
        server.shutdown()
        server.server_close()
    assert len(waits) == 1
    assert least <= waits[0] <= most


def test_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module.time, "sleep", lambda seconds: None)
    with pytest.raises(ClientError, match="does not answer") as refused:
        Client("http://127.0.0.1:9", "", retries=1).runs()
    assert refused.value.status == 0


def test_imports_nothing_but_numpy(tmp_path: Path) -> None:
    code = "import sys, trainer_hooks.client; print([m for m in ('pandas', 'pyarrow', 'httpx') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_pandas_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_pandas(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(frames, "import_module", without_pandas)
    with pytest.raises(ImportError, match="pip install pandas"):
        frames.table([], None)


def test_audits(store: Store, client: Client) -> None:
    """Ten steps of eight rows; from step 6 on the rows of step 1 again and again."""
    name = f"audit-{time.time()}"
    segment = store.start(name, tokens_per_step=100, data={"rows": 80, "epochs": 1})
    assert client.audit(store.run(name)) is None
    steps = [step for step in range(1, 11) for _ in range(8)]
    hashes = [f"{(1 if step > 5 else step) * 100 + row:016x}" for step in range(1, 11) for row in range(8)]
    body = {"kind": "rows", "host": 0, "sample": 1, "steps": steps, "hashes": hashes, "seen": [[1, 10, 8]]}
    assert store.post(segment, "fingerprints", **body).status_code == 202
    audit = client.audit(store.run(name))
    assert audit is not None
    counts = {key: audit[key] for key in ("readings", "distinct", "repeats", "rows_read", "distinct_rows", "steps")}
    assert counts == {"readings": 80, "distinct": 40, "repeats": 40, "rows_read": 80, "distinct_rows": 40, "steps": 10}
    assert (audit["coverage"], audit["declared_rows"], audit["onset"]) == (0.5, 80, [6, 6])
    assert audit["share"] == 1.0
    assert audit["pattern"]["own_host"] == 1.0
    assert (audit["windows"], audit["heldout"], audit["same_rows"]) == (None, [], None)
    assert any("No held-out set is looked for" in text for text in audit["unseen"])
    again = store.start(f"{name} again", tokens_per_step=100)
    assert store.post(again, "fingerprints", **body).status_code == 202
    beside = client.audit(store.run(f"{name} again"), against=store.run(name))
    assert beside is not None
    assert (beside["same_rows"]["through"], beside["same_rows"]["differs"]) == (10, None)
    table = client.audits("lab")
    assert table.loc[store.run(name), "repeats"] == 40


def test_references(client: Client) -> None:
    references = client.references()
    assert {"lab", "olmo3-7b"} <= set(references.index)
    found = client.reference("lab")
    assert found["slug"] == "lab"
    assert client.reference("lab", found["version"])["digest"] == found["digest"]
    with pytest.raises(ClientError, match="no reference nothing"):
        client.reference("nothing")
    curve = next(curve for curve in found["curves"] if not curve["sibling"])
    assert len(client.series(curve["run"], TRAIN, to_step=5)) == 5


def test_a_tail_outlives_the_service(tmp_path: Path) -> None:
    """kill -9 of the service, data that a restarted one takes, and the tail goes on without a gap or a repeat."""
    first = Serving(tmp_path)
    port = first.url.rpartition(":")[2]
    with httpx.Client(base_url=first.url) as http:
        store = Store(http, "lab")
        segment = store.start("tail", tokens_per_step=100)
        updates = Client(first.url, "", retries=30).tail(store.run("tail"), TRAIN, from_step=0)
        assert points(next(updates)) == []
        assert store.batch(segment, [1, 2], {TRAIN: [1.0, 2.0]}).status_code == 202
        assert collected(updates, 2) == [(1, 1.0), (2, 2.0)]
        first.kill()
        second = Serving(tmp_path, "--port", port)
        try:
            assert store.batch(segment, [3], {TRAIN: [3.0]}).status_code == 202
            assert collected(updates, 1) == [(3, 3.0)]
            assert store.batch(segment, [4], {TRAIN: [4.0]}).status_code == 202
            assert collected(updates, 1) == [(4, 4.0)]
        finally:
            updates.close()  # type: ignore[attr-defined]
            second.kill()


def test_this_machine_is_not_asked_through_a_proxy(service: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert not Client(service.url, TOKEN, retries=0).references().empty


def test_segments(store: Store, client: Client) -> None:
    name = f"starts {uuid.uuid4()}"
    segment = store.start(name, topology={"devices": 8, "device_kind": "TPU v5p"}, started_at=1_796_000_000.0)
    store.batch(segment, [1, 2], {"throughput/tokens_per_second_per_device": [100.0, 200.0]})
    store.start(name, topology={"devices": 4, "device_kind": "TPU v5p"}, start_step=2, started_at=1_796_000_100.0)
    frame = client.segments(store.run(name))
    assert frame.index[0] == segment
    assert frame.device_kind.tolist() == ["TPU v5p"] * 2
    assert frame.tokens_per_second_per_device.iloc[0] == 150.0
    assert frame.mfu_exact.isna().all()  # no configuration, so no shape
    assert frame.changes.iloc[1] == [{"name": "topology.devices", "before": 8, "after": 4}]
