"""Requests checked against Anthropic's own description of its API (of late 2024)."""

from __future__ import annotations

import json
from typing import Any

from headrace.protocol.dialects.anthropic import PROVIDER
from headrace.protocol.neutral.call import ChatCall, Tool, ToolChoice
from headrace.protocol.neutral.part import CacheMark, Media, Text, ToolCall, ToolResult
from tests.protocol.dialects.anthropic.written_calls import HI, assistant, results, user
from tests.protocol.dialects.api_description import assert_as_described

MODEL = "claude-3-haiku-20240307"


def check(call: ChatCall) -> None:
    body = json.loads(PROVIDER.write_call(call, MODEL).body)
    assert_as_described(body, "anthropic/hosted_spec.json", "/v1/messages?beta=true")


def test_everything_that_the_description_knows() -> None:
    mark = CacheMark()
    picture = Media(kind="image", mime="image/png", data="AA==")
    fields: dict[str, Any] = {
        "instructions": (Text(text="s", cache=mark), Text(text="t")),
        "tools": (Tool(name="f", description="d", cache=mark), Tool(name="g")),
        "tool_choice": ToolChoice("one", "f"),
        "parallel_tool_calls": False,
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.5,
        "top_k": 5,
        "stop": ("END",),
        "user": "u",
        "stream": True,
    }
    check(
        ChatCall(
            dialect="openai_chat",
            model="m",
            messages=(
                assistant("a"),
                user("b", picture, Media(kind="document", mime="application/pdf", data="JVBERi0=")),
                assistant("c", ToolCall(id="f:0", name="f", arguments="[1]", cache=mark)),
                results(
                    ToolResult(call_id="f:0", content=(Text(text="d"), picture), is_error=True)
                ),
            ),
            **fields,
        )
    )


def test_the_smallest_request() -> None:
    check(ChatCall(dialect="openai_chat", model="m", messages=HI))


def test_every_tool_choice() -> None:
    for kind in ("auto", "required"):
        choice = ToolChoice(kind)
        tools = (Tool(name="f"),)
        check(
            ChatCall(dialect="openai_chat", model="m", messages=HI, tools=tools, tool_choice=choice)
        )
