"""Under a sub-path behind a proxy, whether the proxy takes it off or leaves it on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from service.app import create_app
from tests.web.conftest import TOKEN, make_settings
from tests.web.world import World

ROOT = "/tools/pacenote"


@pytest.fixture(params=["taken off", "left on"])
def prefix(request: pytest.FixtureRequest) -> str:
    """What the path that arrives begins with."""
    return "" if request.param == "taken off" else ROOT


@pytest.fixture
def behind(tmp_path: Path, incident_file: Path) -> Iterator[TestClient]:
    """The incident, published under a sub-path."""
    app = create_app(make_settings(tmp_path, incident_file, public_url=f"https://example.org{ROOT}/"))
    with TestClient(app, base_url="https://example.org", follow_redirects=False) as client:
        yield client


def test_every_page_its_links_and_what_it_loads_work(behind: TestClient, prefix: str) -> None:
    run = World(behind, behind.app.state.context).run_id("v7x")
    (alert,) = behind.get("/api/v1/alerts").json()["items"]
    seen: set[str] = set()
    paths = ["/", f"/runs/{run}", "/alerts", f"/alerts/{alert['id']}", "/references", "/references/lab", "/settings"]
    for path in [*paths, f"/settings/runs/{run}", f"/compare?run={run}", f"/reports/{run}"]:
        page = behind.get(prefix + path)
        assert page.status_code == 200, path
        if not path.startswith("/reports"):  # a report stands by itself
            assert f'data-base="{ROOT}"' in page.text
        found = set(re.findall(r'(?:href|src|action|data-figures|data-fragment|formaction)="(/[^"]*)"', page.text))
        assert all(address.startswith(f"{ROOT}/") for address in found), found
        seen |= set(re.findall(r'(?:href|src|data-figures|data-fragment)="(/[^"]*)"', page.text))
    assert len(seen) > 20
    for address in seen:
        path = unescape(address).removeprefix(ROOT)
        answer = behind.get(prefix + path)
        assert answer.status_code == 200, address


def test_forms_lead_back_under_the_sub_path(behind: TestClient, prefix: str) -> None:
    run = World(behind, behind.app.state.context).run_id("v7x")
    answer = behind.post(f"{prefix}/runs/{run}/archive", headers={"Sec-Fetch-Site": "same-origin"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{ROOT}/runs/{run}#timeline")


def test_signing_in_leads_to_the_page_that_was_asked_for(tmp_path: Path, prefix: str) -> None:
    app = create_app(make_settings(tmp_path, token=SecretStr(TOKEN), public_url=f"https://example.org{ROOT}"))
    with TestClient(app, base_url="https://example.org", follow_redirects=False) as client:
        page = client.get(f"{prefix}/alerts?cursor=x")
        assert page.status_code == 401
        wanted = re.search(r'name="next" value="([^"]*)"', page.text)
        assert wanted is not None
        assert wanted.group(1) == "/alerts?cursor=x"
        form = {"token": TOKEN, "next": wanted.group(1)}
        answer = client.post(f"{prefix}/login", data=form, headers={"Sec-Fetch-Site": "same-origin"})
        assert answer.headers["location"] == f"{ROOT}/alerts?cursor=x"
        assert client.get(f"{prefix}/alerts").status_code == 200
