"""What we write, against OpenAI's own description of its API."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from headrace.protocol.dialects.openai_chat import CLIENT
from headrace.protocol.neutral.call import ChatCall, Message, OutputFormat, Reasoning, Tool
from headrace.protocol.neutral.collect import replayed
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import (
    Media,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from headrace.protocol.neutral.reply import ChatReply, Choice
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.openai_chat.samples import chunks_of, read, stream_bytes, written
from tests.protocol.dialects.openai_chat.test_write_call import FULL

_FILE = Path(__file__).parents[5] / "shared" / "assets" / "api-specs" / "openai" / "openapi.yaml"
_NAMES = (
    "CreateChatCompletionRequest",
    "CreateChatCompletionResponse",
    "CreateChatCompletionStreamResponse",
    "ErrorResponse",
)


def _nullable(node: Any) -> Any:
    """OpenAPI 3.0's `nullable` as JSON schema says it."""
    if isinstance(node, list):
        return [_nullable(one) for one in node]
    if not isinstance(node, dict):
        return node
    plain = {name: _nullable(one) for name, one in node.items() if name != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if node.get("nullable") is True else plain


@cache
def _schemas() -> dict[str, Any]:
    """The schemas of chat completions and all that they refer to, read once."""
    if not _FILE.exists():
        pytest.skip("needs api-specs/openai of the shared test assets")
    sections: dict[str, list[str]] = {}
    name = ""
    inside = False
    for line in _FILE.read_text().splitlines():
        if line.startswith("  ") and not line.startswith("   "):
            inside = line.strip() == "schemas:"
        elif inside and line.startswith("    ") and line[4] not in " #":
            name = line.strip().rstrip(":")
            sections[name] = []
        if inside and name:
            sections[name].append(line)
    wanted, found = list(_NAMES), {}
    while wanted:
        one = wanted.pop()
        if one in found:
            continue
        text = "\n".join(sections[one])
        found[one] = _nullable(yaml.load(text, Loader=yaml.CSafeLoader)[one])
        marks = text.split("#/components/schemas/")[1:]
        wanted += [mark.split('"')[0].split("'")[0].split()[0] for mark in marks]
    return found


def check(name: str, value: Any) -> None:
    """Raise if `value` is not what the description says."""
    root = {"components": {"schemas": _schemas()}}
    registry: Any = Registry().with_resource("urn:api", DRAFT202012.create_resource(root))
    schema = {"$ref": f"urn:api#/components/schemas/{name}"}
    jsonschema.Draft202012Validator(schema, registry=registry).validate(value)


def test_a_request_with_everything() -> None:
    check("CreateChatCompletionRequest", FULL | {"model": "gpt-4o"})
    check("CreateChatCompletionRequest", written(read(**FULL))[0])


def test_a_request_of_another_dialect() -> None:
    call = ChatCall(
        dialect="anthropic",
        model="claude",
        instructions=(Text(text="Be brief."), Text(text="Be kind.")),
        messages=(
            Message(
                role="user",
                parts=(Text(text="look"), Media(kind="image", mime="image/png", data="AAAA")),
            ),
            Message(
                role="assistant",
                parts=(
                    Thinking(text="hm", signature=Signature("anthropic", "S")),
                    ToolCall(id="c1", name="look", arguments="{}"),
                ),
            ),
            Message(
                role="tool",
                parts=(
                    ToolResult(
                        call_id="c1",
                        content=(
                            Text(text="see"),
                            Media(kind="image", mime="image/png", data="AAAA"),
                        ),
                    ),
                ),
            ),
            Message(role="assistant", parts=(Refusal("No."),)),
        ),
        tools=(Tool(name="look"),),
        max_tokens=9,
        output=OutputFormat(kind="schema", schema={"type": "object"}),
        reasoning=Reasoning(budget_tokens=100),
        stream=True,
    )
    check("CreateChatCompletionRequest", written(call)[0])


REPLY = ChatReply(
    dialect="anthropic",
    id="msg_1",
    model="claude",
    created_s=17,
    choices=(
        Choice(
            parts=(
                Thinking(text="hm", signature=Signature("anthropic", "S")),
                Text(text="so"),
                ToolCall(id="c", name="f", arguments="{}"),
                Media(kind="audio", data="AA=="),
            ),
            finish="tool_calls",
            logprobs=[{"token": "s", "logprob": -1.0, "bytes": [115], "top_logprobs": []}],
        ),
        Choice(index=1, parts=(Refusal("No."),), finish="pause"),
    ),
    usage=TokenUsage(input_tokens=1, cache_write_tokens=2, output_tokens=3, cost_nusd=5),
    service_tier="default",
)


def test_replies() -> None:
    check("CreateChatCompletionResponse", json.loads(CLIENT.write_reply(REPLY, read())))


def test_chunks() -> None:
    call = read(stream=True, n=2, stream_options={"include_usage": True})
    found = chunks_of(stream_bytes(call, list(replayed(REPLY))))
    assert len(found) > 8
    for chunk in found:
        check("CreateChatCompletionStreamResponse", chunk)


def test_errors() -> None:
    failure = Failure(kind="rate_limit", message="slow", param="model")
    check("ErrorResponse", json.loads(CLIENT.write_failure(failure, 429, "id")))
