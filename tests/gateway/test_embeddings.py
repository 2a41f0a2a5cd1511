"""Embeddings through a whole gateway to scripted providers."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import body_of, fails, reply
from tests.gateway.upstream.scripted import served

BODY = {"model": "vectors", "input": ["one", "two"]}


async def openai(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    asked = body_of(request)
    vectors = [
        {"object": "embedding", "index": at, "embedding": [0.5, float(at)]}
        for at in range(len(asked["input"]))
    ]
    usage = {"prompt_tokens": 4, "total_tokens": 4}
    writer.write(reply(200, {"object": "list", "data": vectors, "model": "e", "usage": usage}))


async def cohere(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    count = len(body_of(request)["texts"])
    meta = {"billed_units": {"input_tokens": 4}}
    vectors = {"float": [[0.5, float(at)] for at in range(count)]}
    writer.write(reply(200, {"id": "1", "embeddings": vectors, "texts": [], "meta": meta}))


def settings(*providers: tuple[str, Any]) -> dict[str, Any]:
    names = "abc"
    return {
        "providers": {
            names[at]: {"base_url": str(origin), "dialect": dialect}
            for at, (dialect, origin) in enumerate(providers)
        },
        "models": {
            "vectors": {
                "strategy": "ordered",
                "targets": [
                    {"model": f"{names[at]}/e", "price": {"input": 1.0, "output": 0.0}}
                    for at in range(len(providers))
                ],
            }
        },
    }


def vectors_of(told: Any) -> list[list[float]]:
    return [one["embedding"] for one in told["data"]]


@pytest.mark.parametrize("dialect", ["openai-chat", "cohere"])
async def test_vectors_come_in_the_order_of_the_texts_and_are_billed(dialect: str) -> None:
    entries: list[Entry] = []
    async with served(openai if dialect == "openai-chat" else cohere) as provider:
        app = gateway(settings((dialect, provider.origin)), entries).app
        told = await ask(app, BODY, path="/v1/embeddings")
        assert told.status == 200 and vectors_of(told.json) == [[0.5, 0.0], [0.5, 1.0]]
        assert told.json["usage"]["prompt_tokens"] == 4
        assert told.headers["x-headrace-cost-usd"] == "0.000004000"
        packed = await ask(app, {**BODY, "encoding_format": "base64"}, path="/v1/embeddings")
        raw = base64.b64decode(packed.json["data"][1]["embedding"])
        assert struct.unpack("<2f", raw) == (0.5, 1.0)
        ollama = await ask(app, BODY, path="/api/embed")
        assert ollama.json["embeddings"] == [[0.5, 0.0], [0.5, 1.0]]
    assert [entry.outcome for entry in entries] == ["answered"] * 3
    assert entries[0].cost_nusd == 4000 and entries[0].usage_from == "provider"


async def test_base64_that_a_provider_may_not_know_is_all_that_goes_from_a_body() -> None:
    raw = (
        b'{ "input": ["one"], "x": 1.50, "encoding_format": "base64", "user": "u",'
        b' "model": "vectors", "dimensions":2 }'
    )
    async with served(openai) as provider:
        app = gateway(settings(("openai-chat", provider.origin)), []).app
        told = await ask(app, raw, path="/v1/embeddings")
    sent = provider.requests[0].partition(b"\r\n\r\n")[2]
    assert sent.replace(b" ", b"") == (
        b'{"input":["one"],"x":1.50,"user":"u","model":"e","dimensions":2}'
    )
    assert struct.unpack("<2f", base64.b64decode(told.json["data"][0]["embedding"])) == (0.5, 0.0)


async def test_base64_that_a_provider_knows_is_passed_on_both_ways() -> None:
    vectors = (
        b'{"data": [{"embedding":"AAAAPw==", "index":0}], "usage": {"prompt_tokens":4}, "y":1.0}'
    )

    async def packed(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(vectors) + vectors)

    raw = b'{"x": 1.50, "encoding_format": "base64", "model": "e", "input": "one"}'
    entries: list[Entry] = []
    async with served(packed) as provider:
        config = settings(("openai-chat", provider.origin))
        config["providers"]["a"] = {
            "kind": "openai", "base_url": f"{provider.origin}", "api_key": "k"
        }  # fmt: skip
        config["models"]["e"] = config["models"].pop("vectors")
        told = await ask(gateway(config, entries).app, raw, path="/v1/embeddings")
    assert provider.requests[0].partition(b"\r\n\r\n")[2] == raw and told.body == vectors
    assert entries[0].cost_nusd == 4000


async def test_the_next_target_makes_them_where_one_fails() -> None:
    entries: list[Entry] = []
    async with served(fails(500, "boom")) as bad, served(openai) as good:
        config = settings(("openai-chat", bad.origin), ("openai-chat", good.origin))
        told = await ask(gateway(config, entries).app, BODY, path="/v1/embeddings")
        assert told.status == 200 and told.headers["x-headrace-attempts"] == "2"
    assert [one.failure for one in entries[0].attempts] == ["server"]


async def test_what_fails_is_told() -> None:
    async with served(fails(400, "input is too long")) as bad, served(openai) as other:
        config = settings(("openai-chat", bad.origin), ("openai-chat", other.origin))
        told = await ask(gateway(config, []).app, BODY, path="/v1/embeddings")
        assert told.status == 400 and "input is too long" in told.json["error"]["message"]
        assert not other.requests
    config = settings(("anthropic", "http://127.0.0.1:9"))
    told = await ask(gateway(config, []).app, BODY, path="/v1/embeddings")
    assert told.status == 400 and "none of its targets supports embeddings" in told.body.decode()
    for body in (b"", b"[]", json.dumps({"model": "vectors"}).encode(), b'{"input": "x"}'):
        assert (await ask(gateway(config, []).app, body, path="/v1/embeddings")).status == 400
    told = await ask(gateway(config, []).app, {**BODY, "model": "no"}, path="/v1/embeddings")
    assert told.status == 404


async def test_what_a_provider_does_not_support_is_ignored_and_named() -> None:
    entries: list[Entry] = []
    body = {**BODY, "user": "ada"}
    async with served(cohere) as provider:
        config = settings(("cohere", provider.origin))
        told = await ask(gateway(config, entries).app, body, path="/v1/embeddings")
        assert told.status == 200 and told.headers["x-ignored-params"] == "user"
        strict = {**config, "unsupported": "refuse"}
        told = await ask(gateway(strict, entries).app, body, path="/v1/embeddings")
        assert told.status == 400
        assert "a/e: it does not support user; omit it" in told.json["error"]["message"]
    assert [entry.ignored for entry in entries] == [("user",), ()]
    assert entries[1].skipped == ("a/e: it does not support user; omit it",)


async def test_targets_that_ignore_nothing_come_first_and_those_that_cannot_are_passed_by() -> None:
    entries: list[Entry] = []
    async with served(cohere) as first, served(openai) as second:
        app = gateway(
            settings(("cohere", first.origin), ("openai-chat", second.origin)), entries
        ).app
        told = await ask(app, {**BODY, "user": "ada"}, path="/v1/embeddings")
        assert told.headers["x-headrace-target"] == "b/e"
        told = await ask(app, {**BODY, "input": [[1, 2], [3]]}, path="/v1/embeddings")
        assert told.headers["x-headrace-target"] == "b/e" and not first.requests
    assert entries[0].skipped == ()
    assert entries[1].skipped[0].startswith("a/e: input: Cohere embeds texts")
