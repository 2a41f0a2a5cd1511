"""Pages of other origins: none by default, and with the settings errors can be read too."""

from __future__ import annotations

from collections.abc import Callable

from headrace.config import ServerConfig
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says

Start = Callable[..., Running]
PAGE = "https://page.example"
ASKS = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}


def test_by_default_no_page_may_read_anything(start: Start) -> None:
    server = start(MockEngine(says("x")))
    reply = server.post("/v1/completions", {"prompt": "x"}, headers={"Origin": PAGE})
    assert reply.status_code == 200
    assert not [name for name in reply.headers if name.startswith("access-control")]
    assert server.client.options("/v1/completions", headers=ASKS).status_code == 405


def test_a_question_beforehand_needs_no_key(start: Start) -> None:
    config = ServerConfig(allowed_origins=(PAGE,), api_key=("k",))
    server = start(MockEngine(says("x")), config=config)
    reply = server.client.options("/v1/completions", headers=ASKS)
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert reply.headers["access-control-allow-headers"] == "authorization,content-type"
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in reply.headers
    other = server.client.options("/v1/completions", headers={**ASKS, "Origin": "https://evil"})
    assert other.status_code == 400
    assert "access-control-allow-origin" not in other.headers


def test_errors_and_refusals_can_be_read(start: Start) -> None:
    config = ServerConfig(allowed_origins=(PAGE,), api_key=("k",))
    server = start(MockEngine(says("x")), config=config)
    key = {"Authorization": "Bearer k"}
    for headers, path, status in (
        ({}, "/v1/completions", 401),
        (key, "/v1/completions", 400),
        (key, "/v1/nothing", 404),
        (key, "/v1/models", 405),
        ({}, "/admin/cancel", 403),
    ):
        reply = server.post(path, {"prompt": []}, headers={**headers, "Origin": PAGE})
        assert reply.status_code == status
        assert reply.headers["access-control-allow-origin"] == PAGE
        exposed = reply.headers["access-control-expose-headers"].lower()
        assert exposed == "x-request-id, x-ignored-params, retry-after"
        assert "origin" in reply.headers["vary"].lower()
    stream = server.post(
        "/v1/completions", {"prompt": "x", "stream": True}, headers={**key, "Origin": PAGE}
    )
    assert stream.headers["access-control-allow-origin"] == PAGE
    assert stream.text.endswith("[DONE]\n\n")


def test_every_origin_and_the_other_settings(start: Start) -> None:
    server = start(MockEngine(says("x")), config=ServerConfig(allowed_origins=("*",)))
    reply = server.post("/v1/completions", {"prompt": "x"}, headers={"Origin": PAGE})
    assert reply.headers["access-control-allow-origin"] == "*"
    config = ServerConfig(
        allowed_origins=("*",),
        allow_credentials=True,
        allowed_methods=("GET",),
        allowed_headers=("X-One",),
    )
    server = start(MockEngine(says("x")), config=config)
    asks = {**ASKS, "Access-Control-Request-Method": "GET"}
    good = server.client.options(
        "/v1/models", headers={**asks, "Access-Control-Request-Headers": "x-one"}
    )
    assert good.status_code == 200
    assert good.headers["access-control-allow-origin"] == PAGE
    assert good.headers["access-control-allow-credentials"] == "true"
    assert server.client.options("/v1/models", headers=asks).status_code == 400
    assert server.client.options("/v1/completions", headers=ASKS).status_code == 400


def test_a_refused_question_is_an_error_like_others(start: Start) -> None:
    config = ServerConfig(allowed_origins=("https://a.example",), api_key=("sk-1",))
    server = start(MockEngine(says("x")), config=config)
    for origin, method in (("https://b.example", "POST"), ("https://a.example", "BREW")):
        headers = {"Origin": origin, "Access-Control-Request-Method": method, "X-Request-Id": "r1"}
        reply = server.client.options("/v1/models", headers=headers)
        assert (reply.status_code, reply.headers["x-request-id"]) == (400, "r1")
        assert reply.json()["error"]["code"] == "cors_refused"
        allowed = reply.headers.get("access-control-allow-origin")
        assert allowed == (origin if origin == "https://a.example" else None)
