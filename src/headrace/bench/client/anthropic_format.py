"""Anthropic's Messages. Its input_tokens leave out what was read from or written to the cache."""

from __future__ import annotations

from typing import Any

from headrace.bench.client.answer import Answer, count, mapping, objects, text, written
from headrace.bench.record import ChunkKind, Usage

_DELTAS: dict[str, tuple[ChunkKind, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("reasoning", "thinking"),
    "input_json_delta": ("tool", "partial_json"),
}


def take_event(answer: Answer, at_ns: int, event: dict[str, Any], name: str) -> None:
    """One event of a stream; its type is in the data, and the event's name says the same."""
    kind = text(event.get("type")) or name
    found: list[tuple[ChunkKind, str]] = []
    otherwise: ChunkKind = "other"
    if kind == "error":
        answer.failed(event)
        return
    if kind == "message_start":
        _take_usage(answer, mapping(event.get("message")))
        otherwise = "role"
    elif kind == "content_block_start":
        found = _block(mapping(event.get("content_block")))
    elif kind == "content_block_delta":
        delta = mapping(event.get("delta"))
        of, field = _DELTAS.get(text(delta.get("type")), ("other", ""))
        found = [(of, text(delta.get(field)))]
    elif kind == "message_delta":
        reason = text(mapping(event.get("delta")).get("stop_reason"))
        answer.finish_reason = reason or answer.finish_reason
        otherwise = "usage" if _take_usage(answer, event) else "other"
    elif kind == "message_stop":
        answer.end(at_ns)
    answer.add_all(at_ns, found, event, otherwise)


def take_whole(answer: Answer, at_ns: int, reply: dict[str, Any]) -> None:
    """A reply without a stream."""
    if not isinstance(reply.get("content"), list):
        answer.failed(reply if reply.get("error") else "the reply has no content")
        return
    found = [piece for block in objects(reply["content"]) for piece in _block(block)]
    answer.finish_reason = text(reply.get("stop_reason")) or None
    _take_usage(answer, reply)
    answer.add_whole(at_ns, found, reply)


def _block(block: dict[str, Any]) -> list[tuple[ChunkKind, str]]:
    if block.get("type") in ("tool_use", "server_tool_use", "mcp_tool_use"):
        given = block.get("input")
        arguments = written(given) if given else ""
        return [("tool", text(block.get("name")) + arguments)]
    return [
        ("reasoning", text(block.get("thinking"))),
        ("text", text(block.get("text"))),
    ]


def _take_usage(answer: Answer, holder: dict[str, Any]) -> bool:
    """Whether `holder` counts tokens."""
    usage = mapping(holder.get("usage"))
    fresh = count(usage.get("input_tokens"))
    read = count(usage.get("cache_read_input_tokens"))
    stored = count(usage.get("cache_creation_input_tokens"))
    # The last event may repeat input_tokens without the two others.
    again = answer.usage.prompt_tokens is not None and read is None and stored is None
    known = fresh is not None and not again
    answer.told(
        Usage(
            prompt_tokens=(fresh or 0) + (read or 0) + (stored or 0) if known else None,
            completion_tokens=count(usage.get("output_tokens")),
            cached_tokens=read,
        )
    )
    return bool(usage)
