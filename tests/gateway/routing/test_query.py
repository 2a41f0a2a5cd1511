"""What of a body is held back for its answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.building.dialects import client_side
from headrace.gateway.routing.query import estimated_tokens, query_from_body
from headrace.gateway.serving.demanded import OUTPUT_TOKENS, demand_of
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.routing_query import query_for
from headrace.http.large_bodies import LargeBodies
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.part import Media, Text, ToolResult
from tests.gateway.routing.parts import A, route, router


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({}, OUTPUT_TOKENS),
        ({"max_tokens": 100}, 100),
        ({"max_completion_tokens": 1, "max_tokens": 100_000}, 100_000),
        ({"max_tokens": 7, "options": {"num_predict": 30}}, 30),
        ({"max_output_tokens": 70}, 70),
        ({"options": {"num_predict": 30}}, 30),
        ({"options": {"num_predict": -1}}, OUTPUT_TOKENS),
        ({"options": "none"}, OUTPUT_TOKENS),
        ({"max_tokens": 100, "n": 3}, 300),
        ({"max_tokens": 100, "n": 2, "best_of": 5}, 500),
        ({"prompt": ["a"] * 50, "max_tokens": 100}, 5000),
        ({"prompt": [[1, 2], [3]], "max_tokens": 100, "n": 2}, 400),
        ({"prompt": [1, 2, 3], "max_tokens": 100}, 100),
        ({"prompt": "a", "max_tokens": 100}, 100),
        ({"prompt": [], "max_tokens": 100}, 100),
        ({"max_tokens": 100, "n": True, "best_of": "x"}, 100),
        ({"max_tokens": 10**30, "n": 10**30}, 2**31),
        ({"max_tokens": 100_000.0, "n": 5.0}, 500_000),
        ({"max_tokens": "100000", "n": "5"}, 500_000),
        ({"max_tokens": " 100000.0 ", "best_of": "+5"}, 500_000),
        ({"options": {"num_predict": 30.9}}, 30),
        ({"max_tokens": 1e300, "n": "9" * 4000}, 2**31),
        ({"max_tokens": "inf"}, OUTPUT_TOKENS),
        ({"max_tokens": 0.5, "n": "none"}, OUTPUT_TOKENS),
    ],
)
def test_every_choice_may_be_as_long_as_the_client_allows(body: Any, tokens: int) -> None:
    ask = query_from_body(JsonObject.read(json.dumps(body).encode()), "chat")
    assert demand_of(ask, ()).most_output_tokens == tokens


def call_of(text: str) -> ChatCall:
    return ChatCall(
        dialect="openai-chat",
        model="m",
        messages=(
            Message(role="user", parts=(Text(text=text),)),
            Message(role="tool", parts=(ToolResult(call_id="1", content=(Text(text=text),)),)),
        ),
    )


@pytest.mark.parametrize("text", ["読書" * 1500, "привет" * 500, "\ud83d" * 3000, "read" * 700])
def test_a_call_counts_as_its_bytes_do(text: str) -> None:
    least = 2 * len(text.encode("utf-8", "surrogatepass")) // 3
    assert least <= estimated_tokens(call_of(text)) <= least + 20


def test_a_picture_in_a_tool_s_result_counts() -> None:
    picture = Media(kind="image", url="https://example.com/a.png")
    result = ToolResult(call_id="1", content=(picture,))
    call = ChatCall(
        dialect="openai-chat", model="m", messages=(Message(role="tool", parts=(result,)),)
    )
    assert estimated_tokens(call) >= 1600


def session_of(key: str | None, headers: dict[str, str], **body: Any) -> str | None:
    incoming = Incoming(
        id="1",
        side=client_side("openai-chat"),
        path="/v1/chat/completions",
        headers=headers,
        body=JsonObject.read(json.dumps({"model": "m", **body}).encode()),
        model="m",
        stream=False,
        received_ns=0,
        caller=None if key is None else Caller(key_id=key),
    )
    found = query_for(incoming, router(route("m", A)), LargeBodies(2**20, "bodies"))
    return asyncio.run(found).session


def test_sessions_of_two_keys_are_two() -> None:
    names = {session_of(key, {"x-session-id": "s"}) for key in ("first", "second")}
    assert len(names) == 2


def test_a_session_is_kept_under_a_short_name_whatever_the_client_calls_it() -> None:
    found = [
        session_of(key, {}, user=one + "u" * 1_000_000) for key in ("k", None) for one in ("a", "b")
    ]
    assert len(set(found)) == 4
    assert all(one is not None and len(one) == 32 for one in found)
    assert session_of("k", {}) is None
    assert session_of("k", {}, user="b" + "u" * 1_000_000) == found[1]
