"""Parameters that no target has a place for: what the client can do about it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.harness import ask, gateway

SETTINGS: dict[str, Any] = {
    "providers": {"anthropic": {"base_url": "http://127.0.0.1:9", "api_key": ["key"]}},
    "models": {"chat": "anthropic/claude"},
    "retries": {"attempts": 1},
}
BODY = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
IN_THE_FILE = "drop_unsupported: true"


@pytest.mark.parametrize(
    ("more", "said", "may_drop"),
    [
        ({"n": 2}, "it does not support n; omit it", True),
        ({"n": 2, "seed": 1}, "omit them", True),
        ({"n": 2, "provider": {"require_parameters": True}}, "n; omit it", False),
    ],
)
async def test_the_field_and_the_ways_out_are_named(
    more: dict[str, Any], said: str, *, may_drop: bool
) -> None:
    told = await ask(gateway(SETTINGS, []).app, {**BODY, **more})
    message = told.json["error"]["message"]
    assert told.status == 400 and said in message
    assert (IN_THE_FILE in message) is may_drop


async def test_a_body_without_messages_is_told_so() -> None:
    told = await ask(gateway(SETTINGS, []).app, {"model": "chat"})
    assert told.json["error"]["message"] == "messages: this field is required"
