"""The hook against a service that is slow, refuses, forgets, breaks off, or is not there."""

from __future__ import annotations

import email.utils
import json
import math
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hook_service import CLOSE, FORGET, HANG, LOST, HookService, Reply
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trainer_hooks
from trainer_hooks import sender
from trainer_hooks.connection import Connection, parse_headers
from trainer_hooks.sync import sync

Make = Callable[[list[Reply]], HookService]


def log_steps(steps: int, **options: Any) -> trainer_hooks.FinishReport:
    run = trainer_hooks.start("run", project="project", **options)
    for step in range(1, steps + 1):
        run.log(step, {"loss": step / 2})
    return run.finish()


@pytest.mark.parametrize("trouble", [401, 403, 408, 429, 500, 502, 503, CLOSE, LOST, FORGET, 301, 418])
def test_passing_trouble_costs_nothing(scripted: Make, trouble: Reply) -> None:
    service = scripted(["ok", trouble, trouble, "ok"])
    report = log_steps(20)
    assert (report.left_in_spool, report.rejected, report.dropped) == (0, 0, 0)
    assert service.points() == [(step, "loss", step / 2) for step in range(1, 21)]
    assert len(service.bodies("finish")) == 1


@pytest.mark.parametrize("status", [400, 409, 413, 422])
def test_what_is_refused_is_kept_and_the_next_one_sent(
    scripted: Make, status: int, environment: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = scripted(["ok", status])
    run = trainer_hooks.start("run", project="project")
    run.event(1, "note", "refused")
    run.event(2, "note", "taken")
    report = run.finish()
    assert (report.sent, report.rejected, report.left_in_spool) == (3, 1, 0)
    assert [body["value"] for body in service.bodies("events")] == ["taken"]
    kept = [json.loads(line) for line in (environment / f"{run.segment_id}.0.rejected.jsonl").read_text().splitlines()]
    assert [(line["status"], line["kind"], line["body"]["value"]) for line in kept] == [(status, "events", "refused")]
    assert f"told to answer {status}" in caplog.text


def test_an_unknown_segment_is_put_again(service: HookService) -> None:
    run = trainer_hooks.start("run", project="project")
    run.log(1, {"loss": 1.0})
    service.wait_for(lambda s: s.points())
    service.segments.clear()  # the database was restored from yesterday
    run.log(2, {"loss": 2.0})
    report = run.finish()
    assert report.left_in_spool == report.rejected == 0
    assert service.points() == [(1, "loss", 1.0), (2, "loss", 2.0)]
    assert [method for method, *_ in service.requests].count("PUT") == 2


@pytest.mark.parametrize("refusal", [[404, 422], [404, 409, 404]])
def test_records_of_a_refused_segment_are_refused_with_it_and_can_be_sent_again(
    scripted: Make, caplog: pytest.LogCaptureFixture, refusal: list[Reply]
) -> None:
    service = scripted([refusal[1], *refusal, *refusal])
    run = trainer_hooks.start("run", project="project")
    run.log(1, {"loss": 1.0})
    report = run.finish()
    assert (report.rejected, report.left_in_spool) == (3, 0)  # the segment, the batch, the end
    assert len(service.requests) == 1 + 2 * len(refusal)
    assert service.points() == []
    assert caplog.text.count("refuses this run") == 1
    assert sync(service.url, again=True).accepted == 3
    assert service.points() == [(1, "loss", 1.0)]


def test_records_are_taken_again_once_their_segment_is(scripted: Make) -> None:
    service = scripted([422, 404, 422])
    run = trainer_hooks.start("run", project="project")
    run.event(1, "note", "refused with its segment")
    service.wait_for(lambda s: len(s.requests) == 3)
    run.log(2, {"loss": 1.0})  # the service was mended
    assert run.finish().rejected == 2
    assert service.points() == [(2, "loss", 1.0)]


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_honoured(scripted: Make, form: str) -> None:
    after = "1" if form == "seconds" else email.utils.formatdate(time.time() + 2, usegmt=True)
    service = scripted([(429, after)])
    started = time.time()
    assert log_steps(3).left_in_spool == 0
    gap = service.requests[1][3] - service.requests[0][3]
    assert gap >= (1.0 if form == "seconds" else math.floor(started + 2) - started - 0.1)


def test_a_service_that_comes_late_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    monkeypatch.setenv("PACENOTE_URL", f"http://127.0.0.1:{port}")
    run = trainer_hooks.start("run", project="project")
    for step in range(1, 6):
        run.log(step, {"loss": float(step)})
    assert run._pipeline is not None
    failing = run._pipeline.sender
    assert failing is not None
    while failing.failures < 3:
        run._pipeline.journal.changed.wait(0.01)
    service = HookService(port=port)
    try:
        service.wait_for(lambda s: len(s.points()) == 5)
        service.close()
        run.log(6, {"loss": 6.0})
        service = HookService(port=port)  # another one, that knows nothing of the segment
        report = run.finish()
        assert report.left_in_spool == 0
        assert service.points() == [(6, "loss", 6.0)]
    finally:
        service.close()


def test_finish_returns_in_time_when_the_service_hangs(
    scripted: Make, environment: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = scripted([HANG])
    run = trainer_hooks.start("run", project="project")
    run.log(1, {"loss": 1.0})
    started = time.monotonic()
    report = run.finish(timeout=0.5)
    assert time.monotonic() - started < 5.0  # of the 20 that the service would take
    assert (report.sent, report.left_in_spool) == (0, 3)
    assert f"3 records are not sent yet; they are in {environment}" in caplog.text
    assert f"python -m trainer_hooks.sync {service.url}" in caplog.text
    assert run.finish() is report


def test_connections_are_kept_and_bodies_packed(service: HookService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACENOTE_TOKEN", "secret")
    monkeypatch.setenv("PACENOTE_HEADERS", "X-Team=a%2Cb,X-Other=1")
    run = trainer_hooks.start("run", project="project")
    for step in range(200):
        run.log(step, {"train/ce_loss": 2.0, "optim/learning_rate": 1e-3})
    run.finish()
    assert len(service._open) == 1
    headers = service.requests[1][2]
    assert headers["Authorization"] == "Bearer secret"
    assert headers["X-Team"] == "a,b"
    assert headers["Content-Encoding"] == "gzip"


def test_a_connection_closed_while_idle_is_opened_anew_at_once(scripted: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "FIRST_WAIT", 60.0)
    monkeypatch.setattr(sender, "LONGEST_WAIT", 60.0)
    service = scripted(["ok", LOST, LOST])  # the first fails on a kept connection, the second on a new one
    run = trainer_hooks.start("run", project="project")
    service.wait_for(lambda s: s.segments)
    run.log(1, {"loss": 1.0})
    service.wait_for(lambda s: len(s.requests) == 3)
    assert run.finish().left_in_spool == 0  # closing cuts a back-off short
    assert service.duplicates == 2


@pytest.mark.parametrize("text", ["X-Team", "=1", "X=a%0D%0Ab"])
def test_bad_headers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PACENOTE_HEADERS"):
        parse_headers(text)


values = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**53), 2**53)
calls = st.lists(
    st.tuples(st.integers(0, 50), st.dictionaries(st.sampled_from(["a", "b", "é/loss", 'q"\\']), values, max_size=3)),
    max_size=25,
)
answers: st.SearchStrategy[list[Reply]] = st.lists(
    st.sampled_from(["ok", 500, 503, 429, 401, 408, CLOSE, LOST, FORGET]), max_size=12
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=calls, script=answers, pauses=st.sets(st.integers(0, 24)))
def test_any_calls_arrive_once_and_in_order_whatever_the_answers(
    scripted: Make, calls: list[tuple[int, dict[str, Any]]], script: list[Reply], pauses: set[int]
) -> None:
    service = scripted(script)
    run = trainer_hooks.start("run", project="project", strict=True)
    for i, (step, metrics) in enumerate(calls):
        run.log(step, metrics)
        if i in pauses:
            time.sleep(0.01)  # so that the calls fall into several records
    report = run.finish()
    assert (report.left_in_spool, report.rejected, report.dropped, dict(report.counts)) == (0, 0, 0, {})
    arrived = [(step, name, value) for step, name, value in service.points()]
    wire = {math.inf: "Infinity", -math.inf: "-Infinity"}
    expected = [
        (step, name, "NaN" if math.isnan(value) else wire.get(value, float(value)))
        for step, metrics in calls
        for name, value in metrics.items()
    ]
    # Within a row the columns may come in another order.
    assert sorted(map(repr, arrived)) == sorted(map(repr, expected))
    assert [step for step, *_ in arrived] == [step for step, *_ in expected]
    for name in ("a", "b", "é/loss", 'q"\\'):
        assert [repr(p) for p in arrived if p[1] == name] == [repr(p) for p in expected if p[1] == name]
    service.close()


def test_a_fault_in_the_sending_thread_does_not_end_it(service: HookService, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = sender.Sender._deliver
    faults = iter([RuntimeError("a"), MemoryError("b")])

    def faulty(self: sender.Sender, record: Any) -> Any:
        for fault in faults:
            raise fault
        return deliver(self, record)

    monkeypatch.setattr(sender.Sender, "_deliver", faulty)
    assert log_steps(3).left_in_spool == 0
    assert len(service.points()) == 3


NAME = "pacenote.example"  # what the tests resolve to this machine; loopback never goes through a proxy


def make_certificate(path: Path) -> None:
    """Writes a certificate for NAME, and its key, by the openssl command (Debian has it)."""
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN={NAME} -addext subjectAltName=DNS:{NAME}"
    subprocess.run([*command.split(), "-keyout", str(path), "-out", f"{path}.crt"], check=True, capture_output=True)
    with path.open("a") as file:
        file.write(Path(f"{path}.crt").read_text())


class ConnectProxy:
    """The least a proxy does: CONNECT, or one request with an absolute address."""

    def __init__(self) -> None:
        self.first_lines: list[str] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(1)
            line = head.decode().splitlines()[0]
            self.first_lines.append(line)
            host = line.split()[1].removeprefix("http://").split("/")[0]
            upstream = socket.create_connection(("127.0.0.1", int(host.split(":")[1])))
            if line.startswith("CONNECT"):
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                upstream.sendall(head.replace(f"http://{host}".encode(), b"", 1))
            for source, target in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            one.close()

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_proxies_and_certificates_of_the_environment_are_honoured(
    service: HookService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str
) -> None:
    certificate = tmp_path / "localhost.pem"
    proxy = ConnectProxy()
    if scheme == "https":
        make_certificate(certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        service.server.socket = context.wrap_socket(service.server.socket, server_side=True)
    monkeypatch.setenv(f"{scheme.upper()}_PROXY", f"http://user:p%40ss@127.0.0.1:{proxy.port}")
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **more: resolve("127.0.0.1" if host == NAME else host, *rest, **more)
    )
    url = f"{scheme}://{NAME}:{service.port}"
    body = b'{"project":"p"}'
    if scheme == "https":
        distrusting = Connection(url).request("PUT", "/api/v1/segments/a", body)
        assert distrusting.status == 0
        assert "CERTIFICATE_VERIFY_FAILED" in distrusting.detail
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert Connection(url).request("PUT", "/api/v1/segments/a", body).accepted
    assert proxy.first_lines[-1].split()[0] == ("CONNECT" if scheme == "https" else "PUT")
    seen = len(proxy.first_lines)
    monkeypatch.setenv("NO_PROXY", "example")
    assert Connection(url).request("PUT", "/api/v1/segments/a", body).accepted
    assert len(proxy.first_lines) == seen
    proxy.close()
