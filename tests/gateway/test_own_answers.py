"""What the gateway answers itself."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from headrace.gateway.telemetry.telemetry import Telemetry
from tests.gateway.harness import ask, gateway

SETTINGS: dict[str, Any] = {
    "providers": {"a": {"base_url": "http://127.0.0.1:9/v1", "dialect": "openai-chat"}},
    "models": {"chat": ["a/m"]},
}


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/models", "/v1/models"),
    ],
)
async def test_a_path_that_is_nearly_one_is_told_which(path: str, meant: str) -> None:
    told = await ask(gateway(SETTINGS, []).app, {}, path=path)
    assert told.status == 404
    assert told.json["error"]["message"].endswith(f"; did you mean {meant}?")
    assert told.json["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/api/embeddings", "use /api/embed,"),
        ("/api/generat", "did you mean /api/generate?"),
        ("/api/pull", "does not exist here"),
    ],
)
async def test_ollamas_clients_are_told_in_their_shape(path: str, meant: str) -> None:
    told = await ask(gateway(SETTINGS, []).app, {}, path=path)
    assert told.status == 404 and list(told.json) == ["error"]
    assert meant in told.json["error"]


async def test_a_path_that_is_none_suggests_nothing() -> None:
    told = await ask(gateway(SETTINGS, []).app, {}, path="/nothing/of/ours")
    assert told.status == 404 and "mean" not in told.json["error"]["message"]


async def test_a_reload_does_not_begin_the_time_it_runs_anew() -> None:
    seconds = itertools.count(1000)
    telemetry = Telemetry()
    for least in (0, 1):
        one = gateway(SETTINGS, [], wall_s=lambda: float(next(seconds)), telemetry=telemetry)
        one.take_over()
        told = await ask(one.app, None, path="/health", method="GET")
        assert told.json["uptime_s"] > least
