"""What a provider's failure says, and whom it takes out: a model, a key, a target or nobody."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.alerts.receiver import receiving
from tests.gateway.alerts.test_webhook import telling
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import Answer, answers, body_of, fails, first, reply
from tests.gateway.upstream.scripted import served

KEYS = ("sk-first-key-0123456789", "sk-second-key-0123456789")
MESSAGES = [{"role": "user", "content": "Hi"}]


def settings(*origins: Any, keys: int = 1, **more: Any) -> dict[str, Any]:
    """A model `chat` at all of them, in their order, and all their other models by name."""
    names = "abc"[: len(origins)]
    return {
        "providers": {
            name: {
                "base_url": f"{origin}/v1", "dialect": "openai-chat", "api_key": list(KEYS[:keys]),
            }
            for name, origin in zip(names, origins, strict=True)
        },
        "models": {"chat": {"strategy": "ordered", "targets": [f"{one}/good" for one in names]}},
        "retries": {"backoff_s": 0.001, "backoff_max_s": 0.4},
        **more,
    }  # fmt: skip


async def chat(app: Any, model: str = "chat") -> Told:
    return await ask(app, {"model": model, "messages": MESSAGES})


def refuses(model: str, failed: Answer) -> Answer:
    """One model alone."""
    well = answers()

    async def answer(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        asked = body_of(request) if b"\r\n\r\n{" in request else {}
        await (failed if asked.get("model") == model else well)(number, request, writer)

    return answer


@pytest.mark.parametrize("status", [429, 403])
async def test_what_is_of_one_model_takes_out_no_other(status: int) -> None:
    failed = fails(status, "not this one", "retry-after: 1800")
    async with served(refuses("lim", failed)) as provider:
        app = gateway(settings(provider.origin), []).app
        assert (await chat(app, "a/lim")).status == (429 if status == 429 else 502)
        again = await chat(app, "a/lim")
        assert again.status == (429 if status == 429 else 503)
        assert int(again.headers["retry-after"]) > (1790 if status == 429 else 5)
        assert len(provider.requests) == 1, "it rests"
        assert f"since lim was refused: {_KINDS[status]} {status}" in _message(again)
        assert "not this one" not in _message(again), "that was said to another client"
        assert (await chat(app)).status == 200 and (await chat(app, "a/else")).status == 200
        assert (await ask(app, b"", path="/ready", method="GET")).status == 200


_KINDS = {429: "rate_limit", 403: "permission"}


def _message(told: Told) -> str:
    message: str = told.json["error"]["message"]
    return message


async def test_a_wrong_endpoint_is_a_404_and_opens_no_breaker() -> None:
    async def only_chat(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        if b"/embeddings" in request.partition(b"\r\n")[0]:
            writer.write(reply(404, {"error": {"message": "no such path", "type": "x"}}))
        else:
            await answers()(number, request, writer)

    async with served(only_chat) as provider:
        app = gateway(settings(provider.origin), []).app
        for _ in range(8):
            told = await ask(app, {"model": "chat", "input": "Hi"}, path="/v1/embeddings")
            assert told.status == 404 and "no such path" in _message(told)
        assert len(provider.requests) == 8, "asking again helps nobody"
        assert (await chat(app)).status == 200


async def test_a_name_that_one_target_does_not_have_is_tried_elsewhere() -> None:
    async with served(fails(404)) as wrong, served(first(answers(), fails(500))) as right:
        config = settings(wrong.origin, right.origin, retries={"attempts": 2})
        entries: list[Entry] = []
        app = gateway(config, entries).app
        told = await chat(app)
        assert told.status == 200 and told.headers["x-headrace-provider"] == "b"
        assert (await chat(app)).status == 502, "who has the model failed, which may pass"
    assert [one.failure for one in entries[1].attempts] == ["not_found", "server"]


async def test_a_404_while_another_is_left_alone_may_be_tried_again() -> None:
    async with served(fails(404)) as wrong, served(fails(500)) as broken:
        config = settings(wrong.origin, broken.origin, retries={"attempts": 2},
                          breaker={"min_attempts": 1, "cooldown_s": 30})  # fmt: skip
        app = gateway(config, []).app
        assert (await chat(app)).status == 502
        told = await chat(app)
        assert told.status == 503 and 25 <= int(told.headers["retry-after"]) <= 30
        assert "b/good: paused" in _message(told) and "a/good: not_found" in _message(told)


@pytest.mark.parametrize("keys", [1, 2])
async def test_a_rate_limit_is_waited_for_where_nobody_else_is_left(keys: int) -> None:
    limited = fails(429, "slow down", "retry-after-ms: 60", "retry-after: 0.06")
    entries: list[Entry] = []
    async with served(first(*[limited] * keys, answers())) as provider:
        told = await chat(gateway(settings(provider.origin, keys=keys), entries).app)
        assert told.status == 200 and len(provider.requests) == keys + 1
    assert entries[0].total_ms >= 60


async def test_who_comes_while_a_rate_limit_is_waited_for_is_told_of_it() -> None:
    limited = fails(429, "slow down", "retry-after-ms: 300", "retry-after: 0.3")
    async with served(first(limited, answers())) as provider:
        built = gateway(settings(provider.origin), [])
        app, auth = built.app, built.providers["a"].auth
        waiting = asyncio.ensure_future(chat(app))
        async with asyncio.timeout(10):
            while not auth.rests_s(time.monotonic(), "good"):
                await asyncio.sleep(0.002)
        told = await chat(app)
        assert told.status == 429 and told.headers["retry-after"] == "1"
        assert told.json["error"]["type"] == "rate_limit_error"
        assert "since good was refused: rate_limit 429" in _message(told)
        assert (await waiting).status == 200


async def test_one_that_is_left_alone_beside_a_rate_limit_is_no_rate_limit() -> None:
    limited = fails(429, "slow down", "retry-after: 40")
    async with served(limited) as one, served(fails(500)) as other:
        config = settings(one.origin, other.origin, retries={"attempts": 2},
                          breaker={"min_attempts": 1, "cooldown_s": 30})  # fmt: skip
        app = gateway(config, []).app
        assert (await chat(app)).status == 429
        told = await chat(app)
        assert told.status == 503 and 25 <= int(told.headers["retry-after"]) <= 30


async def test_who_wants_the_shortest_wait_is_asked_again_first() -> None:
    long, short = (fails(429, "slow", f"retry-after: {wait_s}") for wait_s in (0.35, 0.05))
    async with served(long) as one, served(first(short, answers())) as other:
        told = await chat(gateway(settings(one.origin, other.origin), []).app)
        assert told.status == 200 and len(one.requests) == 1 and len(other.requests) == 2


async def test_a_wait_that_is_too_long_is_the_clients() -> None:
    async with served(fails(429, "slow down", "retry-after: 3")) as provider:
        told = await chat(gateway(settings(provider.origin), []).app)
        assert told.status == 429 and told.headers["retry-after"] == "3"
        assert len(provider.requests) == 1


async def test_a_refused_key_is_told_of_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    words = "Incorrect API key provided: sk-f****6789"
    async with served(fails(401, words)) as provider, receiving() as receiver:
        tells = telling(receiver.url)
        app = gateway(settings(provider.origin), [], on_refused=tells.refused).app
        with caplog.at_level(logging.WARNING):
            told = await chat(app)
            assert told.status == 502 and words in _message(told)
            after = await chat(app)
            assert (await chat(app, "a/other")).status == 502, "it may be good for another model"
        assert after.status == 503 and 5 <= int(after.headers["retry-after"]) <= 10
        assert "since good was refused: authentication 401" in _message(after)
        assert "a reload (`kill -HUP`, POST /api/reload) ends it at once" in _message(after)
        assert [one.getMessage() for one in caplog.records] == [
            "a refuses key 1 of 1: authentication 401"
        ]
        health = (await ask(app, b"", path="/health", method="GET")).json
        await receiver.has(1)
        await tells.close()
    assert health["providers"]["a"]["refused"] == [f"key 1 of 1: authentication 401: {words}"]
    (post,) = receiver.posts
    assert post.json["event"] == "key.refused"
    assert post.json["data"] == {
        "provider": "a", "key": 1, "keys": 1, "failure": "authentication", "status": 401,
    }  # fmt: skip


async def test_a_refused_key_is_no_rate_limit_where_it_is_met_on_the_way() -> None:
    async with served(fails(401, "no such key")) as provider:
        config = settings(provider.origin)
        config["models"]["chat"]["targets"] = ["a/one", "a/two"]
        told = await chat(gateway(config, []).app)
    assert told.status == 502 and told.json["error"]["code"] == "upstream_credentials_exhausted"
    assert len(provider.requests) == 2, "each model is asked once"


async def test_a_401_for_one_model_leaves_the_others() -> None:
    async with served(refuses("odd", fails(401, "not for this endpoint"))) as provider:
        app = gateway(settings(provider.origin), []).app
        assert (await chat(app, "a/odd")).status == 502
        assert (await chat(app, "a/odd")).status == 503
        assert (await chat(app)).status == 200
        assert (await ask(app, b"", path="/ready", method="GET")).status == 200


TOO_MUCH = {
    "openai": (429, "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested "
               "90000. The input or output tokens must be reduced.", "tokens",
               "rate_limit_exceeded"),
    "groq": (413, "Request too large for model `x` on tokens per minute (TPM): Limit 6000",
             "tokens", "rate_limit_exceeded"),
    "openrouter": (402, "This request requires more credits, or fewer max_tokens. You requested up "
                   "to 65536 tokens, but can only afford 900.", None, 402),
    "logprobs": (403, "You are not allowed to generate logprobs from this model",
                 "invalid_request_error", None),
}  # fmt: skip


def too_much(name: str) -> Answer:
    status, message, type, code = TOO_MUCH[name]
    error = {"message": message, "type": type, "param": None, "code": code}

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(status, {"error": error}))

    return answer


@pytest.mark.parametrize("name", TOO_MUCH)
async def test_a_request_that_alone_is_too_much_takes_nothing_from_others(name: str) -> None:
    entries: list[Entry] = []
    async with served(first(too_much(name), answers())) as provider:
        app = gateway(settings(provider.origin, breaker={"min_attempts": 1}), entries).app
        told = await chat(app)
        assert told.status == 400 and "retry-after" not in told.headers
        error = told.json["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "account_limit")
        assert TOO_MUCH[name][1][:60] in error["message"]
        assert (await chat(app)).status == 200, "neither the key nor the target rests"
    assert [one.outcome for one in entries] == ["refused", "answered"]


@pytest.mark.parametrize("name", ["openai", "openrouter"])
async def test_what_is_too_much_for_one_account_is_asked_of_others(name: str) -> None:
    much = too_much(name)
    async with served(first(much, much, answers())) as one, served(answers()) as other:
        app = gateway(settings(one.origin, other.origin, keys=2), []).app
        told = await chat(app)
        assert told.headers["x-headrace-provider"] == "b", "each key of a was asked once"
        assert told.headers["x-headrace-attempts"] == "3"
        assert (await chat(app)).headers["x-headrace-provider"] == "a"


async def test_a_402_that_is_of_the_account_rests_its_key() -> None:
    async with served(fails(402, "Insufficient credits")) as provider:
        app = gateway(settings(provider.origin), []).app
        assert (await chat(app)).status == 502
        told = await chat(app, "a/other")
        assert told.status == 503 and int(told.headers["retry-after"]) > 290
        assert len(provider.requests) == 1


async def test_every_target_is_asked_once_where_the_file_does_not_say_how_often() -> None:
    async with served(fails(500)) as bad, served(answers()) as good:
        config = settings(bad.origin, good.origin)
        config["models"]["chat"]["targets"] = [*(f"a/m{n}" for n in range(6)), "b/good"]
        told = await chat(gateway(config, []).app)
        assert told.status == 200 and told.headers["x-headrace-attempts"] == "7"
        config["retries"]["attempts"] = 4
        told = await chat(gateway(config, []).app)
    assert told.status == 502
    assert "3 more not tried, as `retries.attempts` is 4" in _message(told)


async def test_keys_of_one_target_leave_attempts_for_the_others() -> None:
    limited = fails(429, "slow", "retry-after: 0")
    async with served(limited) as busy, served(answers()) as good:
        config = settings(busy.origin, good.origin)
        config["providers"]["a"]["api_key"] = [f"sk-{n}-0123456789" for n in range(5)]
        config["models"]["chat"]["targets"] = ["a/one", "b/good"]
        told = await chat(gateway(config, []).app)
    assert told.status == 200 and told.headers["x-headrace-provider"] == "b"
    assert len(busy.requests) == 5, "each key once, also where they may be used again at once"


async def test_many_keys_of_one_target_end_before_the_others_are_left_unasked() -> None:
    limited = fails(429, "slow", "retry-after: 60")
    async with served(limited) as busy, served(answers()) as good:
        config = settings(busy.origin, good.origin)
        config["providers"]["a"]["api_key"] = [f"sk-{n:02}-0123456789" for n in range(25)]
        config["models"]["chat"]["targets"] = ["a/one", "b/good"]
        told = await chat(gateway(config, []).app)
    assert told.status == 200 and told.headers["x-headrace-provider"] == "b"
    assert len(busy.requests) == 19


@pytest.mark.parametrize("status", [401, 429])
async def test_requests_that_go_out_with_one_bad_key_at_once_all_find_the_good_one(
    status: int,
) -> None:
    together = asyncio.Event()

    async def answer(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        if number == 10:
            together.set()
        await together.wait()
        failed = fails(status, "no", "retry-after: 60")
        bad = KEYS[0].encode() in request
        await (failed if bad else answers())(number, request, writer)

    async with served(answer) as provider:
        app = gateway(settings(provider.origin, keys=2), []).app
        told = await asyncio.gather(*(chat(app) for _ in range(10)))
    assert [one.status for one in told] == [200] * 10


async def test_a_clients_own_fault_is_refused_and_a_providers_is_failed() -> None:
    long = {"error": {"message": "too long", "type": "x", "code": "context_length_exceeded"}}

    async def too_long(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(400, long))

    entries: list[Entry] = []
    async with served(refuses("long", too_long)) as one, served(fails(500)) as bad:
        app = gateway(settings(one.origin, bad.origin), entries).app
        assert (await chat(app, "a/long")).status == 400
        nobody = {"model": "chat", "messages": MESSAGES, "provider": {"only": ["nobody"]}}
        assert (await ask(app, nobody)).json["error"]["code"] == "no_eligible_target"
        embeds = {"model": "chat", "input": "Hi", "provider": {"only": ["nobody"]}}
        assert (await ask(app, embeds, path="/v1/embeddings")).status == 400
        assert (await chat(app, "b/x")).status == 502
    assert [one.outcome for one in entries] == ["refused", "refused", "refused", "failed"]
