"""Settings: channels with a test message, rules and tolerances, and what a change would have raised."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from html import unescape
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from delivery_world import DeliveryWorld

from tests.web.conftest import make_settings, serving
from tests.web.reading import HOSTILE, text_of
from tests.web.world import World

OWN = {"Sec-Fetch-Site": "same-origin"}


class Receiver(BaseHTTPRequestHandler):
    """Takes whatever is posted."""

    got: list[dict[str, object]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append(json.loads(body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[dict[str, object]]]]:
    """A chat on loopback: its address, and what it got."""
    got: list[dict[str, object]] = []
    server = HTTPServer(("127.0.0.1", 0), type("Mine", (Receiver,), {"got": got}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got
    server.shutdown()
    server.server_close()


@pytest.fixture
def open_world(tmp_path: Path, incident_file: Path) -> Iterator[World]:
    """The incident, in a service that may send to this machine."""
    with serving(make_settings(tmp_path, incident_file, allow_private_channels=True)) as world:
        yield world


def post(world: World, path: str, **form: str) -> str:
    """Send a form; the text of the page that follows."""
    answer = world.client.post(path, data=form, headers=OWN)
    if answer.status_code == 303:
        answer = world.client.get(answer.headers["location"])
    return text_of(answer.text)


def test_a_channel_is_added_tested_switched_and_removed(
    open_world: World, receiver: tuple[str, list[dict[str, object]]]
) -> None:
    address, got = receiver
    assert "reach no chat" in text_of(open_world.client.get("/settings").text)
    added = post(
        open_world,
        "/settings/channels",
        name=HOSTILE,
        kind="webhook",
        url=address,
        project="lab",
        min_severity="warning",
    )
    assert "whsec_" in added
    assert HOSTILE in added
    page = open_world.client.get("/settings").text
    assert "whsec_" not in page
    assert HOSTILE not in page
    assert "warning and worse of lab" in text_of(page)
    (channel,) = open_world.client.get("/api/v1/channels").json()["items"]
    path = f"/settings/channels/{channel['id']}"
    assert "The test message arrived" in post(open_world, f"{path}/test")
    assert len(got) == 1
    assert "Switch on" in post(open_world, f"{path}/off")
    assert "Switch off" in post(open_world, f"{path}/on")
    assert "no action" in post(open_world, f"{path}/explode")
    assert "reach no chat" in post(open_world, f"{path}/remove")


def test_what_was_given_up_is_sent_again_from_the_page(open_world: World) -> None:
    post(open_world, "/settings/channels", name="lost", kind="webhook", url="http://127.0.0.1:9/hook")
    (channel,) = open_world.client.get("/api/v1/channels").json()["items"]
    deliveries = DeliveryWorld(open_world.context.engine)
    deliveries.alert()
    for delivery in deliveries.deliveries():
        deliveries.failed(delivery.id)
    assert "1 given up" in text_of(open_world.client.get("/settings").text)
    page = post(open_world, f"/settings/channels/{channel['id']}/replay")
    assert "1 message will be sent again" in page
    assert "1 waiting" in page


def test_a_test_message_that_does_not_arrive_says_why(open_world: World) -> None:
    post(open_world, "/settings/channels", name="dead", kind="webhook", url="http://127.0.0.1:9/hook")
    (channel,) = open_world.client.get("/api/v1/channels").json()["items"]
    assert "did not arrive" in post(open_world, f"/settings/channels/{channel['id']}/test")


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"name": "", "kind": "slack", "url": "https://hooks.slack.com/x"}, "name"),
        ({"name": "x", "kind": "pigeon", "url": "https://example.org"}, "kind"),
        ({"name": "x", "kind": "webhook", "url": "ftp://example.org"}, "url"),
        ({"name": "x", "kind": "webhook", "url": "https://example.org", "project": "nowhere"}, "nowhere"),
    ],
)
def test_a_channel_that_cannot_be_says_why(incident: World, form: dict[str, str], why: str) -> None:
    assert why in post(incident, "/settings/channels", **form)
    assert incident.client.get("/api/v1/channels").json()["items"] == []


def test_other_sites_cannot_change_settings(incident: World) -> None:
    for path in ("/settings/channels", "/settings/project/rules/save?name=lab"):
        answer = incident.client.post(path, data={"name": "x"}, headers={"Sec-Fetch-Site": "cross-site"})
        assert answer.status_code == 403


def test_a_rule_is_tried_set_and_taken_back_for_a_run(incident: World) -> None:
    run = incident.run_id("v7x")
    path = f"/settings/runs/{run}/rules"
    before = text_of(incident.client.get(f"/settings/runs/{run}").text)
    assert "every rule counts as shipped" in before
    tried = post(incident, f"{path}/try", rule="train_drift", tolerance="0.5")
    assert "What this would have raised: Train drift" in tried
    assert "Nothing was saved" in tried
    assert "every rule counts as shipped" in tried
    refused = post(incident, f"{path}/save", rule="train_drift", tolerance="0.5", by="Ada")
    assert "reason" in refused
    saved = post(incident, f"{path}/save", rule="train_drift", tolerance="0.5", by=HOSTILE, reason="known shift")
    assert "as shipped → tolerance 0.5" in saved
    assert "known shift" in saved
    assert "0.500 nats" in saved
    muted = post(incident, f"{path}/save", rule="train_drift", mute="24", by="Ada", reason="while we look")
    assert "muted until 20" in muted
    back = post(incident, f"{path}/reset", rule="train_drift", by="Ada", reason="done")
    assert "→ as shipped" in back
    assert "Nothing is set" in post(incident, f"{path}/reset", rule="train_drift", by="Ada")


def test_a_project_s_rules_count_for_its_runs(incident: World) -> None:
    assert "lab" in text_of(incident.client.get("/settings").text)
    saved = post(
        incident, "/settings/project/rules/save?name=lab", rule="plateau", enabled="no", by="Ada", reason="a short run"
    )
    assert "enabled False" in saved
    run = text_of(incident.client.get(f"/settings/runs/{incident.run_id('v7x')}").text)
    assert "off: " in run
    assert incident.client.get("/settings/project?name=nowhere").status_code == 404


@pytest.mark.parametrize("name", ["a/b", "..", "?name=lab&x", HOSTILE, "\N{LATIN SMALL LETTER E WITH ACUTE}" * 128])
def test_a_project_of_any_name_has_settings(world: World, name: str) -> None:
    world.start("x", project=name)
    found = re.findall(r'href="(/settings/project\?[^"]*)"', world.client.get("/settings").text)
    pages = [world.client.get(unescape(address)).text for address in found]
    (page,) = [page for page in pages if f"Rules of {name} " in text_of(page)]
    action = re.search(r'action="([^"]*/save[^"]*)"', page)
    assert action is not None
    form = {"rule": "plateau", "enabled": "no", "by": "Ada", "reason": "a short run"}
    assert "enabled False" in post(world, unescape(action.group(1)), **form)


def test_the_address_of_earlier_versions_leads_on(incident: World) -> None:
    answer = incident.client.get("/settings/projects/a%2Fb")
    assert (answer.status_code, answer.headers["location"]) == (308, "/settings/project?name=a%2Fb")


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"rule": "train_drift", "tolerance": "much"}, "tolerance"),
        ({"rule": "train_drift", "tolerance": "-1"}, "tolerance"),
        ({"rule": "no_such_rule", "tolerance": "1"}, "no_such_rule"),
        ({"rule": "non_finite", "tolerance": "1"}, "no tolerance of its own"),
        ({"rule": "train_drift"}, "sets nothing"),
    ],
)
def test_a_setting_that_cannot_be_says_why(incident: World, form: dict[str, str], why: str) -> None:
    path = f"/settings/runs/{incident.run_id('v7x')}/rules/save"
    assert why in post(incident, path, **form, by="Ada", reason="x")
