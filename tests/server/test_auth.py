"""Keys: what needs one, which are known, and that they are never shown."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.config import ServerConfig, build, from_environment
from headrace.config.masked import masked
from headrace.errors import ConfigError
from headrace.server import auth
from headrace.server.app import ROUTES, build_app
from headrace.server.auth import KeyRing
from headrace.server.state import ServerState
from tests.server.conftest import Running
from tests.server.connections.raw import JSON, RawClient
from tests.server.mock_engine import MockEngine, says

Start = Callable[..., Running]
KEYS = ("sk-alpha-1", "sk-beta-2")
ADMIN = "sk-admin-3"
CONFIG = ServerConfig(api_key=KEYS, admin_api_key=ADMIN)
OPEN = [
    ("GET", "/health"), ("GET", "/ready"), ("HEAD", "/health"),
    ("GET", "/docs"), ("GET", "/docs/app.js"), ("HEAD", "/docs"),
    ("GET", "/"), ("HEAD", "/"), ("GET", "/v1"), ("GET", "/v1/"), ("GET", "/ping"),
    ("GET", "/page/app.js"), ("GET", "/page/shared/base.css"), ("HEAD", "/page/app.js"),
]  # fmt: skip


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def guarded(start: Start) -> Running:
    return start(MockEngine(says("abc")), config=CONFIG)


PATHS = [(method, path.replace(":path", "").replace("{model}", "m").replace("{name}", "app.js"))
         for method, path, _ in ROUTES]  # fmt: skip
MORE = [
    ("HEAD", "/"), ("POST", "/"), ("GET", "/v1"), ("GET", "/v1/"), ("GET", "/ping"),
    ("GET", "/models"), ("POST", "/chat/completions"), ("POST", "/v1/messages"),
    ("GET", "/nothing"), ("POST", "/health"), ("DELETE", "/ready"),
    ("GET", "/health/"), ("GET", "/health/x"), ("GET", "/v1/health"),
    ("OPTIONS", "/v1/models"), ("GET", "/admin"), ("HEAD", "/docs"), ("POST", "/docs"),
    ("POST", "/docs/app.js"), ("GET", "/docsx"), ("GET", "/page"), ("GET", "/pages/app.js"),
    ("POST", "/page/app.js"), ("GET", "/docs%2Fx/../metrics"), ("GET", "/page%2Fx/../metrics"),
    ("GET", "/V1/models"), ("GET", "/v1/models/"),
    ("GET", "/%76%31/models"),
    ("OPTIONS", "/health"), ("GET", "/metrics?x=/health"),
    ("GET", "/metrics;/health"), ("GET", "/health/../metrics"), ("GET", "/health%00"),
    ("GET", "/health%2f..%2fmetrics"), ("GET", "/Admin/settings"),
    ("GET", "/admin%2Fsettings"), ("GET", "/%61dmin/settings"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), [*PATHS, *MORE])
def test_everything_but_health_readiness_and_the_page_needs_a_key(
    guarded: Running, method: str, path: str
) -> None:
    if (method, path) in OPEN:
        assert guarded.client.request(method, path).status_code == 200
        return
    for headers in ({}, bearer("wrong"), {"Authorization": KEYS[0]}, {"Authorization": "Basic x"}):
        reply = guarded.client.request(method, path, headers=headers)
        assert reply.status_code == 401, path
        error = reply.json()["error"]
        if path.startswith("/v1/messages"):
            assert error["type"] == "authentication_error"
        elif path.startswith("/api/"):
            assert "key" in error
        else:
            assert error["code"] == "invalid_api_key"
            assert error["type"] == "invalid_request_error"
        assert reply.headers["www-authenticate"].startswith("Bearer")
        assert reply.headers["x-request-id"]
        assert "wrong" not in reply.text
    assert guarded.client.request(method, path, headers=bearer(ADMIN)).status_code != 401


@pytest.mark.parametrize(
    "path", ["//", "//health", "//docs", "//v1", "//v1/models", "//admin/settings"]
)
def test_so_does_a_path_that_a_client_would_tidy_up(guarded: Running, path: str) -> None:
    with RawClient(guarded.url) as client:
        client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        reply = client.reply()
        assert (reply.status, reply.code) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    "headers",
    [
        *map(bearer, KEYS),
        {"authorization": f"bearer   {KEYS[1]}"},
        {"x-api-key": KEYS[0]},
        {"authorization": "Bearer wrong", "x-api-key": KEYS[1]},
    ],
)
def test_each_key_opens(guarded: Running, headers: dict[str, str]) -> None:
    reply = guarded.post("/v1/completions", {"prompt": "x"}, headers=headers)
    assert reply.status_code == 200


def test_what_only_begins_like_admin_is_no_admin_path(start: Start) -> None:
    server = start(MockEngine(says("abc")))
    assert server.client.get("/admin/settings").status_code == 403
    assert server.client.get("/administrators").status_code == 404


@pytest.mark.parametrize(
    "path", ["/docs/x", "/docs/../metrics", "/docs/%2e%2e/metrics", "/docs/a/b"]
)
def test_nothing_else_is_below_the_page(guarded: Running, path: str) -> None:
    with RawClient(guarded.url) as client:
        client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert client.reply().status == 404


@pytest.mark.parametrize(
    "line",
    [
        b"Authorization: Bearer", b"Authorization: Bearer ", b"Authorization:", b"x-api-key:",
        b"Authorization: Bearer sk-alpha-", b"Authorization: Bearer sk-alpha-1 sk-beta-2",
        b"Authorization: Bearer sk-alpha-1,", b"Authorization: Bearer Bearer sk-alpha-1",
        b"Authorization: Bearer SK-ALPHA-1", b"Authorization: Bearer=sk-alpha-1",
        b"Authorization: Bearer \xff\xfe", b"Authorization: Bearer " + b"k" * 20_000,
        b"Proxy-Authorization: Bearer sk-alpha-1",
        b"Cookie: Authorization=Bearer sk-alpha-1",
    ],
    ids=lambda line: repr(line[:40]),
)  # fmt: skip
def test_what_is_no_key(guarded: Running, line: bytes) -> None:
    with RawClient(guarded.url) as client:
        for path in (b"/v1/models", b"/admin/settings"):
            client.send(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + line + b"\r\n\r\n")
            reply = client.reply()
            assert (reply.status, reply.code) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    "line",
    [
        b"AUTHORIZATION: BEARER sk-alpha-1", b"authorization:bearer \t sk-alpha-1 ",
        b"X-API-KEY: sk-beta-2 ",
    ],
    ids=lambda line: repr(line[:40]),
)  # fmt: skip
def test_ways_to_send_one(guarded: Running, line: bytes) -> None:
    with RawClient(guarded.url) as client:
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + line + b"\r\n\r\n")
        assert client.reply().status == 200


@pytest.mark.parametrize("first", [b"x", b"sk-alpha-1"])
def test_two_of_a_kind_are_refused_whatever_they_are(guarded: Running, first: bytes) -> None:
    lines = b"Authorization: Bearer " + first + b"\r\nAuthorization: Bearer sk-alpha-1"
    with RawClient(guarded.url) as client:
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n\r\n")
        reply = client.reply()
        assert (reply.status, reply.code) == (400, "bad_request")


def test_openais_client_says_whose_fault_it_is(guarded: Running) -> None:
    import openai

    with pytest.raises(openai.AuthenticationError) as caught:
        guarded.openai.models.list()
    assert caught.value.code == "invalid_api_key"
    client = openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=KEYS[0], max_retries=0)
    assert client.models.list().data


def test_without_keys_all_but_admin_is_open(start: Start) -> None:
    server = start(MockEngine(says("abc")))
    assert server.client.get("/v1/models").status_code == 200
    for path in ("/admin/requests", "/admin/nothing", "/admin"):
        reply = server.client.get(path, headers=bearer("any"))
        assert reply.status_code == 403
        assert reply.json()["error"]["code"] == "admin_closed"
        assert "--admin-api-key" in reply.json()["error"]["message"]


def test_a_clients_key_does_not_open_admin(guarded: Running) -> None:
    reply = guarded.client.get("/admin/requests", headers=bearer(KEYS[0]))
    assert reply.status_code == 401
    assert "is not the admin key; this path needs the admin key (--admin-api-key)" in reply.text
    assert guarded.client.get("/admin/requests", headers=bearer(ADMIN)).status_code == 200


def test_an_admin_key_alone_leaves_the_rest_open(start: Start) -> None:
    server = start(MockEngine(says("abc")), config=ServerConfig(admin_api_key=ADMIN))
    assert server.client.get("/v1/models").status_code == 200
    assert server.client.get("/admin/requests").status_code == 401


def test_no_body_is_read_before_the_key_is_checked(guarded: Running) -> None:
    """The reply comes though the body never does, and no leave to send it."""
    with RawClient(guarded.url) as client:
        client.send(b"POST /v1/completions HTTP/1.1\r\n" + JSON + b"Content-Length: 1000\r\n\r\n")
        assert client.reply().status == 401
    with RawClient(guarded.url) as client:
        head = b"POST /v1/completions HTTP/1.1\r\n" + JSON + b"Expect: 100-continue\r\n"
        client.send(head + b"Content-Length: 1000\r\n\r\n")
        assert client.reply().status == 401
        assert client.closed() == b""


def test_all_keys_are_looked_at_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests of equal length, each with each, whatever was found before."""
    compared: list[tuple[int, int]] = []
    compare = auth.hmac.compare_digest

    def spy(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(auth.hmac, "compare_digest", spy)
    ring = KeyRing(["a" * 5, "b" * 50, "c"], "--api-key")
    for offered, number in ((b"aaaaa", 1), (b"c", 3), (b"", None), (b"x" * 1000, None)):
        compared.clear()
        assert ring.find([offered]) == number
        assert compared == [(32, 32)] * 3
    assert KeyRing([], "--api-key").find([b""]) is None


def test_a_key_that_is_there_twice_has_one_number() -> None:
    ring = KeyRing(["a", "b", "a"], "--api-key")
    assert ring.find([b"a"]) == ring.find([b"x", b"a"]) == 3
    assert ring.find([b"b"]) == 2


@pytest.mark.parametrize("key", ["a b", "schlüssel", "a\n", "\0"])
def test_keys_no_header_can_carry_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="--api-key: key 2") as caught:
        build_app(ServerState(config=ServerConfig(api_key=("good", key))))
    assert key not in str(caught.value)


def secrets_in(text: str) -> list[str]:
    return [key for key in (*KEYS, ADMIN) if key in text]


def test_keys_are_never_shown(guarded: Running, caplog: pytest.LogCaptureFixture) -> None:
    state = ServerState(config=CONFIG)
    assert secrets_in(repr(CONFIG) + str(CONFIG) + repr(state) + repr([CONFIG])) == []
    assert repr(ServerConfig()) == repr(build(ServerConfig, {}, source="x"))
    assert "port=8000" in repr(CONFIG)
    assert masked(CONFIG)["api_key"] == ("********", "********")
    assert masked(ServerConfig())["api_key"] == ()
    with caplog.at_level(logging.DEBUG):
        guarded.post("/v1/completions", {"prompt": 1}, headers=bearer(KEYS[0]))
        guarded.post("/v1/completions", {"prompt": "x"}, headers=bearer(KEYS[0] + "x"))
        text = guarded.client.get("/admin/settings", headers=bearer(ADMIN)).text
        text += guarded.client.get("/metrics", headers=bearer(ADMIN)).text
    ours = [one.getMessage() for one in caplog.records if one.name.startswith("headrace")]
    assert secrets_in(text + "".join(ours)) == []


def test_keys_come_from_the_environment(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"HEADRACE_API_KEY": "a, b,,c ", "HEADRACE_ADMIN_API_KEY": " d "}
    values = from_environment(ServerConfig, environ)
    config = build(ServerConfig, values, source="settings")
    assert (config.api_key, config.admin_api_key) == (("a", "b", "c"), "d")
    assert from_environment(ServerConfig, {"HEADRACE_API_KEY": " "}) == {}

    seen: list[ServerConfig] = []
    monkeypatch.setattr(
        "headrace.server.run.serve", lambda engine, server, **_: seen.append(server) or 0
    )
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "settings.yaml"
    file.write_text(json.dumps({"api_key": ["from-file"]}))
    model = str(tmp_path / "m.gguf")
    for arguments, keys in (
        ([], ("a", "b", "c")),
        (["--config", str(file)], ("from-file",)),
        (["--config", str(file), "--api-key", "x", "--api-key", "y"], ("x", "y")),
    ):
        result = CliRunner().invoke(cli, ["serve", model, *arguments], env=dict(os.environ))
        assert result.exit_code == 0, result.output
        assert seen[-1].api_key == keys
        assert seen[-1].admin_api_key == "d"


@pytest.mark.parametrize("key", ["a b", "schlüssel", "a\n", "\0", ""])
def test_settings_refuse_them_before_anything_starts(key: str) -> None:
    for name, value in (("api_key", ["good", key]), ("admin_api_key", key)):
        flag = "--" + name.replace("_", "-")
        with pytest.raises(ConfigError, match=f"{flag} is not usable; expected visible ASCII"):
            build(ServerConfig, {name: value}, source="settings")


def test_a_bad_key_in_a_file_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        build(ServerConfig, {"api_key": [["sk-alpha-1"]]}, source="settings")
    assert secrets_in(str(caught.value)) == []
