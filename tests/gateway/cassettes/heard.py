"""What clients of each dialect read of the gateway's answers, without any code of the package."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.gateway.cassettes import told
from tests.gateway.cassettes.told import Told, arguments


class Heard(NamedTuple):
    """finish: the dialect's own word. read, wrote, cached: tokens as the dialect counts them, the
    first two all that was read and all that was written."""

    text: str
    thoughts: str
    calls: list[tuple[str, Any]]
    finish: str
    read: int | None
    wrote: int | None
    cached: int | None


def _chat(body: bytes, stream: bool) -> Heard:
    found = told.chat(body, stream)
    pieces = told.sse(body) if stream else [json.loads(body)]
    usage: dict[str, Any] = next((one["usage"] for one in pieces if one.get("usage")), {})
    reasons = [
        choice["finish_reason"]
        for one in pieces
        for choice in one["choices"]
        if choice["index"] == 0 and choice["finish_reason"]
    ]
    assert len(reasons) == 1, reasons
    if stream:
        assert body.endswith(b"data: [DONE]\n\n"), body[-60:]
    return Heard(
        found.text + found.refusal,
        found.thoughts,
        found.calls,
        reasons[0],
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
    )


def _responses(body: bytes, stream: bool) -> Heard:
    found = told.responses(body, stream)
    whole = told.sse(body)[-1]["response"] if stream else json.loads(body)
    if stream:
        _same_as_its_pieces(told.sse(body), found)
    usage = whole["usage"] or {}
    why = (whole.get("incomplete_details") or {}).get("reason", "")
    return Heard(
        found.text + found.refusal,
        found.thoughts,
        found.calls,
        f"{whole['status']} {why}".strip(),
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        (usage.get("input_tokens_details") or {}).get("cached_tokens"),
    )


def _same_as_its_pieces(events: list[dict[str, Any]], found: Told) -> None:
    """The deltas of a stream make what its last event says."""
    text, written = "", dict[int, str]()
    for number, event in enumerate(events):
        assert event["sequence_number"] == number
        if event["type"] in ("response.output_text.delta", "response.refusal.delta"):
            text += event["delta"]
        elif event["type"] == "response.function_call_arguments.delta":
            at = event["output_index"]
            written[at] = written.get(at, "") + event["delta"]
    assert text == found.text + found.refusal
    assert [arguments(one) for one in written.values()] == [
        value for _, value in found.calls if value != {} or len(written) == len(found.calls)
    ]


def _anthropic(body: bytes, stream: bool) -> Heard:
    if stream:
        from tests.protocol.dialects.anthropic.recorded import assembled

        message = assembled(body)
        assert told.sse(body)[-1]["type"] == "message_stop"
    else:
        message = json.loads(body)
    found = told.anthropic(json.dumps(message).encode(), False)
    usage = message["usage"]
    written = usage.get("cache_creation_input_tokens") or 0
    cached = usage.get("cache_read_input_tokens") or 0
    return Heard(
        found.text,
        found.thoughts,
        found.calls,
        message["stop_reason"],
        usage["input_tokens"] + cached + written,
        usage["output_tokens"],
        cached,
    )


def _ollama(body: bytes, stream: bool) -> Heard:
    found = told.ollama(body, stream)
    lines = [json.loads(one) for one in body.splitlines()]
    assert [one["done"] for one in lines] == [False] * (len(lines) - 1) + [True]
    return Heard(
        found.text,
        found.thoughts,
        found.calls,
        lines[-1]["done_reason"],
        lines[-1].get("prompt_eval_count"),
        lines[-1].get("eval_count"),
        None,
    )


# By the path that clients ask at.
HEARD: dict[str, Callable[[bytes, bool], Heard]] = {
    "/v1/chat/completions": _chat,
    "/v1/responses": _responses,
    "/v1/messages": _anthropic,
    "/api/chat": _ollama,
}
OWN_PATH = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "ollama": "/api/chat",
}
FINISHES = {
    "/v1/chat/completions": {"pause": "stop"},
    "/v1/responses": {
        "stop": "completed", "tool_calls": "completed", "length": "incomplete max_output_tokens",
        "content_filter": "incomplete content_filter", "pause": "completed",
    },
    "/v1/messages": {
        "stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens",
        "content_filter": "refusal", "pause": "pause_turn",
    },
    "/api/chat": {"tool_calls": "stop", "pause": "stop"},
}  # fmt: skip


def asked(path: str, *, stream: bool) -> dict[str, Any]:
    """A request at a path, as small as it may be."""
    body: dict[str, Any] = {"model": "chat", "stream": stream}
    if path == "/v1/responses":
        return {**body, "input": "Hi"}
    body["messages"] = [{"role": "user", "content": "Hi"}]
    if path == "/v1/messages":
        body["max_tokens"] = 100
    if path == "/v1/chat/completions" and stream:
        body["stream_options"] = {"include_usage": True}
    return body
