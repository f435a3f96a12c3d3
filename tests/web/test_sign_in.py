"""With a token set nothing is shown before signing in, and forms of other sites do nothing."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from service.auth.token import COOKIE
from tests.web.conftest import TOKEN
from web import guard, pages

SAME = {"Sec-Fetch-Site": "same-origin"}
NOWHERE = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    "address", ["/", "/runs", f"/runs/{NOWHERE}?x=steps", "/alerts", f"/alerts/{NOWHERE}", "/references"]
)
def test_pages_show_the_sign_in_form_instead(locked: TestClient, address: str) -> None:
    answer = locked.get(address)
    assert answer.status_code == 401
    assert 'name="token"' in answer.text
    assert f'name="next" value="{address}"' in answer.text.replace("&amp;", "&")
    assert "Sign out" not in answer.text


def test_every_route_of_the_pages_is_guarded(locked: TestClient) -> None:
    """Whatever is added later: without the token there is the form, or a problem body."""
    routes = [
        route for router in (pages.pages, pages.figures) for route in router.routes if isinstance(route, APIRoute)
    ]
    assert len(routes) >= 10
    for route in routes:
        path = (
            route.path.replace("{uuid}", NOWHERE)
            .replace("{slug}", "x")
            .replace("{name}", "loss")
            .replace("{stage}", "x")
        )
        for method in route.methods:
            assert locked.request(method, path, headers=SAME).status_code == 401, path


def test_figures_answer_as_the_api_does(locked: TestClient) -> None:
    answer = locked.get(f"/pages/runs/{NOWHERE}/figures/loss")
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"


def test_signing_in_and_out(locked: TestClient) -> None:
    answer = locked.post("/login", data={"token": f" {TOKEN} ", "next": "/alerts?cursor=1"}, headers=SAME)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/alerts?cursor=1"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    page = locked.get("/")
    assert page.status_code == 200
    assert "Sign out" in page.text
    assert locked.get("/api/v1/runs").status_code == 200
    assert locked.post("/logout", headers=SAME).status_code == 303
    assert locked.get("/").status_code == 401


def test_cookie_is_secure_where_the_service_is_reached_by_https(locked: TestClient) -> None:
    https = TestClient(locked.app, base_url="https://testserver", follow_redirects=False)
    assert "Secure" in https.post("/login", data={"token": TOKEN}, headers=SAME).headers["set-cookie"]
    assert "Secure" not in locked.post("/login", data={"token": TOKEN}, headers=SAME).headers["set-cookie"]


def test_wrong_token(locked: TestClient) -> None:
    answer = locked.post("/login", data={"token": "wrong", "next": "/alerts"}, headers=SAME)
    assert answer.status_code == 401
    assert "That is not the token" in answer.text
    assert 'value="/alerts"' in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://evil.example"}, {}],
)
def test_forms_of_other_sites_are_refused(locked: TestClient, headers: dict[str, str]) -> None:
    assert locked.post("/login", data={"token": TOKEN}, headers=headers).status_code == 403
    assert locked.post("/logout", headers=headers).status_code == 403


def test_browsers_without_fetch_metadata_are_told_by_their_origin(locked: TestClient) -> None:
    answer = locked.post("/login", data={"token": TOKEN}, headers={"Origin": "http://testserver"})
    assert answer.status_code == 303


@pytest.mark.parametrize(
    "path", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/a\nb", "javascript:alert(1)"]
)
def test_the_way_on_never_leads_elsewhere(path: str) -> None:
    assert guard.local_path(path) == "/"


def test_large_forms_are_refused(locked: TestClient) -> None:
    assert locked.post("/login", data={"token": "x" * 5000}, headers=SAME).status_code == 413


def test_a_link_from_another_site_is_loaded_once_more_from_here(locked: TestClient) -> None:
    """The strict cookie is left out of such a request; the second one, from our own page, carries it."""
    answer = locked.get(f"/alerts/{NOWHERE}?a=1&b=%22", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 200
    assert f'content="0;url=/alerts/{NOWHERE}?a=1&amp;b=%22"' in answer.text
    assert TOKEN not in answer.text


def test_static_files_need_no_token(locked: TestClient) -> None:
    page = locked.get("/").text
    style = page.split('rel="stylesheet" href="')[1].split('"')[0]
    assert locked.get(style).status_code == 200


def test_without_a_token_there_is_nothing_to_sign_in_to(client: TestClient) -> None:
    assert isinstance(client.app, FastAPI)
    assert "Sign out" not in client.get("/").text
    answer = client.post("/login", data={"token": "anything", "next": "/alerts"}, headers=SAME)
    assert answer.headers["location"] == "/alerts"
    assert "set-cookie" not in answer.headers
