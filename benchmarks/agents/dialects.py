"""A turn of a recorded conversation as each API has it, and what a stream of its answer says."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.agents.recorded import Message

BILLING = (
    "x-anthropic-billing-header: cc_version=2.1.100.{turn:03x}; cc_entrypoint=cli; cch={turn:05x};"
)
"""What Claude Code sends before its system prompt, other with each turn."""


@dataclass
class Answer:
    """What an answer was. Times in seconds from its request."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    ttft_s: float = 0.0
    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments of each."""
    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    logprobs: list[tuple[float, ...]] = field(default_factory=list)
    """Of each token its own, and those of the likeliest."""
    response_id: str = ""

    @property
    def visible(self) -> tuple[str, str, list[tuple[str, str]]]:
        """What a client of any dialect sees."""
        return self.content, self.reasoning, self.calls


class Chat:
    """OpenAI's chat completions."""

    name = "chat"
    path = "/v1/chat/completions"

    def body(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], turn: int
    ) -> dict[str, Any]:
        """The request, but for its settings."""
        return {
            "messages": list(messages),
            "tools": list(tools),
            "logprobs": True,
            "top_logprobs": 3,
            "return_token_ids": True,
            "stream_options": {"include_usage": True},
        }

    def limit(self, tokens: int) -> dict[str, Any]:
        """The settings that end an answer."""
        return {"max_tokens": tokens}

    def take(self, event: dict[str, Any], answer: Answer) -> bool:
        """Take an event of the stream; whether it has something of the answer."""
        answer.prompt_ids = event.get("prompt_token_ids") or answer.prompt_ids
        if usage := event.get("usage"):
            details = usage.get("prompt_tokens_details") or {}
            answer.prompt_tokens = usage["prompt_tokens"]
            answer.cached_tokens = details.get("cached_tokens", 0)
            answer.output_tokens = usage["completion_tokens"]
        some = False
        for choice in event["choices"]:
            delta = choice["delta"]
            content, reasoning = delta.get("content") or "", delta.get("reasoning") or ""
            answer.content += content
            answer.reasoning += reasoning
            for call in delta.get("tool_calls") or ():
                grow_call(answer, call["function"])
            answer.ids += choice.get("token_ids") or ()
            for token in (choice.get("logprobs") or {}).get("content") or ():
                answer.logprobs.append(_logprobs(token))
            some = some or bool(content or reasoning or choice.get("token_ids"))
        return some


class Messages:
    """Anthropic's messages, as Claude Code sends them."""

    name = "messages"
    path = "/v1/messages"

    def body(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], turn: int
    ) -> dict[str, Any]:
        """The request, but for its settings."""
        system = [{"type": "text", "text": BILLING.format(turn=turn)}]
        turns: list[dict[str, Any]] = []
        for message in messages:
            if message["role"] == "system":
                system.append({"type": "text", "text": message["content"]})
                continue
            role = "assistant" if message["role"] == "assistant" else "user"
            if not turns or turns[-1]["role"] != role:
                turns.append({"role": role, "content": []})
            turns[-1]["content"] += _blocks(message)
        functions = [tool["function"] for tool in tools]
        return {
            "system": system,
            "messages": turns,
            "tools": [
                {
                    "name": function["name"],
                    "description": function["description"],
                    "input_schema": function["parameters"],
                }
                for function in functions
            ],
        }

    def limit(self, tokens: int) -> dict[str, Any]:
        """The settings that end an answer."""
        return {"max_tokens": tokens}

    def take(self, event: dict[str, Any], answer: Answer) -> bool:
        """Take an event of the stream; whether it has something of the answer."""
        match event["type"]:
            case "message_start":
                usage = event["message"]["usage"]
                answer.cached_tokens = usage["cache_read_input_tokens"]
                answer.prompt_tokens = usage["input_tokens"] + answer.cached_tokens
            case "message_delta":
                answer.output_tokens = event["usage"]["output_tokens"]
            case "content_block_start":
                block = event["content_block"]
                if block["type"] == "tool_use":
                    answer.calls.append((block["name"], ""))
                return True
            case "content_block_delta":
                delta = event["delta"]
                answer.content += delta.get("text", "")
                answer.reasoning += delta.get("thinking", "")
                if "partial_json" in delta:
                    grow_call(answer, {"arguments": delta["partial_json"]})
                return True
        return False


class Responses:
    """OpenAI's responses, with all of the conversation in each request."""

    name = "responses"
    path = "/v1/responses"

    def body(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], turn: int
    ) -> dict[str, Any]:
        """The request, but for its settings."""
        return {
            "input": [item for message in messages for item in items_of(message)],
            "tools": [{"type": "function", **tool["function"]} for tool in tools],
            "include": ["message.output_text.logprobs"],
            "top_logprobs": 3,
        }

    def limit(self, tokens: int) -> dict[str, Any]:
        """The settings that end an answer."""
        return {"max_output_tokens": tokens}

    def take(self, event: dict[str, Any], answer: Answer) -> bool:
        """Take an event of the stream; whether it has something of the answer."""
        match event["type"]:
            case "response.output_text.delta":
                answer.content += event["delta"]
                return True
            case "response.reasoning_text.delta":
                answer.reasoning += event["delta"]
                return True
            case "response.output_item.added":
                if event["item"]["type"] == "function_call":
                    answer.calls.append((event["item"]["name"], ""))
                return True
            case "response.function_call_arguments.delta":
                grow_call(answer, {"arguments": event["delta"]})
            case "response.completed" | "response.incomplete":
                usage = event["response"]["usage"]
                answer.response_id = event["response"]["id"]
                answer.prompt_tokens = usage["input_tokens"]
                answer.cached_tokens = usage["input_tokens_details"]["cached_tokens"]
                answer.output_tokens = usage["output_tokens"]
            case "response.failed" | "error":
                raise RuntimeError(f"a response failed: {event}")
        return False


Dialect = Chat | Messages | Responses


def items_of(message: Message) -> Iterator[dict[str, Any]]:
    """The items of the Responses API that a message of the chat API is."""
    if message["role"] == "tool":
        call_id = message["tool_call_id"]
        output = message["content"]
        yield {"type": "function_call_output", "call_id": call_id, "output": output}
        return
    if thoughts := message.get("reasoning_content"):
        content = [{"type": "reasoning_text", "text": thoughts}]
        yield {"type": "reasoning", "summary": [], "content": content}
    if message["content"]:
        yield {"type": "message", "role": message["role"], "content": message["content"]}
    for call in message.get("tool_calls", ()):
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def _blocks(message: Message) -> Iterator[dict[str, Any]]:
    """The content blocks of Anthropic's that a message of the chat API is."""
    if message["role"] == "tool":
        call_id = message["tool_call_id"]
        yield {"type": "tool_result", "tool_use_id": call_id, "content": message["content"]}
        return
    if thoughts := message.get("reasoning_content"):
        yield {"type": "thinking", "thinking": thoughts, "signature": "recorded"}
    if message["content"]:
        yield {"type": "text", "text": message["content"]}
    for call in message.get("tool_calls", ()):
        function = call["function"]
        arguments = json.loads(function["arguments"])
        yield {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}


def grow_call(answer: Answer, function: dict[str, Any]) -> None:
    """A call that begins (with a name), or more of the last one's arguments."""
    if function.get("name"):
        answer.calls.append((function["name"], ""))
    if arguments := function.get("arguments"):
        name, before = answer.calls[-1]
        answer.calls[-1] = name, before + arguments


def _logprobs(token: dict[str, Any]) -> tuple[float, ...]:
    return token["logprob"], *(other["logprob"] for other in token["top_logprobs"])


async def ask(client: httpx.AsyncClient, dialect: Dialect, body: dict[str, Any]) -> Answer:
    """Send a request and read its answer as a stream. Raises RuntimeError for a refusal."""
    answer, first = Answer(), 0.0
    start = time.perf_counter()
    async with client.stream("POST", dialect.path, json={**body, "stream": True}) as reply:
        if reply.status_code != 200:
            raise RuntimeError(f"{dialect.path}: {(await reply.aread()).decode()}")
        async for event in events(reply):
            if dialect.take(event, answer) and not first:
                first = time.perf_counter()
    answer.ttft_s = (first or time.perf_counter()) - start
    return answer


async def events(reply: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The data of each event of a stream."""
    async for line in reply.aiter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))
