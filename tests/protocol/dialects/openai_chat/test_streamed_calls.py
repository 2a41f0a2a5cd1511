"""Calls of tools in streams of servers."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.protocol.neutral.part import (
    Signature,
    Text,
    Thinking,
    ToolCall,
)
from tests.protocol.dialects.openai_chat.samples import (
    call_delta,
    delta,
    read_body,
    reply_body,
    sse,
)
from tests.protocol.dialects.openai_chat.test_stream_reader import detail, parts_of, piece, reply_of


def test_geminis_signature_of_a_call() -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": "{}"}}
    signed = (ToolCall(id="c1", name="f", arguments="{}", signature=Signature("gemini", "G")),)
    google = {**call, "extra_content": {"google": {"thought_signature": "G"}}}
    assert parts_of(call_delta(google), delta("tool_calls")) == signed
    hidden = detail("encrypted", data="G", format="google-gemini-v1", id="c1", index=0)
    assert parts_of(hidden, call_delta(call), delta("tool_calls")) == signed
    assert parts_of(call_delta(call), hidden, delta("tool_calls")) == signed


TWO = (
    ToolCall(id="c1", name="f", arguments='{"a":1}'),
    ToolCall(id="c2", name="g", arguments='{"b":2}'),
)


@pytest.mark.parametrize(
    "fragments",
    [
        # OpenAI
        [
            piece(0, "c1", "f", ""),
            piece(0, args='{"a"'),
            piece(0, args=":1}"),
            piece(1, "c2", "g", ""),
            piece(1, args='{"b":2}'),
        ],
        # side by side
        [
            piece(0, "c1", "f", ""),
            piece(1, "c2", "g", '{"b"'),
            piece(0, args='{"a":1}'),
            piece(1, args=":2}"),
        ],
        # id and name again with each piece
        [
            piece(0, "c1", "f", '{"a"'),
            piece(0, "c1", "f", ":1}"),
            piece(1, "c2", "g", '{"b":2}'),
        ],
        # no index
        [
            piece(None, "c1", "f", '{"a"'),
            piece(None, args=":1}"),
            piece(None, "c2", "g", '{"b":2}'),
        ],
        # the same index for all
        [piece(0, "c1", "f", '{"a":1}'), piece(0, "c2", "g", '{"b":2}')],
        # objects
        [piece(0, "c1", "f", {"a": 1}), piece(1, "c2", "g", {"b": 2})],
        # the name after the id, arguments before it
        [
            piece(0, "c1"),
            piece(0, args='{"a"'),
            piece(0, name="f"),
            piece(0, args=":1}"),
            piece(1, "c2", "g", '{"b":2}'),
        ],
    ],
)
def test_pieces_of_tool_calls(fragments: list[dict[str, Any]]) -> None:
    apart = [call_delta(one) for one in fragments]
    assert parts_of(*apart, delta("tool_calls")) == TWO
    assert parts_of(call_delta(*fragments, finish="tool_calls")) == TWO


def test_calls_without_ids_get_some_that_differ() -> None:
    first, second = parts_of(
        call_delta(piece(0, "", "f", "{}"), piece(0, "", "f", "{}")), delta("stop")
    )
    assert isinstance(first, ToolCall) and isinstance(second, ToolCall)
    assert first.id and second.id and first.id != second.id
    calls = [piece(None, "", "f", "{}"), piece(None, "", "f", "{}")]
    message = {"content": None, "tool_calls": calls}
    assert read_body(reply_body(message)).choices[0].parts == (first, second)


def test_text_beside_an_open_call_waits() -> None:
    assert parts_of(
        delta(content="before"),
        call_delta(piece(0, "c1", "f", '{"a"')),
        delta(content="after"),
        delta(reasoning_content="hm"),
        call_delta(piece(0, args=":1}")),
        delta("tool_calls"),
    ) == (Text(text="before"), TWO[0], Text(text="after"), Thinking(text="hm"))


def test_legacy_function_call() -> None:
    reply = reply_of(
        sse(
            delta(content=None, function_call={"name": "f", "arguments": ""}),
            delta(function_call={"arguments": "{}"}),
            delta("function_call"),
        )
    )
    (call,) = reply.choices[0].parts
    assert isinstance(call, ToolCall) and (call.name, call.arguments) == ("f", "{}")
    assert reply.choices[0].finish == "tool_calls"


def test_log_probabilities_of_a_call_are_those_of_its_name_and_of_its_end_too() -> None:
    def one(token: str) -> dict[str, Any]:
        return {"token": token, "logprob": -1.0}

    for first in (piece(0, "c1", "f"), piece(0, "c1", None, "{")):
        last = piece(0, None, "f", "}") if "name" not in first["function"] else piece(0, args="{}")
        chunks = [
            delta(tool_calls=[first]),
            delta(tool_calls=[last]),
            delta(content=""),
            delta("tool_calls"),
        ]
        for chunk, token in zip(chunks, "abc", strict=False):
            chunk["choices"][0]["logprobs"] = {"content": [one(token)], "refusal": None}
        choice = reply_of(sse(*chunks)).choices[0]
        assert choice.parts == (ToolCall(id="c1", name="f", arguments="{}"),)
        assert choice.logprobs == [one("a"), one("b"), one("c")]


def test_a_call_after_stop() -> None:
    choice = reply_of(sse(delta("stop"), call_delta(piece(0, "c1", "f", "{}")))).choices[0]
    assert choice.finish == "tool_calls" and choice.extra == {"finish_reason": "stop"}
