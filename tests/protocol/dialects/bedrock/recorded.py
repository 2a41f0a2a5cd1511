"""Recorded exchanges with Converse, and recorded requests as the neutral calls they came from."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any, NamedTuple
from urllib.parse import unquote

from headrace.protocol.dialects.anthropic.request.schema import supported
from headrace.protocol.dialects.bedrock.values import FORMATS
from headrace.protocol.neutral.call import (
    ChatCall,
    HostedTool,
    Message,
    OutputFormat,
    Reasoning,
    Tool,
    ToolChoice,
)
from headrace.protocol.neutral.part import (
    CacheMark,
    Media,
    Opaque,
    Part,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.protocol.neutral.cassettes import Exchange, exchanges

FILLER = [{"text": "."}]


def converse(*, streamed: bool) -> list[Exchange]:
    """Exchanges with Converse, or ConverseStream, each once."""
    found = exchanges("pydantic-ai.tar.gz", "bedrock", "bedrock-runtime")
    found += exchanges("openllmetry.tar.gz", "instrumentation-bedrock", "bedrock-runtime")
    operation = "/converse-stream" if streamed else "/converse"
    return [one for one in found if one.path.endswith(operation) and "_with_events_" not in one.at]


def request_of(exchange: Exchange) -> dict[str, Any]:
    """What was sent; of one recording the last brace is missing."""
    missing = exchange.request.count(b"{") - exchange.request.count(b"}")
    sent: dict[str, Any] = json.loads(exchange.request + b"}" * missing)
    return sent


def model_of(exchange: Exchange) -> str:
    """The model's id, from the address."""
    return unquote(exchange.path.split("/")[2])


class RawEvent(NamedTuple):
    """A frame of a stream, read without the code that is tested."""

    name: str
    fields: dict[str, Any]


def raw_events(stream: bytes) -> list[RawEvent]:
    """The events of an AWS event stream that is whole."""
    events = []
    while stream:
        total, headers = struct.unpack(">II", stream[:8])
        block, payload = stream[12 : 12 + headers], stream[12 + headers : total - 4]
        name = block.split(b":event-type\x07", 1)[1]
        size = struct.unpack(">H", name[:2])[0]
        events.append(RawEvent(name[2 : 2 + size].decode(), json.loads(payload)))
        stream = stream[total:]
    return events


def call_of(request: dict[str, Any], model: str, *, stream: bool) -> ChatCall:
    """The neutral call that a recorded request says; "." turns that its writer put in are left out.

    Written for these recordings: it knows what is in them and no more.
    """
    config = request.get("inferenceConfig") or {}
    native = dict(request.get("additionalModelRequestFields") or {})
    tools = request.get("toolConfig") or {}
    extra: dict[str, Any] = {
        name: request[name]
        for name in (
            "guardrailConfig",
            "performanceConfig",
            "promptVariables",
            "additionalModelResponseFieldPaths",
        )
        if name in request
    }
    reasoning = _reasoning(native)
    top_k = native.pop("top_k", None)
    if "inferenceConfig" in native:
        top_k = native.pop("inferenceConfig")["topK"]
    if native:
        extra["additionalModelRequestFields"] = native
    return ChatCall(
        dialect="openai_chat",
        model=model,
        messages=_messages(request["messages"], keeps_first="anthropic." in model),
        instructions=tuple(_parts(request.get("system") or [])),  # type: ignore[arg-type]
        tools=tuple(_tools(tools.get("tools") or [])),
        tool_choice=_choice(tools.get("toolChoice")),
        max_tokens=config.get("maxTokens"),
        temperature=config.get("temperature"),
        top_p=config.get("topP"),
        top_k=top_k,
        stop=tuple(config.get("stopSequences") or ()),
        output=_output(request.get("outputConfig")),
        reasoning=reasoning,
        metadata=request.get("requestMetadata"),
        service_tier=(request.get("serviceTier") or {}).get("type"),
        stream=stream,
        extra=extra,
    )


def plain(request: dict[str, Any]) -> dict[str, Any]:
    """A recorded request without what says nothing: empty fields, success, the choice "auto".

    Adjacent turns of one role are one turn.
    """
    wanted = {name: value for name, value in request.items() if value}
    turns: list[dict[str, Any]] = []
    for turn in wanted["messages"]:
        if turns and turns[-1]["role"] == turn["role"]:
            turns[-1]["content"] += turn["content"]
        else:
            turns.append(turn)
    wanted["messages"] = turns
    for message in wanted["messages"]:
        for block in message["content"]:
            result = block.get("toolResult", {})
            if result.get("status") == "success" and "type" not in result:
                del result["status"]
    if wanted.get("toolConfig", {}).get("toolChoice") == {"auto": {}}:
        del wanted["toolConfig"]["toolChoice"]
    schema = wanted.get("outputConfig")
    if schema:
        definition = schema["textFormat"]["structure"]["jsonSchema"]
        # AWS took bounds of texts once; they go where Anthropic's rules for schemas have them.
        definition["schema"], _ = supported(json.loads(definition["schema"]))
    return wanted


def _messages(turns: list[dict[str, Any]], *, keeps_first: bool) -> tuple[Message, ...]:
    messages = []
    for number, turn in enumerate(turns):
        first = number == 0 and not (keeps_first and len(turns) > 1)
        if turn["content"] == FILLER and (first or turn["role"] == "assistant"):
            continue
        if turn["role"] == "assistant":
            messages.append(Message(role="assistant", parts=tuple(_parts(turn["content"], True))))
            continue
        parts = _parts(turn["content"])
        results = tuple(one for one in parts if isinstance(one, ToolResult))
        rest = tuple(one for one in parts if not isinstance(one, ToolResult))
        if results:
            messages.append(Message(role="tool", parts=results))
        if rest:
            messages.append(Message(role="user", parts=rest))
    return tuple(messages)


def _parts(blocks: list[dict[str, Any]], from_model: bool = False) -> list[Part]:
    parts: list[Part] = []
    for block in blocks:
        if block == {"text": "\n"}:
            continue  # stands between a document and its cache point
        if "cachePoint" in block:
            mark = CacheMark(block["cachePoint"].get("ttl"))
            last = parts.pop()
            assert isinstance(last, Text | Media | ToolCall | ToolResult)
            parts.append(_marked(last, mark))
        else:
            parts.append(_part(block, from_model))
    return parts


def _marked(part: Text | Media | ToolCall | ToolResult, mark: CacheMark) -> Part:
    fields = {name: getattr(part, name) for name in part.__struct_fields__}
    return type(part)(**{**fields, "cache": mark})


def _part(block: dict[str, Any], from_model: bool) -> Part:
    kind: Any
    kind, value = next(iter(block.items()))
    if kind == "text":
        return Text(text=value)
    if kind in ("image", "document", "video"):
        words = {word: mime for mime, word in FORMATS[kind].items()}
        source = value["source"]
        return Media(
            kind=kind,
            mime=words.get(value["format"], "video/mp4"),
            data=source.get("bytes"),
            url=source.get("s3Location", {}).get("uri"),
            name=value.get("name"),
        )
    if kind == "toolUse" and value.get("type") != "server_tool_use":
        arguments = json.dumps(value["input"])
        return ToolCall(id=value["toolUseId"], name=value["name"], arguments=arguments)
    if kind == "toolResult" and not from_model:
        content = tuple(_parts(value["content"]))
        failed = value.get("status") == "error"
        return ToolResult(call_id=value["toolUseId"], content=content, is_error=failed)  # type: ignore[arg-type]
    if kind == "reasoningContent":
        if "redactedContent" in value:
            hidden = base64.b64decode(value["redactedContent"]).decode()
            return Thinking(text="", redacted=True, signature=Signature("anthropic", hidden))
        told = value["reasoningText"]
        return Thinking(text=told["text"], signature=Signature("anthropic", told["signature"]))
    return Opaque("bedrock", block)


def _tools(tools: list[dict[str, Any]]) -> list[Tool | HostedTool]:
    found: list[Tool | HostedTool] = []
    for tool in tools:
        if "cachePoint" in tool:
            last = found.pop()
            assert isinstance(last, Tool)
            fields = {name: getattr(last, name) for name in last.__struct_fields__}
            found.append(Tool(**{**fields, "cache": CacheMark(tool["cachePoint"].get("ttl"))}))
        elif "toolSpec" in tool:
            spec = tool["toolSpec"]
            found.append(
                Tool(
                    name=spec["name"],
                    description=spec.get("description"),
                    parameters=spec["inputSchema"]["json"],
                    strict=spec.get("strict"),
                )
            )
        else:
            found.append(HostedTool("bedrock", tool))
    return found


def _choice(choice: dict[str, Any] | None) -> ToolChoice | None:
    if choice is None:
        return None
    if "tool" in choice:
        return ToolChoice("one", choice["tool"]["name"])
    return ToolChoice("required" if "any" in choice else "auto")


def _output(config: dict[str, Any] | None) -> OutputFormat | None:
    if config is None:
        return None
    definition = config["textFormat"]["structure"]["jsonSchema"]
    return OutputFormat(
        kind="schema",
        schema=json.loads(definition["schema"]),
        name=definition.get("name"),
        description=definition.get("description"),
    )


def _reasoning(native: dict[str, Any]) -> Reasoning | None:
    """Takes what it reads out of `native`."""
    thinking = native.pop("thinking", None)
    output = native.pop("output_config", {})
    effort = native.pop("reasoning_effort", None) or native.pop("reasoning_config", None)
    if thinking is not None:
        return Reasoning(
            budget_tokens=thinking.get("budget_tokens"),
            adaptive=True if thinking["type"] == "adaptive" else None,
            effort=output.get("effort"),
        )
    return None if effort is None else Reasoning(effort=effort)
