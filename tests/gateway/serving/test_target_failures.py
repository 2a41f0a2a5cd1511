"""What a client is told where a fallback was asked for what the model could not take."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import Answer, fails
from tests.gateway.test_embedding_fallbacks import policy
from tests.gateway.upstream.scripted import Scripted, served

TOO_LONG = fails(400, "This model's maximum context length is 8192 tokens")
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}

both = pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/chat/completions", CHAT), ("/v1/embeddings", {"input": ["Hi"]})],
    ids=["chat", "embeddings"],
)


def config(model: Scripted, fallback: Scripted, which: str = "context") -> dict[str, Any]:
    return {
        "providers": {
            name: {"base_url": f"{one.origin}/v1", "dialect": "openai-chat", "api_key": "sk-0123"}
            for name, one in (("a", model), ("b", fallback))
        },
        "models": {"m": {"targets": ["a/m"], f"{which}_fallbacks": ["other"]}, "other": ["b/o"]},
        "retries": {"attempts": 2},
        "breaker": {"min_attempts": 1, "cooldown_s": 30},
    }


async def told_twice(
    first: Answer, other: Answer, path: str, body: dict[str, Any], which: str = "context"
) -> tuple[list[Told], list[Entry]]:
    """The second time the fallback may be left alone."""
    entries: list[Entry] = []
    async with served(first) as model, served(other) as fallback:
        app = gateway(config(model, fallback, which), entries).app
        return [await ask(app, {"model": "m", **body}, path=path) for _ in range(2)], entries


@both
@pytest.mark.parametrize(("first", "which"), [(TOO_LONG, "context"), (policy, "policy")])
async def test_a_fallback_that_fails_for_now_is_worth_another_try(
    first: Answer, which: str, path: str, body: dict[str, Any]
) -> None:
    busy = fails(503, "try again", "retry-after: 7")
    (now, later), entries = await told_twice(first, busy, path, body, which)
    assert now.status == 503 and now.headers["retry-after"] == "7"
    assert "a/m: con" in now.json["error"]["message"] and "b/o: overloaded" in now.body.decode()
    assert later.status == 503 and int(later.headers["retry-after"]) > 1, "it is left alone"
    assert "b/o: paused" in later.json["error"]["message"]
    assert [one.outcome for one in entries] == ["failed", "failed"]


@both
@pytest.mark.parametrize("other", [TOO_LONG, fails(404)], ids=["too long", "not there"])
async def test_what_no_fallback_can_take_either_is_the_clients_fault(
    other: Answer, path: str, body: dict[str, Any]
) -> None:
    told, entries = await told_twice(TOO_LONG, other, path, body)
    for one in told:
        assert one.status == 400 and one.json["error"]["code"] == "context_length_exceeded"
        assert "retry-after" not in one.headers
    assert [one.outcome for one in entries] == ["refused", "refused"]


async def test_a_fallback_whose_keys_are_asked_too_much_is_a_rate_limit() -> None:
    limited = fails(429, "slow down", "retry-after: 40")
    told, _ = await told_twice(TOO_LONG, limited, "/v1/chat/completions", CHAT)
    assert [one.status for one in told] == [429, 429]
    assert [int(one.headers["retry-after"]) for one in told] == [40, 40]


async def test_what_no_fallback_is_named_for_is_told_also_after_a_failure() -> None:
    """Of two targets the first is down, and for the second it is too long."""
    async with served(fails(500)) as down, served(TOO_LONG) as short:
        settings = config(down, short)
        settings["models"] = {"m": {"strategy": "ordered", "targets": ["a/m", "b/m"]}}
        told = await ask(gateway(settings, []).app, {"model": "m", **CHAT})
    assert told.status == 400 and told.json["error"]["code"] == "context_length_exceeded"
