"""Paths beside the endpoints' own: aliases, the greeting, and what a 404 says of other APIs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.config import ServerConfig
from headrace.server.app import ALIASES, ROUTES
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says

Start = Callable[..., Running]
BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
API = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text(encoding="utf-8")


@pytest.fixture
def server(start: Start) -> Running:
    return start(MockEngine(says("abc")))


def test_every_alias_is_of_a_route_and_on_the_page() -> None:
    own = {path for _, path, _ in ROUTES}
    assert set(ALIASES.values()) <= own
    assert not own & set(ALIASES)
    for alias in set(ALIASES) - {"/v1/"}:
        assert f"`{alias.replace(':path', '')}`" in API, alias


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completions", {"prompt": "x"}),
        ("/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ],
)
def test_a_base_url_without_v1(server: Running, path: str, body: dict[str, object]) -> None:
    short, long = (server.post(f"{prefix}{path}", body).json() for prefix in ("", "/v1"))
    assert short["choices"] == long["choices"]
    counts = server.metrics()
    assert counts[f'headrace:http_requests_total{{endpoint="/v1{path}",status="200"}}'] == 2
    assert not any(f'endpoint="{path}"' in name for name in counts)


def test_models_without_v1(server: Running) -> None:
    assert server.client.get("/models").json() == server.client.get("/v1/models").json()
    name = server.client.get("/models").json()["data"][0]["id"]
    assert server.client.get(f"/models/{name}").json()["id"] == name


def test_generation_on_an_alias_is_refused_at_the_end_as_on_its_path(server: Running) -> None:
    server.state.drain.begin()
    for path in ("/completions", "/v1/completions"):
        reply = server.post(path, {"prompt": "x"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "draining")


def test_a_wrong_method_of_an_alias(server: Running) -> None:
    reply = server.client.get("/chat/completions")
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(("path", "location"), [("/v1", "./"), ("/v1/", "../")])
def test_a_browser_is_sent_to_the_chat_page(server: Running, path: str, location: str) -> None:
    reply = server.client.get(path, headers=BROWSER)
    assert (reply.status_code, reply.headers["location"]) == (303, location)
    page = server.client.get(path, headers=BROWSER, follow_redirects=True)
    assert (page.status_code, page.url.path) == (200, "/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("path", ["/", "/v1"])
@pytest.mark.parametrize("headers", [{}, {"accept": "application/json"}])
def test_a_program_gets_a_line(server: Running, path: str, headers: dict[str, str]) -> None:
    reply = server.client.get(path, headers=headers)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert reply.text == "headrace is running. The API is at /v1. GET /docs describes it.\n"
    assert reply.headers["x-request-id"]


def test_a_browser_where_the_page_is_turned_off(start: Start) -> None:
    server = start(MockEngine(says("abc")), config=ServerConfig(enable_docs=False))
    reply = server.client.get("/", headers=BROWSER)
    assert (reply.status_code, reply.text) == (200, "headrace is running. The API is at /v1.\n")


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/api/v1/models", "OpenRouter's API"),
    ],
)
def test_what_speaks_another_api(server: Running, path: str, api: str) -> None:
    for reply in (server.client.get(path), server.post(path, {})):
        assert reply.status_code == 404
        error = reply.json()["error"]
        assert error["code"] == "not_found"
        assert error["message"] == (
            f"'{path}' does not exist here; `headrace gateway` in front speaks {api}"
        )


@pytest.mark.parametrize("path", ["/v1/messagesx", "/apix", "/v1/embeddings"])
def test_other_unknown_paths(server: Running, path: str) -> None:
    assert "gateway" not in server.client.get(path).json()["error"]["message"]


def test_ping_is_health(start: Start) -> None:
    server = start(MockEngine(says("abc")), loaded=False)
    assert server.client.get("/ping").status_code == 503
    server = start(MockEngine(says("abc")))
    assert server.client.get("/ping").json()["status"] == "ok"


def test_load_counts_open_requests(server: Running) -> None:
    assert server.client.get("/load").json() == {"server_load": 0}
    with server.state.drain.request():
        assert server.client.get("/load").json() == {"server_load": 1}
    assert server.client.get("/load").json() == {"server_load": 0}
