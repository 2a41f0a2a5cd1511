"""What a recorded answer says, found in its raw bytes without any code of the package."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Lines = dict[str, int]


@dataclass
class Told:
    """Of the first choice. calls: names and arguments as values. usage: the lines of a bill that
    are not 0. finish: the neutral word. failed: the provider gave up. cost_nusd: what it
    says itself that it took."""

    text: str = ""
    thoughts: str = ""
    refusal: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    finish: str = ""
    usage: Lines | None = None
    cost_nusd: int | None = None
    failed: bool = False

    def count(self, **lines: int | None) -> None:
        self.usage = {name: value for name, value in lines.items() if value}


def sse(body: bytes) -> list[dict[str, Any]]:
    """The objects of a stream's data lines."""
    lines = body.decode().replace("\r\n", "\n").split("\n")
    data = [one[5:].strip() for one in lines if one.startswith("data:")]
    return [json.loads(one) for one in data if one and one != "[DONE]"]


def arguments(text: str) -> Any:
    """Arguments as a value; what a model wrote wrong as it stands."""
    try:
        return json.loads(text) if text.strip() else {}
    except ValueError:
        return text


def chat(body: bytes, stream: bool) -> Told:
    """Chat completions, of OpenAI and all who write like it."""
    told, reason = Told(), ""
    thoughts, details = "", ""  # the same twice, for those who read either
    open_calls: dict[int, list[str]] = {}
    usage: dict[str, Any] = {}
    for piece in sse(body) if stream else [json.loads(body)]:
        told.failed = told.failed or bool(piece.get("error"))
        usage = piece.get("usage") or (piece.get("x_groq") or {}).get("usage") or usage
        for choice in piece.get("choices") or ():
            if choice["index"] != 0:
                continue
            said = choice.get("delta" if stream else "message") or {}
            reason = choice.get("finish_reason") or reason
            _chat_content(told, said.get("content"))
            told.refusal += said.get("refusal") or ""
            thoughts += said.get("reasoning_content") or said.get("reasoning") or ""
            for detail in said.get("reasoning_details") or ():
                details += detail.get("text") or detail.get("summary") or ""
            for number, call in enumerate(said.get("tool_calls") or ()):
                at = call.get("index", number)
                function = call["function"]
                open_calls.setdefault(at, [function.get("name"), ""])
                open_calls[at][1] += function.get("arguments") or ""
            if legacy := said.get("function_call"):
                open_calls.setdefault(0, [legacy.get("name"), ""])
                open_calls[0][1] += legacy.get("arguments") or ""
    told.thoughts += thoughts or details
    told.calls = [(name, arguments(text)) for name, text in open_calls.values()]
    told.finish = {"function_call": "tool_calls", "eos": "stop", "": "stop"}.get(reason, reason)
    if told.calls and told.finish == "stop":
        told.finish = "tool_calls"
    if usage:
        if usage.get("cost") is not None:
            fee = usage["cost"]
            if usage.get("is_byok"):
                fee += usage["cost_details"]["upstream_inference_cost"]
            told.cost_nusd = round(fee * 10**9)
        read, wrote = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
        read, wrote = read or {}, wrote or {}
        cached = read.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
        audio = read.get("audio_tokens") or 0
        # OpenRouter tells of some models the same tokens as written and as read.
        written = min(read.get("cache_write_tokens") or 0, usage["prompt_tokens"] - cached)
        spoken, completion = wrote.get("audio_tokens") or 0, usage["completion_tokens"]
        reasoning = min(wrote.get("reasoning_tokens") or 0, completion)
        told.count(
            input_tokens=usage["prompt_tokens"] - cached - audio - written,
            cache_read_tokens=cached,
            cache_write_tokens=written,
            input_audio_tokens=audio,
            output_tokens=completion - reasoning - spoken,
            reasoning_tokens=reasoning,
            output_audio_tokens=spoken,
        )
    return told


def _chat_content(told: Told, content: Any) -> None:
    if isinstance(content, str):
        told.text += content
        return
    for part in content or ():  # Mistral's thinking models
        if part["type"] == "text":
            told.text += part["text"]
        elif part["type"] == "thinking":
            told.thoughts += "".join(one["text"] for one in part["thinking"])


def mistral(body: bytes, stream: bool) -> Told:
    """Chat completions with Mistral's own fields."""
    told = chat(body, stream)
    pieces = sse(body) if stream else [json.loads(body)]
    usage = next((one["usage"] for one in reversed(pieces) if one.get("usage")), None)
    if usage:
        details = usage.get("prompt_tokens_details") or usage.get("prompt_token_details") or {}
        cached = details.get("cached_tokens") or usage.get("num_cached_tokens") or 0
        told.count(
            input_tokens=usage["prompt_tokens"] - cached,
            cache_read_tokens=cached,
            output_tokens=usage["completion_tokens"],
            input_audio_s=usage.get("prompt_audio_seconds") or 0,
        )
    return told


def responses(body: bytes, stream: bool) -> Told:
    """OpenAI's responses; of a stream its last event."""
    whole = sse(body)[-1]["response"] if stream else json.loads(body)
    told = Told()
    for item in whole["output"]:
        kind = item["type"]
        if kind == "message":
            for part in item["content"]:
                told.text += part.get("text") or ""
                told.refusal += part.get("refusal") or ""
        elif kind == "reasoning":
            parts = item.get("summary") or item.get("content") or ()
            told.thoughts += "".join(one["text"] for one in parts)
        elif kind == "function_call":
            told.calls.append((item["name"], arguments(item["arguments"])))
    told.finish = "tool_calls" if told.calls else "stop"
    if whole["status"] == "incomplete":
        why = whole["incomplete_details"]["reason"]
        told.finish = {"max_output_tokens": "length"}.get(why, why)
    usage = whole["usage"]
    if usage is None:
        return told
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0
    written = (usage.get("input_tokens_details") or {}).get("cache_write_tokens") or 0
    reasoning = (usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
    told.count(
        input_tokens=usage["input_tokens"] - cached - written,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        output_tokens=usage["output_tokens"] - reasoning,
        reasoning_tokens=reasoning,
    )
    return told


def anthropic(body: bytes, stream: bool) -> Told:
    """Messages."""
    if stream:
        from tests.protocol.dialects.anthropic.recorded import assembled

        message = assembled(body)
    else:
        message = json.loads(body)
    told = Told()
    for block in message["content"]:
        if block["type"] == "text":
            told.text += block["text"]
        elif block["type"] == "thinking":
            told.thoughts += block["thinking"]
        elif block["type"] == "tool_use":
            told.calls.append((block["name"], block["input"]))
    told.finish = {
        "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length",
        "tool_use": "tool_calls", "refusal": "content_filter", "pause_turn": "pause",
        "compaction": "pause", "model_context_window_exceeded": "length",
    }[message["stop_reason"]]  # fmt: skip
    usage = message["usage"]
    hour = (usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens") or 0
    thoughts = (usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0
    told.count(
        input_tokens=usage.get("input_tokens"),
        cache_read_tokens=usage.get("cache_read_input_tokens"),
        cache_write_tokens=(usage.get("cache_creation_input_tokens") or 0) - hour,
        cache_write_1h_tokens=hour,
        output_tokens=usage["output_tokens"] - thoughts,
        reasoning_tokens=thoughts,
    )
    return told


def ollama(body: bytes, stream: bool) -> Told:
    """/api/chat, a line or many."""
    told = Told()
    lines = [json.loads(one) for one in body.splitlines() if one.strip()]
    for line in lines:
        message = line["message"]
        told.text += message.get("content") or ""
        told.thoughts += message.get("thinking") or ""
        for call in message.get("tool_calls") or ():
            told.calls.append((call["function"]["name"], call["function"]["arguments"]))
    last = lines[-1]
    told.finish = "tool_calls" if told.calls else last["done_reason"]
    if "eval_count" in last:
        told.count(input_tokens=last.get("prompt_eval_count"), output_tokens=last["eval_count"])
    return told
