"""Embeddings of the provider's own dialect go through as they came, and are traced and billed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import fails
from tests.gateway.telemetry.test_tracing import HEADERS, TRACE, header, of_kind, traced
from tests.gateway.upstream.scripted import Scripted, served

RAW = b'{"object":"list", "data": [{"embedding":[0.10, -2e-1],"index":0}], "x": 1.50, "usage": %s}'
USAGE = b'{"prompt_tokens":4,"total_tokens":4}'
OLLAMA = b'{"model":"e","embeddings": [[0.10, 0.2]],"total_duration":7,"prompt_eval_count":4}'


def tells(body: bytes, status: int = 200) -> Any:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(head.encode() + b"\r\n\r\n" + body)

    return answer


def settings(*providers: Scripted, dialect: str = "openai-chat") -> dict[str, Any]:
    path = "" if dialect == "ollama" else "/v1"
    price = {"input": 1.0, "output": 0.0}
    return {
        "providers": {
            f"p{at}": {"base_url": f"{one.origin}{path}", "dialect": dialect}
            for at, one in enumerate(providers)
        },
        "models": {
            "v": {
                "strategy": "ordered",
                "targets": [{"model": f"p{at}/e", "price": price} for at in range(len(providers))],
            }
        },
    }


async def test_bodies_go_through_byte_for_byte() -> None:
    entries: list[Entry] = []
    body = RAW % USAGE
    async with served(tells(body)) as provider:
        built = gateway(settings(provider), entries)
        raw = b'{"input" : ["\\u00e4"],"model":"v", "x_new": 1.0e2}'
        told = await ask(built.app, raw, path="/v1/embeddings")
        built.close()
        sent = provider.requests[0].partition(b"\r\n\r\n")
    assert sent[0].startswith(b"POST /v1/embeddings HTTP/1.1")
    assert sent[2] == raw.replace(b'"v"', b'"e"') and told.body == body
    assert told.headers["x-headrace-cost-usd"] == "0.000004000"
    assert (entries[0].cost_nusd, entries[0].usage_from) == (4000, "provider")


async def test_ollamas_too() -> None:
    entries: list[Entry] = []
    async with served(tells(OLLAMA)) as provider:
        built = gateway(settings(provider, dialect="ollama"), entries)
        raw = b'{"model":"v","input":"a", "truncate": true}'
        told = await ask(built.app, raw, path="/api/embed")
        # Another dialect's are written anew.
        other = await ask(built.app, {"model": "v", "input": "a"}, path="/v1/embeddings")
        built.close()
        assert provider.requests[0].endswith(raw.replace(b'"v"', b'"e"'))
    assert told.body == OLLAMA and entries[0].cost_nusd == 4000
    assert other.json["data"][0]["embedding"] == [0.1, 0.2]


async def test_base64_where_the_provider_has_none_is_made_here() -> None:
    async with served(tells(RAW % USAGE)) as provider:
        built = gateway(settings(provider), [])
        body = {"model": "v", "input": "a", "encoding_format": "base64"}
        told = await ask(built.app, body, path="/v1/embeddings")
        built.close()
    assert isinstance(told.json["data"][0]["embedding"], str)


@pytest.mark.parametrize(
    "body", [b'{"data": []}', b"[]", b'{"error": {"message": "no"}}', b'{"data": [{}', b"{}"]
)
async def test_a_reply_that_is_none_is_the_next_targets_turn(body: bytes) -> None:
    entries: list[Entry] = []
    async with served(tells(body)) as bad, served(tells(RAW % USAGE)) as good:
        built = gateway(settings(bad, good), entries)
        told = await ask(built.app, {"model": "v", "input": "a"}, path="/v1/embeddings")
        built.close()
    assert told.status == 200 and told.headers["x-headrace-provider"] == "p1"
    assert len(entries[0].attempts) == 1


async def test_without_a_count_it_is_an_estimate() -> None:
    entries: list[Entry] = []
    async with served(tells(RAW % b"null")) as provider:
        built = gateway(settings(provider), entries)
        await ask(built.app, {"model": "v", "input": "a" * 30}, path="/v1/embeddings")
        built.close()
    assert entries[0].usage_from == "estimated" and entries[0].usage is not None
    assert entries[0].usage.input_tokens == 11


async def test_spans() -> None:
    exporter = InMemorySpanExporter()
    async with served(fails(503)) as bad, served(tells(RAW % USAGE)) as good:
        built = traced(settings(bad, good), exporter)
        body = {"model": "v", "input": "a"}
        await ask(built.app, body, path="/v1/embeddings", headers=HEADERS)
        sent = [header(one.requests[0], "traceparent") or "" for one in (bad, good)]
    (server,) = of_kind(exporter, SpanKind.SERVER)
    failed, answered = of_kind(exporter, SpanKind.CLIENT)
    assert server.name == "embeddings v"
    assert [failed.name, answered.name] == ["embeddings e"] * 2
    assert (server.attributes or {})["gen_ai.operation.name"] == "embeddings"
    assert (server.attributes or {})["http.route"] == "/v1/embeddings"
    assert failed.status.status_code is StatusCode.ERROR
    assert (answered.attributes or {})["gen_ai.usage.input_tokens"] == 4
    for one, told in zip((failed, answered), sent, strict=True):
        assert one.context is not None
        assert told == f"00-{TRACE}-{one.context.span_id:016x}-01"


async def test_a_clients_trace_goes_on_without_spans() -> None:
    async with served(tells(RAW % USAGE)) as provider:
        built = gateway(settings(provider), [])
        body = {"model": "v", "input": "a"}
        await ask(built.app, body, path="/v1/embeddings", headers=HEADERS)
        await ask(built.app, body, path="/v1/embeddings")
        built.close()
        told = [header(one, "traceparent") for one in provider.requests]
    assert told == [HEADERS["traceparent"], None]
