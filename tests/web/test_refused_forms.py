"""A form that is refused is shown again: what was typed, and what was wrong beside its field."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import pytest

from tests.web.reading import HOSTILE, text_of
from tests.web.world import World

OWN = {"Sec-Fetch-Site": "same-origin"}


class Fields(HTMLParser):
    """The fields of a page's forms: what each holds, and what is said to be wrong with it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.held: dict[str, str] = {}
        self.described: dict[str, str] = {}
        self._select = ""
        self.feed(html)
        self.wrong = {
            name: unescape(re.sub(r"<[^>]+>", "", found.group(1)))
            for name, place in self.described.items()
            if (found := re.search(f'id="{place}">(.*?)</span>', html))
        }

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        name = found.get("name") or ""
        if tag == "select":
            self._select = name
        if tag == "input" and name:
            self.held[name] = found.get("value") or ""
        if tag == "option" and "selected" in found:
            self.held[self._select] = found["value"] or ""
        if found.get("aria-invalid") == "true":
            self.described[name] = found["aria-describedby"] or ""


def refuse(world: World, path: str, status: int = 422, **form: str) -> tuple[Fields, str]:
    """Send a form that is not taken: its fields, and the page."""
    answer = world.client.post(path, data=form, headers=OWN)
    assert answer.status_code == status
    fields = Fields(answer.text)
    assert {name: fields.held[name] for name in form} == form
    assert "Nothing was changed." in text_of(answer.text)
    assert "<script>alert" not in answer.text
    return fields, answer.text


def home_of(page: str) -> str:
    found = re.search(r'data-home="([^"]*)"', page)
    assert found
    return unescape(found.group(1))


@pytest.mark.parametrize("whose", ["run", "project"])
def test_a_rule(incident: World, whose: str) -> None:
    run = incident.run_id("v7x")
    base, query, home = f"/settings/runs/{run}/rules", "", f"/settings/runs/{run}"
    if whose == "project":
        base, query, home = "/settings/project/rules", "?name=lab", "/settings/project?name=lab"
    typed = {"rule": "train_drift", "enabled": "yes", "mute": "24", "reason": HOSTILE, "by": "Ada"}
    fields, page = refuse(incident, f"{base}/save{query}", **typed, tolerance="much", minimum_evidence="7")
    assert list(fields.wrong) == ["tolerance"]
    assert "number" in fields.wrong["tolerance"]
    assert home_of(page) == home
    assert incident.client.get(home).status_code == 200
    fields, _ = refuse(incident, f"{base}/save{query}", rule="train_drift", tolerance="0.5")
    assert fields.wrong == dict.fromkeys(("by", "reason"), "This is needed.")
    _, page = refuse(incident, f"{base}/save{query}", rule="train_drift", by="Ada", reason="x")
    assert "sets nothing" in text_of(page)  # wrong with no field of its own


def test_a_trial_keeps_what_was_typed(incident: World) -> None:
    path = f"/settings/runs/{incident.run_id('v7x')}/rules/try"
    typed = {"rule": "plateau", "tolerance": "0.25", "enabled": "yes", "reason": "a reason", "by": "Ada"}
    answer = incident.client.post(path, data=typed | {"rule": "train_drift"}, headers=OWN)
    assert answer.status_code == 200
    held = Fields(answer.text).held
    assert {name: held[name] for name in typed} == typed | {"rule": "train_drift"}
    fields, _ = refuse(incident, path, **typed | {"tolerance": "0,25"})
    assert list(fields.wrong) == ["tolerance"]


def test_a_channel(incident: World) -> None:
    typed = {"name": HOSTILE, "kind": "webhook", "project": "lab", "min_severity": "critical", "group_by": "run"}
    fields, page = refuse(incident, "/settings/channels", **typed, url="ftp://example.org")
    assert list(fields.wrong) == ["url"]
    assert home_of(page) == "/settings"
    assert incident.client.get("/api/v1/channels").json()["items"] == []


def test_a_note(incident: World) -> None:
    run = incident.run_id("v7x")
    fields, page = refuse(incident, f"/runs/{run}/notes", text=HOSTILE, step="12x", by="Ada")
    assert list(fields.wrong) == ["step"]
    assert home_of(page) == f"/runs/{run}"
    assert incident.client.get(f"/api/v1/runs/{run}/notes").json()["items"] == []


def test_an_action_on_an_alert(incident: World) -> None:
    (alert,) = incident.client.get("/api/v1/alerts").json()["items"]
    fields, page = refuse(incident, f"/alerts/{alert['id']}/comment", by=HOSTILE, note="", assignee="Grace")
    assert fields.wrong == {"note": "write something"}
    assert home_of(page) == f"/alerts/{alert['id']}"
    fields, _ = refuse(incident, f"/alerts/{alert['id']}/mute", by="Ada", note="till Monday")
    assert list(fields.wrong) == ["hours"]
