"""Answers given again, through a whole gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.gateway.building.dialects import provider_side
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.cache.sqlite_store import SqliteStore
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.provider import ProviderSettings
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.part import Signature, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import (
    DONE,
    END,
    STREAM_HEAD,
    Answer,
    answers,
    body_of,
    chunk,
    completion,
    fails,
    first,
    framed,
    reply,
    usage_chunk,
)
from tests.gateway.test_serving import settings as settings_of
from tests.gateway.upstream.scripted import served

MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT: dict[str, Any] = {"model": "chat", "messages": MESSAGES, "temperature": 0}
# Path and body of each dialect that clients speak.
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "openai-chat": ("/v1/chat/completions", CHAT),
    "openai-responses": ("/v1/responses", {"model": "chat", "input": "Hi", "temperature": 0}),
    "anthropic": ("/v1/messages", {**CHAT, "max_tokens": 50}),
    "ollama": (
        "/api/chat",
        {"model": "chat", "messages": MESSAGES, "options": {"temperature": 0}, "stream": False},
    ),
}
CALL = {"index": 0, "id": "call_1", "type": "function",
        "function": {"name": "look", "arguments": '{"at": "it"}'}}  # fmt: skip
STATE = "x-headrace-cache"


class Wall:
    """Unix time, as it is set."""

    def __init__(self) -> None:
        self.s = 1_790_000_000.0

    def __call__(self) -> float:
        return self.s


def settings(*origins: Any, cache: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return settings_of(*origins, cache={"enabled": True, **(cache or {})}, **more)


def with_tool_call(text: str) -> Answer:
    """Text and then a tool call, whole or streamed."""

    async def answer(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        if not body_of(request).get("stream"):
            value = completion(text)
            value["choices"][0]["finish_reason"] = "tool_calls"
            value["choices"][0]["message"]["tool_calls"] = [
                {name: one for name, one in CALL.items() if name != "index"}
            ]
            writer.write(reply(200, value))
            return
        pieces = [
            chunk({"role": "assistant", "content": ""}),
            *(chunk({"content": one}) for one in text),
            chunk({"tool_calls": [CALL]}),
            chunk({}, "tool_calls"),
            usage_chunk(),
            DONE,
        ]
        writer.write(STREAM_HEAD + b"".join(map(framed, pieces)) + END)

    return answer


def read(dialect: str, told: Told, *, stream: bool) -> ChatReply:
    """What a client of the dialect understands."""
    side = provider_side(dialect, "openai", ProviderSettings())
    if not stream:
        return side.read_reply(told.body)
    reader = side.stream_reader(ChatCall(dialect=dialect, model="chat", messages=(), stream=True))
    return collected(dialect, [*reader.feed(told.body), *reader.end()])


def said(told: ChatReply) -> tuple[Any, ...]:
    """Its content, apart from ids that a dialect makes up where it has none (Ollama)."""
    (choice,) = told.choices
    assert told.usage is not None
    parts = [
        (one.name, json.loads(one.arguments)) if isinstance(one, ToolCall) else one
        for one in choice.parts
    ]
    usage = told.usage
    return parts, choice.finish, usage.prompt_tokens, usage.completion_tokens


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("dialect", ASKED)
async def test_a_hit_says_the_same_in_each_dialect_and_form(
    dialect: str, before: bool, again: bool
) -> None:
    entries: list[Entry] = []
    wall = Wall()
    path, body = ASKED[dialect]
    more = {"stream_options": {"include_usage": True}} if dialect == "openai-chat" else {}
    async with served(with_tool_call("Look at")) as provider:
        built = gateway(settings(provider.origin), entries, wall_s=wall)

        async def asked(stream: bool) -> Told:
            return await ask(
                built.app, {**body, "stream": stream, **(more if stream else {})}, path=path
            )

        told = await asked(before)
        assert told.status == 200 and told.headers[STATE] == "miss" and "age" not in told.headers
        wall.s += 7.9
        hit = await asked(again)
        assert len(provider.requests) == 1
    assert hit.status == 200 and hit.headers[STATE] == "hit" and hit.headers["age"] == "7"
    assert hit.headers["x-headrace-cost-usd"] == "0.000000000"
    assert hit.headers["x-headrace-attempts"] == "0"
    assert hit.headers["x-headrace-target"] == "a/m0"
    # A hit in the other form: what the provider's own stream or reply would have said.
    assert said(read(dialect, hit, stream=again)) == said(read(dialect, told, stream=before))
    one, two = entries
    assert (one.cache, one.cost_nusd, one.usage_from) == ("", 18_000, "provider")
    assert (two.cache, two.cost_nusd, two.outcome, two.status) == ("hit", 0, "answered", 200)
    assert two.usage == one.usage and two.usage_from == "provider"
    assert (two.target, two.provider, two.attempts, two.finish) == ("a/m0", "a", (), "tool_calls")


async def test_without_the_setting_nothing_is_kept() -> None:
    async with served(answers()) as provider:
        built = gateway(settings_of(provider.origin), [])
        for _ in range(2):
            told = await ask(built.app, {**CHAT, "cache": {"ttl": 5}})
            assert told.headers[STATE] == "store-off"
        assert len(provider.requests) == 2 and "cache" not in body_of(provider.requests[0])


async def test_which_requests_are_kept() -> None:
    async with served(answers()) as provider:
        config = settings(provider.origin, cache={"models": ["ch*"]}, aliases={"gpt": "chat"})
        app = gateway(config, []).app

        async def state(**more: Any) -> str:
            told = await ask(app, {**CHAT, **more})
            assert told.status == 200
            return told.headers[STATE]

        assert [await state(), await state()] == ["miss", "hit"]
        assert [await state(model="gpt")] * 2 == ["miss", "miss"]
        assert await state(model="gpt") == "hit", "an alias is the model it stands for"
        assert await state(model="a/m0") == "store-off"
        assert await state(temperature=0.5) == "store-off"
        assert [await state(temperature=0.5, seed=1) for _ in "ab"] == ["miss", "hit"]
        assert await state(conversation="c") == "store-off"
        assert [await state(user="ann", metadata={"a": "b"})] == ["hit"]
        assert [await state(models=["a/m0"]) for _ in "ab"] == ["miss", "hit"]
        assert [await state(provider={"order": ["a"]}) for _ in "ab"] == ["miss", "hit"]
        every = gateway(settings(provider.origin, cache={"all": True}), []).app
        for expected in ("miss", "hit"):
            told = await ask(every, {"model": "a/m0", "messages": MESSAGES})
            assert told.headers[STATE] == expected


async def test_who_wants_nothing_kept_is_not() -> None:
    async with served(answers()) as provider:
        config = settings(provider.origin)
        config["providers"]["a"]["zero_retention"] = True
        app = gateway(config, []).app
        for _ in range(2):
            told = await ask(app, {**CHAT, "provider": {"zdr": True}})
            assert (told.status, told.headers[STATE]) == (200, "store-off")


async def test_age_ends_it() -> None:
    wall = Wall()
    async with served(answers()) as provider:
        app = gateway(settings(provider.origin, cache={"ttl_s": 60}), [], wall_s=wall).app

        async def state(control: str = "", **more: Any) -> str:
            headers = {"cache-control": control} if control else {}
            return (await ask(app, {**CHAT, **more}, headers=headers)).headers[STATE]

        assert await state() == "miss"
        wall.s += 59
        assert await state() == "hit"
        assert await state("max-age=59") == "hit"
        assert await state("max-age=58") == "miss", "and is kept anew"
        wall.s += 59
        assert await state() == "hit"
        wall.s += 1
        assert await state() == "miss"
        assert await state(cache={"ttl": 10}, n=1) == "miss"
        wall.s += 9
        assert await state(n=1) == "hit"
        wall.s += 1
        assert await state(n=1, cache={"ttl": 1e6}) == "miss"
        wall.s += 60
        assert await state(n=1) == "miss", "the setting is the most"


async def test_passing_by() -> None:
    async with served(answers()) as provider:
        app = gateway(settings(provider.origin), []).app

        async def state(control: str = "", **more: Any) -> str:
            headers = {"cache-control": control} if control else {}
            return (await ask(app, {**CHAT, **more}, headers=headers)).headers[STATE]

        assert await state("no-store") == "bypass"
        assert await state("no-cache") == "bypass"
        assert await state() == "hit", "what no-cache brought was kept, and no-store's was not"
        assert await state(cache={"no-cache": True}) == "bypass"
        assert await state(cache={"no-store": True}) == "bypass"
        assert await state("max-age=0") == "bypass"
        assert await state(cache={"namespace": "eval"}) == "miss"
        assert await state(cache={"namespace": "eval"}) == "hit"
        assert len(provider.requests) == 6
        assert not any("cache" in body_of(one) for one in provider.requests)
        told = await ask(app, {**CHAT, "cache": {"nocache": True}})
        assert told.status == 400 and "s-maxage" in told.json["error"]["message"]


async def test_what_is_not_whole_is_not_kept() -> None:
    async def breaks(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + framed(chunk({"content": "half of it"})))
        await writer.drain()
        writer.close()

    async def filtered(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        value = completion("no")
        value["choices"][0]["finish_reason"] = "content_filter"
        writer.write(reply(200, value))

    for spoilt, stream in ((breaks, True), (filtered, False), (fails(400), False)):
        async with served(first(spoilt, answers())) as provider:
            app = gateway(settings(provider.origin), []).app
            await ask(app, {**CHAT, "stream": stream})
            told = await ask(app, {**CHAT, "stream": stream})
            assert told.headers[STATE] == "miss" and len(provider.requests) == 2


async def test_a_client_that_goes_leaves_nothing() -> None:
    over = asyncio.Event()

    async def hangs(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + framed(chunk({"content": "half of it"})))
        await over.wait()

    async with served(first(hangs, answers())) as provider:
        app = gateway(settings(provider.origin), []).app
        await ask(app, {**CHAT, "stream": True}, goes_after=1)
        over.set()
        assert (await ask(app, CHAT)).headers[STATE] == "miss"


async def test_cached_answers_are_there_when_no_provider_is() -> None:
    async with served(first(answers("kept"), fails(500))) as provider:
        app = gateway(settings(provider.origin, retries={"attempts": 1}), []).app
        assert (await ask(app, CHAT)).status == 200
        for number in range(6):
            assert (await ask(app, {**CHAT, "n": number})).status in (502, 503)
        told = await ask(app, CHAT)
        assert told.status == 200 and b"kept" in told.body and told.headers[STATE] == "hit"


@pytest.mark.parametrize("stream", [False, True])
async def test_thoughts_keep_their_signatures(stream: bool) -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "aGlkZGVu"},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "it"}},
    ]
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude",
        "content": content, "stop_reason": "tool_use", "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 4, "cache_read_input_tokens": 3,
                  "cache_creation_input_tokens": 0},
    }  # fmt: skip

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(200, message))

    async with served(answer) as provider:
        config = settings(provider.origin)
        config["providers"]["a"] = {"base_url": str(provider.origin), "dialect": "anthropic"}
        app = gateway(config, []).app
        body = {**ASKED["anthropic"][1]}
        told = await ask(app, body, path="/v1/messages", headers={"anthropic-beta": "x"})
        assert told.json == message
        other = await ask(app, body, path="/v1/messages")
        assert other.headers[STATE] == "miss", "a beta may change the answer"
        hit = await ask(app, {**body, "stream": stream}, path="/v1/messages")
        assert hit.headers[STATE] == "hit"
    seen = read("anthropic", hit, stream=stream)
    (choice,) = seen.choices
    thought, hidden, call = choice.parts
    assert isinstance(thought, Thinking) and isinstance(hidden, Thinking)
    assert thought.text == "hm" and thought.signature == Signature("anthropic", "c2lnbmVk")
    assert hidden.redacted and hidden.signature == Signature("anthropic", "aGlkZGVu")
    assert isinstance(call, ToolCall) and (call.id, call.name) == ("toolu_1", "look")
    assert seen.usage is not None and seen.usage.cache_read_tokens == 3


async def _written(built: Gateway) -> None:
    """What was kept is in the file."""
    assert built.serving.cache is not None
    store = built.serving.cache._store
    assert isinstance(store, SqliteStore)
    await store.written()


async def test_a_file_serves_the_next_process_and_a_damaged_one_nobody(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    cache = {"store": "sqlite", "path": str(path)}
    async with served(answers()) as provider:
        for expected in ("miss", "hit"):
            built = gateway(settings(provider.origin, cache=cache), [])
            assert (await ask(built.app, CHAT)).headers[STATE] == expected
            await _written(built)
            built.close()
        other = gateway(settings(provider.origin, provider.origin, cache=cache), [])
        assert (await ask(other.app, CHAT)).headers[STATE] == "miss", "its targets have changed"
        other.close()
        cache["path"] = str(tmp_path / "damaged.db")
        Path(cache["path"]).write_bytes(b"x" * 5000)
        built = gateway(settings(provider.origin, cache=cache), [])
        for _ in range(2):
            told = await ask(built.app, CHAT)
            assert told.status == 200 and told.headers[STATE] == "miss"
        built.close()


@pytest.mark.parametrize(
    ("cache", "named"),
    [
        ({"store": "sqlite"}, "needs a file"),
        ({"path": "x.db"}, "only `store: sqlite`"),
        ({"ttl_s": 0}, "ttl_s"),
        ({"max_bytes": 5}, "max_bytes"),
        ({"scope": "everybody"}, "scope"),
        ({"stroe": "memory"}, "did you mean 'store'"),
        ({"models": ["caht"]}, "did you mean 'chat'"),
        ({"store": "sqlite", "path": "no/such/folder/cache.db"}, "make it first"),
    ],
)
def test_settings_that_cannot_be(cache: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match="cache") as raised:
        gateway(settings("http://127.0.0.1:9", cache=cache), [])
    assert named in str(raised.value)
