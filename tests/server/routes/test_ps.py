"""`headrace ps`: what running servers serve."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli import ps as ps_module
from headrace.cli.main import cli
from headrace.config import ServerConfig
from tests.server.conftest import MODEL, Running
from tests.server.mock_engine import MAX_MODEL_LEN, MockEngine, says

Start = Callable[..., Running]


def ps(*arguments: str, key: str | None = None) -> Result:
    runner = CliRunner(env={"HEADRACE_API_KEY": key})
    return runner.invoke(cli, ["ps", *arguments])


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def nobody() -> str:
    """A URL where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_each_model_has_a_row(start: Start) -> None:
    server = start(MockEngine(says("x")))
    with server.state.drain.request():
        result = ps(server.url, "--json")
    assert result.exit_code == 0
    first, alias = rows(result)
    assert first.pop("uptime_s") >= 0
    assert first == {
        "url": server.url, "status": "ok", "model": MODEL, "context_tokens": MAX_MODEL_LEN,
        "open_requests": 1,
    }  # fmt: skip
    assert alias["model"] == "alias"


def test_the_table(start: Start) -> None:
    server = start(MockEngine(says("x")))
    table = ps(server.url).stdout
    assert table.split()[:6] == ["model", "URL", "status", "context", "open", "up"]
    assert f"{MODEL} {server.url} ok {MAX_MODEL_LEN} 0 " in " ".join(table.split())


def test_a_server_that_loads(start: Start) -> None:
    server = start(MockEngine(says("x")), loaded=False)
    (row,) = rows(ps(server.url, "--json"))
    assert (row["status"], row["model"], row["open_requests"]) == ("loading", None, 0)


def test_a_server_with_keys(start: Start) -> None:
    server = start(MockEngine(says("x")), config=ServerConfig(api_key=("secret",)))
    (row,) = rows(ps(server.url, "--json"))
    assert row["status"] == "ok"
    assert "HEADRACE_API_KEY" in row["model"]
    assert row["open_requests"] is None
    first, _ = rows(ps(server.url, "--json", key="secret"))
    assert (first["model"], first["open_requests"]) == (MODEL, 0)


def test_a_server_that_is_not_there(start: Start, nobody: str) -> None:
    server = start(MockEngine(says("x")))
    result = ps(nobody, server.url, "--json")
    assert result.exit_code == 1
    assert [row["status"] for row in rows(result)] == ["unreachable", "ok", "ok"]


def test_the_default_ports(start: Start, nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start(MockEngine(says("x")))
    monkeypatch.setattr(ps_module, "DEFAULT_URLS", (nobody, server.url))
    result = ps("--json")
    assert result.exit_code == 0
    assert {row["url"] for row in rows(result)} == {server.url}
    monkeypatch.setattr(ps_module, "DEFAULT_URLS", (nobody,))
    result = ps()
    assert result.exit_code == 1
    assert "no server answers at" in str(result.exception)
    assert "headrace serve" in str(result.exception)


def test_what_is_not_a_url() -> None:
    result = ps("127.0.0.1:8000")
    assert result.exit_code == 1
    assert "URL '127.0.0.1:8000': not the URL of a server" in str(result.exception)


def test_times() -> None:
    seconds = (None, 5.2, 90, 7200, 200_000)
    assert [ps_module._time(value) for value in seconds] == [
        "-",
        "5 s",
        "1.5 min",
        "2.0 h",
        "2.3 d",
    ]
