"""When a stream is taken for an answer, and how long it may be silent before and after."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import (
    DONE,
    END,
    STREAM_HEAD,
    Answer,
    chunk,
    framed,
    reply,
    usage_chunk,
)
from tests.gateway.upstream.scripted import served

MUCH = "A" * 1_500_000
RESPONSE: dict[str, Any] = {
    "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m",
    "output": [], "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
}  # fmt: skip
PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
}


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def item(kind: str, done: bool, **fields: Any) -> bytes:
    """An item of a response that begins, or ends."""
    what = "response.output_item.done" if done else "response.output_item.added"
    return event(what, output_index=0, item={"type": kind, "id": "i", **fields})


CREATED = event("response.created", response={**RESPONSE, "status": "in_progress", "usage": None})
GREW = event(
    "response.output_text.delta", item_id="m", output_index=0, content_index=0, delta="Hello"
)
COMPLETED = event("response.completed", response=RESPONSE)
PICTURE = event("response.image_generation_call.partial_image", partial_image_b64=MUCH)
ECHO = event("response.created", response={**RESPONSE, "status": "queued", "instructions": MUCH})
BEGAN = chunk({"role": "assistant", "content": ""})
CHAT_END = (chunk({}, "stop"), usage_chunk(), DONE)
MESSAGE: dict[str, Any] = {
    "id": "msg", "type": "message", "role": "assistant", "model": "m", "content": [],
    "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 1},
}  # fmt: skip
MESSAGE_END = (
    event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5}),
    event("message_stop"),
)


def block(at: int, **fields: Any) -> bytes:
    """One of Anthropic's that comes whole."""
    began = event("content_block_start", index=at, content_block=fields)
    return began + event("content_block_stop", index=at)


def sends(*steps: bytes | float) -> Answer:
    """Pieces of a stream, and seconds of silence between them."""

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for step in steps:
            if isinstance(step, bytes):
                writer.write(framed(step))
                await writer.drain()
            else:
                await asyncio.sleep(step)
        writer.write(END)

    return answer


def joined(steps: tuple[bytes | float, ...]) -> bytes:
    return b"".join(one for one in steps if isinstance(one, bytes))


async def heard(
    client: str, provider: str, answer: Answer, *, stream: bool = True, **timeouts: float
) -> tuple[Told, Entry, int]:
    """What a client of a dialect is told by a provider of one, the ledger's last line, and how
    often the provider was asked."""
    entries: list[Entry] = []
    async with served(answer) as scripted:
        settings = {
            "providers": {
                "p": {"base_url": f"{scripted.origin}/v1", "dialect": provider, "api_key": "sk-1"}
            },
            "models": {"chat": [{"model": "p/m", "price": {"input": 1, "output": 2}}]},
            "timeouts": timeouts,
            "retries": {"backoff_s": 0.01},
        }
        body: dict[str, Any] = {"model": "chat", "stream": stream}
        if client == "openai-responses":
            body["input"] = "Hi"
        else:
            body |= {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 16}
        if client == "openai-chat" and stream:
            body["stream_options"] = {"include_usage": True}
        told = await ask(gateway(settings, entries).app, body, path=PATHS[client])
        return told, entries[-1], len(scripted.requests)


@pytest.mark.parametrize(
    ("dialect", "steps"),
    [
        ("openai-responses", (CREATED, PICTURE, COMPLETED)),
        ("openai-responses", (CREATED, item("mcp_call", True, output=MUCH), COMPLETED)),
        ("openai-responses", (CREATED, item("reasoning", True, encrypted_content=MUCH), COMPLETED)),
        ("openai-responses", (CREATED, event("response.news.delta", delta=MUCH), COMPLETED)),
        ("openai-responses", (ECHO, GREW, COMPLETED)),
        ("openai-chat", (BEGAN, chunk({"audio": {"id": "a", "data": MUCH}}), *CHAT_END)),
        ("openai-chat", (BEGAN, chunk({"images": [{"type": "image_url", "image_url":
            {"url": f"data:image/png;base64,{MUCH}"}}]}), *CHAT_END)),
        ("openai-chat", (BEGAN * 8_000, chunk({"content": "Hello"}), *CHAT_END)),
        ("anthropic", (event("message_start", message=MESSAGE),
            block(0, type="web_search_tool_result", tool_use_id="s", content=[{"x": MUCH}]),
            *MESSAGE_END)),
        ("anthropic", (event("message_start", message=MESSAGE),
            *(block(at, type="text", text="") for at in range(3_000)), *MESSAGE_END)),
    ],
    ids=("picture", "mcp", "reasoning", "news", "echo", "audio", "images", "roles", "search",
         "blocks"),
)  # fmt: skip
async def test_what_is_passed_on_need_be_no_text(dialect: str, steps: tuple[bytes, ...]) -> None:
    told, entry, asked = await heard(dialect, dialect, sends(*steps))
    assert told.status == 200 and told.body == b"".join(steps)
    assert asked == 1 and entry.outcome == "answered"
    assert entry.usage_from == "provider" and entry.cost_nusd


@pytest.mark.parametrize(
    ("dialect", "steps"),
    [
        ("openai-chat", (BEGAN, chunk({"audio": {"id": "a", "transcript": "He"}}), 0.6, *CHAT_END)),
        ("openai-responses", (CREATED, item("web_search_call", False), 0.6, COMPLETED)),
        ("anthropic", (event("message_start", message=MESSAGE),
            event("content_block_start", index=0, content_block={"type": "server_tool_use",
                "id": "s", "name": "web_search", "input": {}}),
            0.6, event("content_block_stop", index=0), *MESSAGE_END)),
    ],
    ids=("audio", "search", "server_tool"),
)  # fmt: skip
async def test_it_goes_on_as_it_comes(dialect: str, steps: tuple[bytes | float, ...]) -> None:
    """Held back to its end it would be too late."""
    told, _, asked = await heard(dialect, dialect, sends(*steps), first_token_s=0.4, idle_s=5)
    if dialect != "openai-chat":  # what they make in silence is bounded as first content is
        assert told.status == 200 and told.body.startswith(joined(steps[:2]))
        assert b"no more of the reply came for 0.4 s" in told.body
    else:
        assert told.status == 200 and told.body == joined(steps)
    assert asked == 1


@pytest.mark.parametrize(
    ("provider", "steps"),
    [
        ("openai-chat", (BEGAN, chunk({"audio": {"id": "a", "data": MUCH}}), 0.6,
            chunk({"content": "Hello"}), *CHAT_END)),
        ("openai-responses", (CREATED, PICTURE, 0.6, GREW, COMPLETED)),
        ("openai-responses", (ECHO, GREW, COMPLETED)),
    ],
    ids=("audio", "picture", "echo"),
)  # fmt: skip
async def test_what_is_translated_may_begin_with_pictures_and_sound(
    provider: str, steps: tuple[bytes | float, ...]
) -> None:
    told, entry, asked = await heard("anthropic", provider, sends(*steps), first_token_s=0.4)
    assert told.status == 200 and b"Hello" in told.body and b"message_stop" in told.body
    assert asked == 1 and entry.outcome == "answered"


async def test_beginnings_without_end_are_no_answer_to_translate() -> None:
    blocks = [block(at, type="text", text="") for at in range(3_000)]
    begins = sends(event("message_start", message=MESSAGE), *blocks, 0.3, *MESSAGE_END)
    told, entry, _ = await heard("openai-chat", "anthropic", begins)
    assert told.status == 502 and "of a stream without content" in told.json["error"]["message"]
    assert entry.outcome == "failed"


@pytest.mark.parametrize(
    ("dialect", "beginning"),
    [
        ("openai-responses", CREATED + event("keepalive") + item("message", False, content=[])),
        ("openai-chat", BEGAN + chunk({"role": "assistant", "audio": {"id": "a"}})),
        ("anthropic", event("message_start", message=MESSAGE) + event("ping")
            + event("content_block_start", index=0, content_block={"type": "text", "text": ""})),
    ],
)  # fmt: skip
async def test_after_a_mere_beginning_another_attempt_is_made(
    dialect: str, beginning: bytes
) -> None:
    async def breaks(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + framed(beginning))
        await writer.drain()
        writer.close()

    told, entry, asked = await heard(dialect, dialect, breaks)
    assert told.status == 502 and asked == 2 and entry.outcome == "failed"


@pytest.mark.parametrize(
    ("client", "provider", "steps"),
    [
        ("openai-responses", "openai-responses", (CREATED, 0.3, GREW, COMPLETED)),
        ("openai-chat", "openai-chat", (BEGAN, 0.3, chunk({"content": "Hello"}), *CHAT_END)),
        ("anthropic", "openai-chat", (BEGAN, 0.3, chunk({"content": "Hello"}), *CHAT_END)),
        ("openai-responses", "openai-responses",
            (CREATED, item("image_generation_call", False), 0.3, GREW, COMPLETED)),
    ],
    ids=("responses", "chat", "translated", "picture"),
)  # fmt: skip
async def test_a_model_may_think_in_silence(
    client: str, provider: str, steps: tuple[bytes | float, ...]
) -> None:
    told, entry, asked = await heard(client, provider, sends(*steps), idle_s=0.05, first_token_s=9)
    assert told.status == 200 and b"Hello" in told.body
    assert asked == 1 and entry.outcome == "answered"


async def test_so_may_one_whose_answer_comes_whole() -> None:
    async def slow(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        choice = {"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}
        raw = reply(200, {"id": "c", "object": "chat.completion", "choices": [choice]})
        writer.write(raw[:-20])
        await writer.drain()
        await asyncio.sleep(0.3)
        writer.write(raw[-20:])

    told, _, asked = await heard(
        "openai-chat", "openai-chat", slow, stream=False, idle_s=0.05, first_token_s=9
    )
    assert told.status == 200 and asked == 1


@pytest.mark.parametrize(
    ("dialect", "steps"),
    [
        ("openai-chat", (BEGAN, chunk({"content": "Hello"}), 5.0)),
        ("openai-responses", (CREATED, item("web_search_call", True), GREW, 5.0)),
    ],
)
async def test_content_may_not_stop_for_so_long(
    dialect: str, steps: tuple[bytes | float, ...]
) -> None:
    told, entry, _ = await heard(dialect, dialect, sends(*steps), idle_s=0.05, first_token_s=9)
    assert told.status == 200 and entry.outcome == "cut"
    assert b"no more of the reply came for 0.05 s" in told.body


async def test_a_target_has_its_own_time_to_first_content() -> None:
    entries: list[Entry] = []
    steps = (BEGAN, 0.3, chunk({"content": "Hello"}), *CHAT_END)
    async with served(sends(*steps)) as provider:
        settings = {
            "providers": {"p": {"base_url": f"{provider.origin}/v1", "dialect": "openai-chat"}},
            "models": {"chat": [{"model": "p/m", "timeouts": {"first_token_s": 9}}]},
            "timeouts": {"first_token_s": 0.1},
        }
        body = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
        told = await ask(gateway(settings, entries).app, body)
    assert told.status == 200 and b"Hello" in told.body


PART = event("response.image_generation_call.partial_image", partial_image_b64="AAAA")


@pytest.mark.parametrize("before", [(), (event("response.image_generation_call.in_progress"),)])
async def test_a_picture_begins_the_time_between_two_pieces(before: tuple[bytes, ...]) -> None:
    steps = (CREATED, *before, PART, 2.0, COMPLETED)
    limits = {"idle_s": 0.1, "first_token_s": 9.0}
    name = "openai-responses"
    _, entry, _ = await heard(name, name, sends(*steps), **limits)
    assert entry.outcome == "cut"


def cut(*pieces: bytes) -> Answer:
    """A stream that ends in the midst."""

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for one in pieces:
            writer.write(framed(one))
        await writer.drain()
        writer.close()

    return answer


def called(name: str) -> tuple[bytes, ...]:
    text = event("content_block_start", index=1, content_block={"type": "text", "text": ""})
    grew = event("content_block_delta", index=1, delta={"type": "text_delta", "text": "Hello"})
    call = block(0, type="server_tool_use", id="s", name=name, input={})
    return event("message_start", message=MESSAGE), call, text, grew


@pytest.mark.parametrize(
    ("dialect", "pieces", "is_known"),
    [
        ("openai-responses", (CREATED, item("web_search_call", True), GREW), False),
        ("openai-responses", (CREATED, item("mcp_call", True), GREW), True),
        ("anthropic", called("web_search"), False),
        ("anthropic", called("web_fetch"), True),
    ],
)
async def test_cut_after_a_tool_that_is_billed_nobody_knows_the_cost(
    dialect: str, pieces: tuple[bytes, ...], is_known: bool
) -> None:
    _, entry, _ = await heard(dialect, dialect, cut(*pieces))
    assert (entry.outcome, entry.usage_from) == ("cut", "estimated")
    assert (entry.cost_nusd is not None) == is_known
