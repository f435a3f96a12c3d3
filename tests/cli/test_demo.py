"""How the demo begins and ends: its port, its surroundings, and that nothing is left running whatever ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from serving import PACENOTE, environment, one_line, run

from service.cli.demo import Demo
from service.cli.demo.processes import Child, DemoError, ServiceChild, free_port
from service.cli.demo.receiver import ChatReceiver

SLEEPER = "import sys, time\nprint('ready', flush=True)\ntime.sleep(300)\n"


def ended(pid: int) -> bool:
    """Whether a process that is not our child is gone (or only waits to be collected)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until_ended(pid: int) -> None:
    """Return when the process is gone, whoever its parent is."""
    subprocess.run(["tail", f"--pid={pid}", "-f", "/dev/null", "-s", "0.05"], timeout=30, check=False)
    assert ended(pid)


@pytest.fixture
def sleeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module `sleeper` that a child can run."""
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = run("demo", "--port", str(port))
    assert result.returncode == 2
    assert one_line(result.stderr)
    assert f"port {port}: Address already in use" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_no_such_port(port: str) -> None:
    result = run("demo", f"--port={port}")
    assert result.returncode == 2
    assert one_line(result.stderr)


def test_a_free_port() -> None:
    port = free_port(0)
    assert port > 0
    assert free_port(port) == port


def test_a_child_is_told_to_end_and_its_surroundings_are_clean(sleeper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PACENOTE_TOKEN", "HTTP_PROXY", "https_proxy", "JAX_ENABLE_X64", "XLA_FLAGS"):
        monkeypatch.setenv(name, "elsewhere")
    (sleeper / "surroundings.py").write_text(
        "import os\nprint('elsewhere' in os.environ.values(), os.environ['OWN'])\n"
    )
    child = Child(["surroundings"], {"OWN": "own"}, sleeper / "log")
    assert child.process.wait(30) == 0
    assert child.end() == 0
    assert (sleeper / "log").read_text() == "False own\n"

    child = Child(["sleeper"], {}, sleeper / "log", read=True)
    assert child.process.stdout is not None
    assert child.process.stdout.readline() == b"ready\n"
    assert child.end() == -signal.SIGINT


def test_a_child_ends_with_a_parent_that_was_killed(sleeper: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom service.cli.demo.processes import Child\n"
        f"child = Child(['sleeper'], {{}}, Path({str(sleeper / 'log')!r}), read=True)\n"
        "child.process.stdout.readline()\nprint(child.process.pid, flush=True)\ntime.sleep(300)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert not ended(child)
    parent.kill()
    parent.communicate(timeout=30)
    wait_until_ended(child)


def test_ctrl_c_ends_everything_however_often_it_is_pressed(tmp_path: Path) -> None:
    folder = tmp_path / "temporary ünï"
    folder.mkdir()
    dead_proxy = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "ALL_PROXY": "socks5://x:1"}
    demo = subprocess.Popen(
        [*PACENOTE, "demo", "--port", "0"],
        env=environment(TMPDIR=str(folder), COLUMNS="200", **dead_proxy),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert demo.stdout is not None
        line = next(line for line in demo.stdout if "Dashboard" in line or "Demo failed" in line)
        assert "http://127.0.0.1:" in line
        port = int(line.split("http://127.0.0.1:")[1].split()[0])
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            demo.send_signal(number)
        rest = demo.stdout.read()
        assert demo.wait(60) == 0
        assert rest.rstrip().endswith("Ending.")
        assert "Traceback" not in rest
        assert free_port(port) == port
        assert list(folder.iterdir()) == [], "its files are removed"
    finally:
        demo.kill()
        demo.communicate(timeout=60)


def test_a_service_that_dies_is_one_clear_failure(tmp_path: Path) -> None:
    service = ServiceChild(tmp_path, free_port(0))
    try:
        service.wait_until_ready()
        assert service.ask("GET", "/channels") == {"items": []}
        with pytest.raises(DemoError, match="404"):
            service.ask("GET", "/nothing")
        os.kill(service.process.pid, signal.SIGKILL)
        service.process.wait(30)
        with pytest.raises(DemoError, match="did not answer GET /channels"):
            service.ask("GET", "/channels")
        with pytest.raises(DemoError, match="ended with status -9"):
            service.check()
    finally:
        service.end()


def test_an_alert_is_shown_with_its_address_whole(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from rich.console import Console

    from service.cli.demo.receiver import Received

    url = "http://127.0.0.1:8350/alerts/" + "f7741e45-9eed-4fcf-b854-2241beff02b7"
    facts = [{"label": "Since", "text": "step 101 [103 K tokens]"}]
    body = {"type": "alert.firing", "data": {"title": "run [x]: rows repeat", "facts": facts, "alert": {"url": url}}}
    receiver = ChatReceiver()
    try:
        receiver.messages.put(Received("msg_1", body, genuine=True))
        demo = Demo(Console(width=60), tmp_path, 8350, healthy=False)
        assert demo._show_next(receiver, 1.0)
    finally:
        receiver.close()
    said = capsys.readouterr().out
    assert url in said
    assert "step 101 [103 K tokens]" in said
    assert "run [x]: rows repeat" in said
