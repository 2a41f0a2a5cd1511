"""Anthropic's Messages API on the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.server.conftest import MODEL, Running
from tests.server.mock_engine import MockEngine, says

Start = Callable[..., Running]


def message(**fields: Any) -> dict[str, Any]:
    """A body of one turn."""
    turns = [{"role": "user", "content": "x"}]
    return {"model": MODEL, "max_tokens": 50, "messages": turns, **fields}


def test_a_message_is_answered_whole(start: Start) -> None:
    running = start(MockEngine(says("hello", cached_tokens=3)))
    reply = running.post("/v1/messages", message())
    assert reply.status_code == 200, reply.text
    told = reply.json()
    assert told["id"].startswith("msg_")
    assert told["content"] == [{"type": "text", "text": "hello"}]
    assert (told["stop_reason"], told["stop_sequence"]) == ("end_turn", None)
    usage = told["usage"]
    assert usage["input_tokens"] + 3 == len(running.engine.submitted[0].prompt_token_ids)
    assert (usage["cache_read_input_tokens"], usage["output_tokens"]) == (3, 6)
    assert reply.headers["request-id"] == reply.headers["x-request-id"]
