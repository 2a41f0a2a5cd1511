"""OpenAI's chat completions, completions and embeddings, and what servers add to them.

Reasoning is `reasoning_content` (DeepSeek, vLLM before) or `reasoning` (OpenRouter, vLLM now).
Usage comes in an event of its own, with the last content, or with every event. Queue times are
those of headrace (`metrics.queue_s` of a choice) and of Groq (`queue_time` of the usage).
"""

from __future__ import annotations

from typing import Any

from headrace.bench.client.answer import Answer, count, mapping, objects, output_count, text
from headrace.bench.record import ChunkKind, Usage

DONE_DATA = "[DONE]"


def take_event(answer: Answer, at_ns: int, event: dict[str, Any], _name: str) -> None:
    """One event of a stream, of either endpoint."""
    if event.get("error"):
        answer.failed(event)
        return
    found: list[tuple[ChunkKind, str]] = []
    opens = False
    for choice in objects(event.get("choices")):
        _take_reason(answer, choice)
        delta = mapping(choice.get("delta"))
        opens = opens or "role" in delta
        found += [*_pieces(delta), ("text", text(choice.get("text")))]
    counts = _take_usage(answer, event)
    otherwise: ChunkKind = "usage" if counts else "other"
    if opens and not answer.chunks:
        otherwise = "role"
    tokens = _tokens(answer, event) if any(piece for _, piece in found) else None
    answer.add_all(at_ns, found, event, otherwise, tokens)


def _tokens(answer: Answer, event: dict[str, Any]) -> int | None:
    """Tokens of an event with content, where the server counts event by event.

    It lists their ids (`token_ids`), or every event so far had the usage up to there; usage with
    the last content alone is that of all.
    """
    ids = [choice.get("token_ids") for choice in objects(event.get("choices"))]
    listed = sum(len(one) for one in ids if isinstance(one, list))
    before, so_far = (
        answer.counted_tokens,
        output_count(mapping(event.get("usage")).get("completion_tokens")),
    )
    answer.counted_tokens = None if before is None else so_far
    if listed:
        return listed
    return None if before is None or so_far is None or so_far < before else so_far - before


def take_whole(answer: Answer, at_ns: int, reply: dict[str, Any]) -> None:
    """A reply without a stream."""
    found: list[tuple[ChunkKind, str]] = []
    choices = objects(reply.get("choices"))
    for choice in choices:
        _take_reason(answer, choice)
        found += [("text", text(choice.get("text"))), *_pieces(mapping(choice.get("message")))]
    _take_usage(answer, reply)
    if not choices:
        answer.failed(reply if reply.get("error") else "the reply has no choices")
        return
    answer.add_whole(at_ns, found, reply)


def take_embeddings(answer: Answer, at_ns: int, reply: dict[str, Any]) -> None:
    """Vectors: one chunk whose text says how many and, of lists, how long."""
    data = objects(reply.get("data"))
    _take_usage(answer, reply)
    if not data:
        answer.failed(reply if reply.get("error") else "the reply has no embeddings")
        return
    vector = data[0].get("embedding")
    size = f"{len(vector)} numbers" if isinstance(vector, list) else "base64"
    answer.add(at_ns, "text", f"{len(data)} x {size}", reply)
    answer.end(at_ns)


def _pieces(delta: dict[str, Any]) -> list[tuple[ChunkKind, str]]:
    """What a delta or a message carries; empty texts too."""
    found: list[tuple[ChunkKind, str]] = [
        ("reasoning", text(delta.get("reasoning_content")) or text(delta.get("reasoning"))),
        ("text", _content(delta.get("content"))),
        ("text", text(delta.get("refusal"))),
    ]
    calls = [mapping(call.get("function")) for call in objects(delta.get("tool_calls"))]
    for call in (*calls, mapping(delta.get("function_call"))):
        found.append(("tool", text(call.get("name")) + text(call.get("arguments"))))
    return found


def _content(content: Any) -> str:
    """Text, or parts with text (Mistral)."""
    parts = "".join(text(part.get("text")) for part in objects(content))
    return text(content) or parts


def _take_reason(answer: Answer, choice: dict[str, Any]) -> None:
    answer.finish_reason = text(choice.get("finish_reason")) or answer.finish_reason
    answer.waited(mapping(choice.get("metrics")).get("queue_s"))


def _take_usage(answer: Answer, event: dict[str, Any]) -> bool:
    """Whether the event counts tokens."""
    usage = mapping(event.get("usage")) or mapping(mapping(event.get("x_groq")).get("usage"))
    answer.waited(usage.get("queue_time"))
    reasoning = count(mapping(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    cached = count(mapping(usage.get("prompt_tokens_details")).get("cached_tokens"))
    answer.told(
        Usage(
            prompt_tokens=count(usage.get("prompt_tokens")),
            completion_tokens=count(usage.get("completion_tokens")),
            reasoning_tokens=count(usage.get("reasoning_tokens"))
            if reasoning is None
            else reasoning,
            # DeepSeek's own name.
            cached_tokens=count(usage.get("prompt_cache_hit_tokens")) if cached is None else cached,
        )
    )
    return bool(usage)
