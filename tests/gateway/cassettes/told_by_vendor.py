"""What recorded answers say of vendors whose formats no client speaks; and which vendor has which.

As in `told`, without any code of the package.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

from tests.gateway.cassettes.told import (
    Told,
    anthropic,
    arguments,
    chat,
    mistral,
    ollama,
    responses,
    sse,
)


def gemini(body: bytes, stream: bool) -> Told:
    """generateContent; the usage that came last counts."""
    told, reason = Told(), ""
    usage: dict[str, Any] = {}
    for piece in sse(body) if stream else [json.loads(body)]:
        usage = piece.get("usageMetadata") or usage
        reason = (piece.get("promptFeedback") or {}).get("blockReason") or reason
        for candidate in (piece.get("candidates") or ())[:1]:
            reason = candidate.get("finishReason") or reason
            for part in candidate.get("content", {}).get("parts", ()):
                if "functionCall" in part:
                    call = part["functionCall"]
                    told.calls.append((call["name"], call.get("args") or {}))
                elif part.get("thought"):
                    told.thoughts += part.get("text", "")
                else:
                    told.text += part.get("text", "")
    told.finish = {
        "MAX_TOKENS": "length", "SAFETY": "content_filter", "MODEL_ARMOR": "content_filter",
    }.get(reason, "stop")  # fmt: skip
    if told.calls and told.finish == "stop":
        told.finish = "tool_calls"
    if not any(name.endswith("TokenCount") for name in usage):
        return told
    cached = usage.get("cachedContentTokenCount", 0)

    def audio(name: str) -> int:
        found = [one for one in usage.get(name, ()) if one["modality"] == "AUDIO"]
        return sum(one.get("tokenCount", 0) for one in found)

    heard = audio("promptTokensDetails") - audio("cacheTokensDetails")
    tools = usage.get("toolUsePromptTokenCount", 0)
    told.count(
        input_tokens=usage.get("promptTokenCount", 0) - cached - heard + tools,
        cache_read_tokens=cached,
        input_audio_tokens=heard,
        output_tokens=usage.get("candidatesTokenCount", 0),
        reasoning_tokens=usage.get("thoughtsTokenCount", 0),
    )
    return told


def _frames(stream: bytes) -> list[tuple[str, dict[str, Any]]]:
    events = []
    while stream:
        total, headers = struct.unpack(">II", stream[:8])
        block, payload = stream[12 : 12 + headers], stream[12 + headers : total - 4]
        name = block.split(b":event-type\x07", 1)[1]
        size = struct.unpack(">H", name[:2])[0]
        events.append((name[2 : 2 + size].decode(), json.loads(payload)))
        stream = stream[total:]
    return events


def bedrock(body: bytes, stream: bool) -> Told:
    """Converse, and its frames."""
    told, reason = Told(), ""
    usage: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    if stream:
        for name, value in _frames(body):
            at = value.get("contentBlockIndex", 0)
            if name == "contentBlockStart":
                if use := value["start"].get("toolUse"):
                    blocks[at] = {"toolUse": {**use, "written": ""}}
            elif name == "contentBlockDelta":
                _grow(blocks.setdefault(at, {}), value["delta"])
            elif name == "messageStop":
                reason = value["stopReason"]
            elif name == "metadata":
                usage = value["usage"]
    else:
        whole = json.loads(body)
        reason, usage = whole["stopReason"], whole["usage"]
        blocks = dict(enumerate(whole["output"]["message"]["content"]))
    for _, block in sorted(blocks.items()):
        told.text += block.get("text", "")
        for cited in block.get("citationsContent", {}).get("content", ()):
            told.text += cited["text"]
        told.thoughts += block.get("reasoningContent", {}).get("reasoningText", {}).get("text", "")
        use = block.get("toolUse")
        if use and use.get("type") != "server_tool_use":
            value = arguments(use["written"]) if "written" in use else use["input"]
            told.calls.append((use["name"], value))
    told.finish = {
        "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length",
        "tool_use": "tool_calls", "guardrail_intervened": "content_filter",
        "content_filtered": "content_filter",
    }[reason]  # fmt: skip
    details = usage.get("cacheDetails") or ()
    hour = sum(one["inputTokens"] for one in details if one["ttl"] == "1h")
    told.count(
        input_tokens=usage["inputTokens"],
        cache_read_tokens=usage.get("cacheReadInputTokens", 0),
        cache_write_tokens=usage.get("cacheWriteInputTokens", 0) - hour,
        cache_write_1h_tokens=hour,
        output_tokens=usage["outputTokens"],
    )
    return told


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if "text" in delta:
        block["text"] = block.get("text", "") + delta["text"]
    elif "toolUse" in delta and "toolUse" in block:
        block["toolUse"]["written"] += delta["toolUse"]["input"]
    elif "reasoningContent" in delta:
        inner = block.setdefault("reasoningContent", {}).setdefault("reasoningText", {})
        inner["text"] = inner.get("text", "") + delta["reasoningContent"].get("text", "")


def cohere(body: bytes, stream: bool) -> Told:
    """Version 2 of its chat. What is billed counts, without the template's tokens."""
    told, reason = Told(), ""
    calls: dict[int, list[str]] = {}
    usage: dict[str, Any] = {}
    if not stream:
        whole = json.loads(body)
        message, reason, usage = whole["message"], whole["finish_reason"], whole["usage"]
        for part in message.get("content") or ():
            told.text += part.get("text", "")
            told.thoughts += part.get("thinking", "")
        for number, call in enumerate(message.get("tool_calls") or ()):
            calls[number] = [call["function"]["name"], call["function"]["arguments"]]
        told.text = message.get("tool_plan", "") + told.text
    for event in sse(body) if stream else ():
        kind, delta = event["type"], event.get("delta") or {}
        message = delta.get("message") or {}
        if kind == "content-delta":
            told.text += message["content"].get("text", "")
            told.thoughts += message["content"].get("thinking", "")
        elif kind == "tool-plan-delta":
            told.text += message["tool_plan"]
        elif kind == "tool-call-start":
            function = message["tool_calls"]["function"]
            calls[event["index"]] = [function["name"], function.get("arguments") or ""]
        elif kind == "tool-call-delta":
            calls[event["index"]][1] += message["tool_calls"]["function"]["arguments"]
        elif kind == "message-end":
            reason, usage = delta["finish_reason"], delta["usage"]
    told.calls = [(name, arguments(text)) for name, text in calls.values()]
    told.finish = {
        "COMPLETE": "stop", "STOP_SEQUENCE": "stop", "MAX_TOKENS": "length",
        "TOOL_CALL": "tool_calls",
    }[reason]  # fmt: skip
    billed, tokens = usage["billed_units"], usage.get("tokens") or {}
    read = int(billed["input_tokens"])
    unbilled = max(int(tokens.get("input_tokens") or 0) - read, 0)
    cached = min(max(int(usage.get("cached_tokens") or 0) - unbilled, 0), read)
    told.count(
        input_tokens=read - cached,
        cache_read_tokens=cached,
        output_tokens=int(billed["output_tokens"]),
    )
    return told


READ: dict[str, Callable[[bytes, bool], Told]] = {
    "openai-responses": responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "vertex": gemini,
    "bedrock": bedrock,
    "cohere": cohere,
    "mistral": mistral,
    "ollama": ollama,
}


def told(vendor: str, body: bytes, *, stream: bool) -> Told:
    """What a vendor's recorded answer says."""
    return READ.get(vendor, chat)(body, stream)
