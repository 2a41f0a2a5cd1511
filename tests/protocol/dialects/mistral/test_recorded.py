"""What Mistral was recorded to say and to be asked, against its raw JSON."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from headrace.protocol.dialects.mistral import PROVIDER
from headrace.protocol.neutral.call import (
    ChatCall,
    Message,
    OutputFormat,
    Reasoning,
    Tool,
    ToolChoice,
)
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import ReplyEnd
from headrace.protocol.neutral.part import Media, Part, Text, Thinking, ToolCall, ToolResult
from headrace.protocol.neutral.reply import ChatReply
from tests.protocol.dialects.api_description import assert_as_described
from tests.protocol.dialects.mistral.samples import (
    answers,
    call,
    embeddings,
    errors,
    streams,
)
from tests.protocol.neutral.cassettes import Exchange
from tests.protocol.neutral.streams import assert_grammar, read_stream

pytestmark = pytest.mark.usefixtures("recordings", "api_descriptions")

_CHOICES = {"any": "required", "required": "required", "none": "none", "auto": "auto"}


def _texts(reply: ChatReply, kind: type[Text] | type[Thinking]) -> str:
    return "".join(part.text for part in reply.choices[0].parts if isinstance(part, kind))


def _calls(reply: ChatReply) -> list[tuple[str, str, Any]]:
    found = [part for part in reply.choices[0].parts if isinstance(part, ToolCall)]
    return [(one.id, one.name, json.loads(one.arguments)) for one in found]


def _raw_texts(content: Any) -> tuple[str, str]:
    """Text and thoughts of a `content`."""
    if not isinstance(content, list):
        return content or "", ""
    words = "".join(one["text"] for one in content if one["type"] == "text")
    inner = [two for one in content if one["type"] == "thinking" for two in one["thinking"]]
    return words, "".join(one["text"] for one in inner)


def _raw_calls(raw: list[dict[str, Any]]) -> list[tuple[str, str, Any]]:
    functions = [(one["id"], one["function"]) for one in raw]
    return [
        (id, one["name"], json.loads(arguments) if isinstance(arguments, str) else arguments)
        for id, one in functions
        for arguments in [one["arguments"]]
    ]


def _assert_usage(reply: ChatReply, raw: dict[str, Any]) -> None:
    usage = reply.usage
    assert usage is not None
    details = raw.get("prompt_tokens_details") or {}
    assert usage.prompt_tokens == raw["prompt_tokens"]
    assert usage.completion_tokens == raw["completion_tokens"]
    assert usage.cache_read_tokens == (
        raw.get("num_cached_tokens") or details.get("cached_tokens") or 0
    )
    assert usage.prompt_tokens + usage.completion_tokens == raw["total_tokens"]


def test_answers() -> None:
    found = answers()
    assert len(found) >= 64
    for exchange in found:
        raw = json.loads(exchange.body)
        reply = PROVIDER.read_reply(exchange.body)
        [choice] = raw["choices"]
        message = choice["message"]
        expected = _raw_texts(message["content"])
        assert (_texts(reply, Text), _texts(reply, Thinking)) == expected, exchange.at
        assert _calls(reply) == _raw_calls(message.get("tool_calls") or []), exchange.at
        assert reply.choices[0].finish == choice["finish_reason"], exchange.at
        assert (reply.id, reply.model, reply.created_s) == (
            raw["id"],
            raw["model"],
            raw["created"],
        )
        _assert_usage(reply, raw["usage"])


def test_streams() -> None:
    found = streams()
    assert len(found) >= 7
    for exchange in found:
        raw = _chunks(exchange)
        events = read_stream(PROVIDER.stream_reader(call()), exchange.body)
        assert_grammar(events)
        assert isinstance(events[-1], ReplyEnd), exchange.at
        reply = collected("mistral", events)
        deltas = [one["delta"] for chunk in raw for one in chunk["choices"]]
        pairs = [_raw_texts(one.get("content")) for one in deltas]
        assert _texts(reply, Text) == "".join(words for words, _ in pairs), exchange.at
        assert _texts(reply, Thinking) == "".join(thoughts for _, thoughts in pairs)
        calls = [one for delta in deltas for one in delta.get("tool_calls") or []]
        assert _calls(reply) == _raw_calls(calls), exchange.at
        assert reply.choices[0].finish == raw[-1]["choices"][0]["finish_reason"]
        assert (reply.id, reply.model) == (raw[0]["id"], raw[0]["model"])
        _assert_usage(reply, raw[-1]["usage"])


def _chunks(exchange: Exchange) -> list[dict[str, Any]]:
    data = [line[5:] for line in exchange.body.decode().split("\n") if line.startswith("data:")]
    return [json.loads(one) for one in data if one.strip() != "[DONE]"]


def test_requests() -> None:
    """What Mistral's own client sent is what is written for the same call."""
    compared = 0
    for exchange in answers() + streams():
        raw = json.loads(exchange.request)
        told = PROVIDER.write_call(_read(raw), raw["model"])
        assert told.path == exchange.path
        assert told.dropped == ()
        body = json.loads(told.body)
        assert _plain(body) == _plain(raw), exchange.at
        assert_as_described(body, "mistral/openapi.yaml", "/v1/chat/completions")
        compared += 1
    assert compared >= 71


def _read(raw: dict[str, Any]) -> ChatCall:
    """A request by hand: fields that it does not know fail the test."""
    given = {name: value for name, value in raw.items() if value is not None}
    messages = given.pop("messages")
    instructions = [one["content"] for one in messages if one["role"] == "system"]
    functions = [one["function"] for one in given.pop("tools", [])]
    choice = given.pop("tool_choice", None)
    output = given.pop("response_format", None)
    extra = {name: given.pop(name) for name in ("prompt_cache_key",) if name in given}
    names = {"n": "choices", "random_seed": "seed"}
    stop = tuple(given.pop("stop", ()))
    effort = given.pop("reasoning_effort", None)
    more = {
        names.get(name, name): given.pop(name)
        for name in (
            "n",
            "max_tokens",
            "temperature",
            "top_p",
            "frequency_penalty",
            "presence_penalty",
            "random_seed",
            "parallel_tool_calls",
        )
        if name in given
    }
    made = ChatCall(
        dialect="openai-chat",
        model=given.pop("model"),
        stream=given.pop("stream", False),
        instructions=tuple(Text(text=one) for one in instructions),
        messages=tuple(_message(one) for one in messages if one["role"] != "system"),
        tools=tuple(Tool(**one) for one in functions),
        tool_choice=_choice(choice),
        output=_output(output),
        stop=stop,
        reasoning=Reasoning(effort=effort) if effort else None,
        extra=extra,
        **more,
    )
    assert given == {}
    return made


def _choice(raw: Any) -> ToolChoice | None:
    if isinstance(raw, dict):
        return ToolChoice("one", raw["function"]["name"])
    kinds: dict[str, Any] = _CHOICES
    return ToolChoice(kinds[raw]) if raw else None


def _output(raw: dict[str, Any] | None) -> OutputFormat | None:
    if raw is None:
        return None
    kinds: dict[str, Any] = {"text": "text", "json_object": "json", "json_schema": "schema"}
    schema = raw.get("json_schema") or {}
    return OutputFormat(kind=kinds[raw["type"]], **schema)


def _message(raw: dict[str, Any]) -> Message:
    content = raw.get("content") or []
    chunks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    parts: list[Part] = [part for one in chunks for part in _parts(one)]
    if raw["role"] == "tool":
        texts = tuple(one for one in parts if isinstance(one, Text | Media))
        result = ToolResult(call_id=raw["tool_call_id"], name=raw.get("name") or "", content=texts)
        return Message(role="tool", parts=(result,))
    for one in raw.get("tool_calls") or []:
        parts.append(ToolCall(id=one["id"], **one["function"]))
    return Message(role=raw["role"], parts=tuple(parts))


def _parts(chunk: dict[str, Any]) -> list[Part]:
    if chunk["type"] == "thinking":
        # Thoughts of several chunks are one, as a Thinking is one text.
        return [Thinking(text="".join(one["text"] for one in chunk["thinking"]))]
    if chunk["type"] == "image_url":
        url = chunk["image_url"]
        return [Media(kind="image", **(url if isinstance(url, dict) else {"url": url}))]
    if chunk["type"] == "document_url":
        return [Media(kind="document", url=chunk["document_url"])]
    assert chunk["type"] == "text"
    return [Text(text=chunk["text"])]


def _plain(raw: dict[str, Any]) -> dict[str, Any]:
    """One way of saying what may be said in two."""
    told = {name: value for name, value in raw.items() if value is not None}
    told["messages"] = [_plain_message(one) for one in raw["messages"]]
    if "tools" in told:
        told["tools"] = [{"type": "function"} | one for one in raw["tools"]]
    return told


def _plain_message(raw: dict[str, Any]) -> dict[str, Any]:
    told = {name: value for name, value in raw.items() if value not in (None, "", [], False)}
    content = told.get("content")
    if isinstance(content, str):
        told["content"] = [{"type": "text", "text": content}]
    for one in told.get("content", []):
        if one["type"] == "thinking":
            words = "".join(two["text"] for two in one["thinking"])
            one["thinking"] = [{"type": "text", "text": words}]
        if one["type"] == "image_url" and isinstance(one["image_url"], str):
            one["image_url"] = {"url": one["image_url"]}
    told["tool_calls"] = [
        {"type": "function", "index": 0} | one for one in raw.get("tool_calls") or []
    ]
    return told


def test_embeddings() -> None:
    found = embeddings()
    assert len(found) >= 6
    for exchange in found:
        raw = json.loads(exchange.body)
        reply = PROVIDER.read_embeddings((exchange.body,))
        assert len(reply.vectors) == len(raw["data"])
        for vector, one in zip(reply.vectors, raw["data"], strict=True):
            floats = one["embedding"]
            assert struct.unpack(f"<{len(floats)}f", vector) == pytest.approx(floats, rel=1e-6)
        assert reply.model == raw["model"]
        assert reply.usage is not None
        assert reply.usage.prompt_tokens == raw["usage"]["prompt_tokens"]


def test_errors() -> None:
    for exchange in errors():
        failure = PROVIDER.read_failure(exchange.status, exchange.headers, exchange.body)
        raw = exchange.body.decode()
        assert failure.message in raw, exchange.at
        assert failure.status == exchange.status
