"""The mock over loopback: what it says, to our client and to others.

Times are held to what must be so on any machine: nothing comes before it is due.
"""

from __future__ import annotations

import asyncio
import base64
import re
import struct
from itertools import pairwise

import httpx
import openai
import pytest

from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.settings import MockSettings
from tests.bench.client.wire import QUICK

CHAT = {"messages": [{"role": "user", "content": "one two"}], "max_tokens": 5}


async def post(url: str, path: str, body: object, **options: object) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30, verify=False) as client:
        return await client.post(url + path, json=body, **options)  # type: ignore[arg-type]


async def test_openai_s_client_reads_a_stream() -> None:
    settings = MockSettings(reasoning_tokens=2, model="m", **QUICK)
    async with MockEndpoint(settings) as url:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k")
        stream = await client.chat.completions.create(
            model="named",
            messages=[{"role": "user", "content": "one two three"}],
            max_tokens=6,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        models = [model.id async for model in client.models.list()]
        await client.close()
    assert chunks[0].choices[0].delta.role == "assistant"
    assert not chunks[0].choices[0].delta.content
    thoughts = [c.choices[0].delta.model_extra for c in chunks[1:3]]
    assert [thought["reasoning_content"] for thought in thoughts if thought] == [" water", " flows"]
    texts = [chunk.choices[0].delta.content for chunk in chunks[3:-2]]
    assert texts == [" down", " the", " headrace", " and"]
    assert chunks[-2].choices[0].finish_reason == "length"
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens_details is not None
    assert chunks[-1].choices == []
    counts = (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
    assert counts == (3, 6, 9)
    assert usage.completion_tokens_details.reasoning_tokens == 2
    assert {chunk.model for chunk in chunks} == {"named"}
    assert models == ["m"]


async def test_openai_s_client_reads_the_rest() -> None:
    async with MockEndpoint(MockSettings(dimensions=3, **QUICK)) as url:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k")
        whole = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "a"}], max_tokens=3
        )
        text = await client.completions.create(model="m", prompt=[1, 2, 3, 4], max_tokens=2)
        vectors = await client.embeddings.create(model="m", input=["a b", "c"])
        await client.close()
    assert whole.choices[0].message.content == " water flows down"
    assert text.choices[0].text == " water flows"
    assert text.usage is not None
    assert text.usage.prompt_tokens == 4
    assert [len(one.embedding) for one in vectors.data] == [3, 3]
    assert sum(x * x for x in vectors.data[0].embedding) == pytest.approx(1)
    assert vectors.usage.prompt_tokens == 3


async def test_nothing_comes_before_it_is_due_and_stamps_say_when() -> None:
    settings = MockSettings(ttft_ms=20, tpot_ms=3, tokens_per_chunk=2, role_chunk="none")
    async with MockEndpoint(settings) as url:
        reply = await post(url, "/v1/completions", {"prompt": "a", "max_tokens": 8, "stream": True})
    received_ns = int(reply.headers["x-mock-received-ns"])
    stamps = [
        int(line.split('"mock_sent_ns":')[1].rstrip("}"))
        for line in reply.text.splitlines()
        if "mock_sent_ns" in line
    ]
    due_ms = [20, 26, 32, 38, 41, 41]  # tokens 1, 2-3, 4-5, 6-7, 8, and the end
    assert len(stamps) == len(due_ms)
    assert stamps == sorted(stamps)
    for stamp, due in zip(stamps, due_ms, strict=True):
        assert stamp - received_ns >= due * 1_000_000
    assert reply.text.endswith("data: [DONE]\n\n")


async def test_capacity_makes_others_wait_and_tells_how_long() -> None:
    settings = MockSettings(ttft_ms=30, tpot_ms=0, capacity=1, max_queued=2)
    async with MockEndpoint(settings) as url:
        body = CHAT | {"return_metrics": True}
        replies = await asyncio.gather(*[post(url, "/v1/chat/completions", body) for _ in range(4)])
        after = await post(url, "/v1/chat/completions", body)
    assert sorted(reply.status_code for reply in replies) == [200, 200, 200, 429]
    refused = next(reply for reply in replies if reply.status_code == 429)
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["type"] == "rate_limit_error"
    # They came at different times: what is known is when the turn of each began.
    waits = {
        int(reply.headers["x-mock-received-ns"]): reply.json()["choices"][0]["metrics"]["queue_s"]
        for reply in replies
        if reply.status_code == 200
    }
    assert min(waits.values()) == 0
    turns = sorted(received_ns + wait_s * 1e9 for received_ns, wait_s in waits.items())
    assert all(later - earlier > 29e6 for earlier, later in pairwise(turns))
    assert after.status_code == 200


async def test_who_leaves_frees_a_place() -> None:
    endpoint = MockEndpoint(MockSettings(ttft_ms=60_000, capacity=1))
    async with endpoint as url:
        asked = [
            asyncio.ensure_future(post(url, "/v1/chat/completions", CHAT | {"stream": True}))
            for _ in range(3)
        ]
        await _until(lambda: (endpoint.running, endpoint.waiting) == (1, 2))
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await _until(lambda: (endpoint.running, endpoint.waiting) == (0, 0))
        assert endpoint.outcomes == {"cancelled": 3}


async def test_a_client_that_does_not_read_holds_up_only_itself() -> None:
    endpoint = MockEndpoint(MockSettings(ttft_ms=0, tpot_ms=0, tokens_per_chunk=10_000))
    async with endpoint as url:
        host, _, port = url.removeprefix("http://").partition(":")
        body = b'{"prompt":"a","max_tokens":1000000,"stream":true}'
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await reader.readline()
        other = await post(url, "/v1/completions", {"prompt": "a", "max_tokens": 2})
        assert other.status_code == 200
        assert endpoint.running == 1  # its answer is longer than what waits for anybody
        rest = b""
        while not rest.endswith(b"0\r\n\r\n"):
            rest = (rest + await asyncio.wait_for(reader.read(65536), 60))[-100:]
        assert b"[DONE]" in rest
        writer.close()


async def _until(holds: object) -> None:
    for _ in range(2000):
        if holds():  # type: ignore[operator]
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to be")


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/v1/chat/completions", {"messages": []}, 400, "messages: is missing or empty"),
        ("/v1/chat/completions", CHAT | {"max_tokens": -1}, 400, "max_tokens: -1 is not a whole"),
        ("/v1/completions", {"prompt": "a", "n": 2}, 400, "n: 2 is not 1"),
        ("/v1/completions", [1], 400, "the body is not a JSON object"),
        ("/v1/none", {}, 404, "/v1/none does not exist"),
    ],
)
async def test_what_it_does_not_take(path: str, body: object, status: int, told: str) -> None:
    async with MockEndpoint() as url:
        reply = await post(url, path, body)
    assert reply.status_code == status
    assert reply.json()["error"]["message"].startswith(told)


async def test_key_health_and_metrics() -> None:
    endpoint = MockEndpoint(MockSettings(api_key="right", **QUICK), keep_requests=1)
    async with endpoint as url, httpx.AsyncClient(base_url=url, verify=False) as client:
        wrong = await client.post("/v1/chat/completions", json=CHAT)
        head = {"authorization": "Bearer right"}
        right = await client.post("/v1/chat/completions", json=CHAT, headers=head)
        assert (wrong.status_code, right.status_code) == (401, 200)
        assert (await client.get("/v1/models")).status_code == 401
        assert (await client.get("/v1/none")).status_code == 401
        assert (await client.get("/v1/models", headers=head)).json()["data"][0]["id"] == "mock"
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/v1/chat/completions", headers=head)).status_code == 405
        assert (await client.delete("/health")).status_code == 404
        metrics = (await client.get("/metrics")).text
    assert 'vllm:generation_tokens_total{model_name="mock"} 5' in metrics
    assert 'mock:requests_total{model_name="mock",outcome="unauthorized"} 1' in metrics
    assert [one.path for one in endpoint.received] == ["/v1/chat/completions"]


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with MockEndpoint(MockSettings(ttft_ms=1)) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n" * 2)
        body = b'{"prompt":"a","max_tokens":1}'
        head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        last = b"GET /none HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        writer.write((head + body) * 3 + last)
        said = await asyncio.wait_for(reader.read(), 30)
        writer.close()
    statuses = re.findall(rb"HTTP/1.1 (\d+)", said)
    assert statuses == [b"200", b"200", b"200", b"200", b"200", b"404"]


async def test_old_and_careful_clients() -> None:
    async with MockEndpoint(MockSettings(**QUICK)) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        body = b'{"prompt":"a","max_tokens":2,"stream":true}'
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(body))
        writer.write(body)
        said = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        assert b"chunked" not in said
        assert said.endswith(b"data: [DONE]\n\n")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
        writer.write(head + b"content-length: %d\r\n\r\n" % len(body))
        assert await asyncio.wait_for(reader.readline(), 30) == b"HTTP/1.1 100 Continue\r\n"
        writer.write(b"x" * len(body))
        assert b"400" in (await asyncio.wait_for(reader.readuntil(b"}}"), 30))
        writer.close()
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\x16\x03\x01 this is TLS")
        assert (await asyncio.wait_for(reader.read(), 30)).startswith(b"HTTP/1.1 400 ")
        writer.close()


async def test_embeddings_in_base64() -> None:
    async with MockEndpoint(MockSettings(**QUICK)) as url:
        body = {"input": "a", "encoding_format": "base64", "dimensions": 2}
        reply = await post(url, "/v1/embeddings", body)
    packed = base64.b64decode(reply.json()["data"][0]["embedding"])
    assert struct.unpack("<2f", packed) == pytest.approx((0.5**0.5, 0.5**0.5))
