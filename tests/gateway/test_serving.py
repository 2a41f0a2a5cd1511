"""Requests through a whole gateway to scripted providers on loopback."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import (
    STREAM_HEAD,
    answers,
    body_of,
    chunk,
    completion,
    fails,
    first,
    framed,
    reply,
)
from tests.gateway.test_accounts_of_the_file import KEY, accounts
from tests.gateway.upstream.scripted import served
from tests.waiting import until

CHAT = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
PRICE = {"input": 1.0, "output": 2.0}


def settings(*origins: Any, **more: Any) -> dict[str, Any]:
    """A model whose targets are at `origins`, tried in that order."""
    names = "abcdefgh"
    return {
        "providers": {
            names[at]: {"base_url": f"{one}/v1", "dialect": "openai-chat"}
            for at, one in enumerate(origins)
        },
        "models": {
            "chat": {
                "strategy": "ordered",
                "targets": [
                    {"model": f"{names[at]}/m{at}", "price": PRICE} for at in range(len(origins))
                ],
            }
        },
        "retries": {"backoff_s": 0.01, "backoff_max_s": 0.02},
        **more,
    }


async def test_a_whole_answer_is_passed_on_as_it_came() -> None:
    entries: list[Entry] = []
    async with served(answers("Hello")) as provider:
        built = gateway(settings(provider.origin), entries)
        raw = b'{ "model" : "chat","x": 1.0e2, "messages": [{"role":"user","content":"\\u00e4"}] }'
        told = await ask(built.app, raw)
        assert told.status == 200 and told.json == completion("Hello", "m0")
        sent = provider.requests[0].partition(b"\r\n\r\n")[2]
        assert sent == raw.replace(b'"chat"', b'"m0"'), "no other byte has changed"
        assert told.headers["x-headrace-provider"] == "a"
        assert told.headers["x-headrace-attempts"] == "1"
        assert told.headers["x-request-id"] == "req-1"
        # 12 tokens at $1 and 3 at $2 per million.
        assert told.headers["x-headrace-cost-usd"] == "0.000018000"
        assert int(told.headers["x-headrace-overhead-us"]) < 5_000_000
    (entry,) = entries
    assert (entry.outcome, entry.cost_nusd, entry.usage_from) == ("answered", 18_000, "provider")
    assert entry.usage is not None and entry.usage.prompt_tokens == 12


@pytest.mark.parametrize("asked", [False, True])
async def test_a_stream_is_passed_on_and_its_usage_only_where_it_was_asked_for(asked: bool) -> None:
    entries: list[Entry] = []
    async with served(answers("one two three")) as provider:
        built = gateway(settings(provider.origin), entries)
        body = {**CHAT, "stream": True}
        if asked:
            body["stream_options"] = {"include_usage": True}
        told = await ask(built.app, body)
        assert told.status == 200 and told.headers["content-type"].startswith("text/event-stream")
        assert body_of(provider.requests[0])["stream_options"] == {"include_usage": True}
        events = [one for one in told.body.split(b"\n\n") if one]
        assert events[-1] == b"data: [DONE]" and told.body.count(b"[DONE]") == 1
        assert (b'"usage"' in told.body) == asked
        text = "".join(
            json.loads(one[6:])["choices"][0]["delta"].get("content", "")
            for one in events[:-1]
            if json.loads(one[6:])["choices"]
        )
        assert text == "one two three "
    (entry,) = entries
    assert entry.outcome == "answered" and entry.cost_nusd == 18_000 and entry.finish == "stop"
    assert entry.first_token_ms is not None


async def test_the_next_target_answers_where_the_first_fails() -> None:
    entries: list[Entry] = []
    async with served(fails(500)) as bad, served(answers()) as good:
        built = gateway(settings(bad.origin, good.origin), entries)
        told = await ask(built.app, CHAT)
        assert told.status == 200 and told.headers["x-headrace-provider"] == "b"
        assert told.headers["x-headrace-attempts"] == "2"
    (entry,) = entries
    assert [one.failure for one in entry.attempts] == ["server", None]
    assert entry.cost_nusd == 18_000, "what failed costs nothing"


async def test_a_target_is_asked_again_for_what_a_moment_mends() -> None:
    async with served(first(fails(503), answers())) as provider:
        told = await ask(gateway(settings(provider.origin), []).app, CHAT)
        assert told.status == 200 and len(provider.requests) == 2


async def test_what_is_the_clients_fault_is_tried_once_and_told_in_the_providers_words() -> None:
    async with served(fails(400, "temperature must be below 2")) as bad, served(answers()) as good:
        told = await ask(gateway(settings(bad.origin, good.origin), []).app, CHAT)
        assert told.status == 400 and "temperature must be below 2" in told.json["error"]["message"]
        assert len(bad.requests) == 1 and not good.requests


async def test_a_bad_key_does_not_blame_the_target() -> None:
    wanted = b"authorization: Bearer good\r\n"

    async def by_key(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        if wanted in request:
            writer.write(reply(200, completion("yes")))
        else:
            writer.write(reply(401, {"error": {"message": "bad key"}}))

    async with served(by_key) as provider:
        config = settings(provider.origin)
        config["providers"]["a"]["api_key"] = ["env:BAD", "env:GOOD"]
        built = gateway(config, [], environ={"BAD": "bad", "GOOD": "good"})
        for _ in range(3):
            assert (await ask(built.app, CHAT)).status == 200
        bad = sum(b"Bearer bad" in one for one in provider.requests)
        assert bad == 1, "a key that was refused rests"


async def test_when_all_keys_are_refused_that_is_said_and_no_key_is() -> None:
    async with served(fails(401, "bad key")) as provider:
        config = settings(provider.origin)
        config["providers"]["a"]["api_key"] = ["env:KEY"]
        told = await ask(gateway(config, [], environ={"KEY": "s3cret-key"}).app, CHAT)
        assert told.status == 502
        assert told.json["error"]["code"] == "upstream_credentials_exhausted"
        assert b"s3cret" not in told.body


async def test_a_stream_that_fails_before_content_is_somebody_elses() -> None:
    async def dies(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + framed(chunk({"role": "assistant", "content": ""})))
        await writer.drain()
        writer.close()

    entries: list[Entry] = []
    async with served(dies) as bad, served(answers("fine")) as good:
        built = gateway(settings(bad.origin, good.origin), entries)
        told = await ask(built.app, {**CHAT, "stream": True})
        assert told.status == 200 and told.body.count(b'"role"') == 1, "only one answer is seen"
        assert b"fine" in told.body
    assert entries[0].attempts[0].failure == "network"


async def test_a_stream_that_breaks_off_after_content_ends_with_an_error_and_is_billed() -> None:
    async def breaks(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + framed(chunk({"role": "assistant", "content": "half of it"})))
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()

    entries: list[Entry] = []
    async with served(breaks) as bad, served(answers()) as other:
        built = gateway(settings(bad.origin, other.origin), entries)
        told = await ask(built.app, {**CHAT, "stream": True})
        assert told.status == 200 and b"half of it" in told.body
        assert b'"error"' in told.body and not other.requests
    (entry,) = entries
    assert entry.outcome == "cut" and entry.usage_from == "estimated"
    assert entry.usage is not None and entry.usage.output_tokens == 4
    assert entry.cost_nusd is not None and entry.cost_nusd > 0


@pytest.mark.parametrize("goes_after", [0, 1])
async def test_a_client_that_goes_ends_what_is_done_for_it(goes_after: int) -> None:
    async def slow(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        if goes_after:
            writer.write(STREAM_HEAD + framed(chunk({"content": "words and words"})))
            await writer.drain()
        await asyncio.sleep(3)

    entries: list[Entry] = []
    async with served(slow) as provider:
        built = gateway(settings(provider.origin), entries)
        await ask(
            built.app,
            {**CHAT, "stream": True},
            goes_after=goes_after or None,
            goes_when=None if goes_after else lambda: bool(provider.requests),
        )
        target = built.router.routes["chat"].targets[0]
        await until(lambda: target.provider.pool.connections == 0, "the provider is told to stop")
        assert target.health.in_flight == 0 and target.health.failures == 0
    (entry,) = entries
    assert entry.outcome == "client_gone"
    assert entry.usage_from == "estimated" and (entry.cost_nusd or 0) > 0
    assert entry.target is not None and [one.target for one in entry.attempts] == [entry.target]


async def test_no_target_answers() -> None:
    async with (
        served(fails(500, "boom")) as one,
        served(fails(429, "slow down", "retry-after: 7")) as two,
    ):
        told = await ask(gateway(settings(one.origin, two.origin), []).app, CHAT)
        assert told.status == 429 and told.headers["retry-after"] == "7"
        message = told.json["error"]["message"]
        assert "a/m0: server 500" in message and "b/m1: rate_limit 429" in message


async def test_too_long_a_prompt_goes_to_the_fallback_for_that() -> None:
    error = {"error": {"message": "too long", "code": "context_length_exceeded"}}

    async def long(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(400, error))

    async with served(long) as small, served(answers("long ok")) as large:
        config = settings(small.origin, large.origin)
        config["models"]["chat"]["targets"] = ["a/m0"]
        config["models"]["chat"]["context_fallbacks"] = ["large"]
        config["models"]["large"] = ["b/m1"]
        told = await ask(gateway(config, []).app, CHAT)
        assert told.status == 200 and told.headers["x-headrace-model"] == "large"
    async with served(long) as small:
        told = await ask(gateway(settings(small.origin), []).app, CHAT)
        assert told.status == 400 and told.json["error"]["code"] == "context_length_exceeded"


async def test_a_breaker_opens_and_closes_again() -> None:
    now_ns = 10**12

    def clock_ns() -> int:
        return now_ns

    async with served(first(*[fails(500)] * 6, answers())) as provider:
        config = settings(provider.origin, retries={"attempts": 1},
                          breaker={"min_attempts": 5, "cooldown_s": 5.0})  # fmt: skip
        app = gateway(config, [], clock_ns=clock_ns).app
        for _ in range(5):
            assert (await ask(app, CHAT)).status == 502
        told = await ask(app, CHAT)
        assert told.status == 503 and told.headers["retry-after"] == "5"
        assert told.json["error"]["code"] == "no_target_available"
        assert len(provider.requests) == 5, "nothing is sent meanwhile"
        now_ns += 6 * 10**9
        assert (await ask(app, CHAT)).status == 502, "the probe fails"
        assert (await ask(app, CHAT)).status == 503
        now_ns += 11 * 10**9
        assert (await ask(app, CHAT)).status == 200
        assert (await ask(app, CHAT)).status == 200


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "not valid JSON"),
        (b"[]", 400, "object"),
        (b'{"messages": []}', 400, "model"),
        (b'{"model": "nope", "messages": []}', 404, "not served here"),
        (b'{"model": "cha", "messages": []}', 404, "did you mean 'chat'"),
        (b'{"model": "chat", "messages": [], "stream": "yes"}', 400, "stream"),
        (b'{"model": "chat", "provider": {"sort": "speed"}}', 400, "provider"),
        (b'{"model": "chat", "provider": {"onyl": ["a"]}}', 400, "onyl"),
        (b'{"model": "chat", "model": "chat"}', 400, "twice"),
        (b'{"model": "chat", "Model": "dear"}', 400, "twice"),
        (b'{"model": "chat", "Tools": []}', 400, "the field is written tools"),
    ],
)
async def test_bad_bodies(body: bytes, status: int, said: str) -> None:
    async with served(answers()) as provider:
        told = await ask(gateway(settings(provider.origin), []).app, body)
        assert (told.status, provider.requests) == (status, [])
        assert said in told.json["error"]["message"]


async def test_a_body_beyond_the_limit() -> None:
    config = settings("http://127.0.0.1:9", listen={"max_body_bytes": 1024})
    told = await ask(gateway(config, []).app, b'{"model": "chat"' + b" " * 2000)
    assert told.status == 413 and "max_body_bytes" in told.json["error"]["message"]


async def test_where_a_request_goes_can_be_said_with_it() -> None:
    async with served(answers("a")) as one, served(answers("b")) as two:
        app = gateway(settings(one.origin, two.origin), []).app

        async def provider_of(**more: Any) -> str:
            told = await ask(app, {**CHAT, **more})
            return told.headers.get("x-headrace-provider", str(told.status))

        assert await provider_of() == "a"
        assert await provider_of(provider={"order": ["b"]}) == "b"
        assert await provider_of(provider={"only": ["b/m1"]}) == "b"
        assert await provider_of(provider={"ignore": ["A"]}) == "b"
        assert await provider_of(provider={"only": ["c"]}) == "400"
        assert await provider_of(provider={"zdr": True}) == "400"
        assert await provider_of(model="b/anything") == "b"
        assert await provider_of(models=["b/other"]) == "a"
        assert b'"provider"' not in one.requests[-1], "words to the gateway stay here"


async def test_the_list_of_models() -> None:
    config = settings("http://127.0.0.1:9", aliases={"gpt-4": "chat"})
    told = await ask(gateway(config, []).app, b"", path="/v1/models", method="GET")
    assert [one["id"] for one in told.json["data"]] == ["chat", "gpt-4"]
    assert told.json["data"][0]["pricing"] == {"prompt": "0.000001", "completion": "0.000002"}
    one = await ask(gateway(config, []).app, b"", path="/v1/models/gpt-4", method="GET")
    assert one.status == 200 and one.json == told.json["data"][1]
    none = await ask(gateway(config, []).app, b"", path="/v1/models/gpt-5", method="GET")
    assert none.status == 404
    named = await ask(gateway(config, []).app, b"", path="/api/v1/models/a/m", method="GET")
    assert named.status == 404 and b"a/m" in named.body


async def test_names_of_models_are_told_to_nobody_who_may_not_ask_them() -> None:
    config = settings("http://127.0.0.1:9", aliases={"merger-2027": "chat"})
    config["access"] = {"keys": {"k": {"key": "env:KEY"}}}
    app = gateway(config, [], accounts=await accounts(config)).app
    for method in ("GET", "POST"):
        there, near = [
            await ask(app, b"", path=f"/v1/models/merger-202{digit}", method=method)
            for digit in (7, 6)
        ]
        assert there.status == near.status == (401 if method == "GET" else 405)
        assert b"merger" not in there.body + near.body
    config["access"] = {"keys": {"k": {"key": "env:KEY", "models": ["*202"]}}}
    app = gateway(config, [], accounts=await accounts(config)).app
    body = {**CHAT, "model": "merger-202"}
    told = await ask(app, body, headers={"authorization": f"Bearer {KEY}"})
    assert told.status == 404 and b"merger-2027" not in told.body


async def test_paths_that_are_not_there() -> None:
    app = gateway(settings("http://127.0.0.1:9"), []).app
    assert (await ask(app, {}, path="/v1/chat/../x")).status == 404
    assert (await ask(app, b"", method="GET")).status == 405
    assert (await ask(app, {}, path="/v1/models")).status == 405


async def test_the_time_for_the_whole_request_ends_a_stream_with_an_error() -> None:
    async def endless(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + framed(chunk({"role": "assistant", "content": "on "})))
        for _ in range(500):
            writer.write(framed(chunk({"content": "and on "})))
            await writer.drain()
            await asyncio.sleep(0.01)

    entries: list[Entry] = []
    async with served(endless) as provider:
        built = gateway(settings(provider.origin, timeouts={"total_s": 0.3}), entries)
        told = await ask(built.app, {**CHAT, "stream": True})
        assert told.status == 200 and b"and on" in told.body and b'"error"' in told.body
        pool = built.router.routes["chat"].targets[0].provider.pool
        await until(lambda: pool.connections == 0, "the provider's pool without connections")
    assert entries[0].outcome == "cut" and "time limit" in entries[0].error


async def test_a_fault_of_ours_ends_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.gateway.routing.router import Router

    entries: list[Entry] = []
    async with served(answers()) as provider:
        built = gateway(settings(provider.origin), entries)
        with monkeypatch.context() as patched:
            patched.setattr(Router, "decide", lambda *_: 1 / 0)
            told = await ask(built.app, CHAT)
            assert told.status == 500 and told.json["error"]["code"] == "internal_error"
        assert (await ask(built.app, CHAT)).status == 200
    assert [one.outcome for one in entries] == ["failed", "answered"]
