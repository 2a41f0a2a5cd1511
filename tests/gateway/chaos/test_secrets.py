"""After everything that may go wrong, no secret and no prompt is in anything the gateway wrote."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.accounts.redis_server import RedisServer, redis_program
from tests.gateway.chaos.faults import FAULTS, GOOD, Provider, reset
from tests.gateway.chaos.raw_client import request, sent
from tests.gateway.chaos.written_secrets import found_in
from tests.gateway.openai_provider import STREAM_HEAD, body_of, chunk, framed, reply
from tests.gateway.upstream.scripted import served
from tests.gateway.workers.gateway_process import KEY, MASTER, Running, running
from tests.waiting import until

PRICE = {"input": 1, "output": 2}
PROVIDER_KEY = "sk-provider-0123456789-never-seen"
HEADER_KEY = "extra-header-secret-987654"
QUERY_KEY = "query-secret-5566778899"
REDIS_PASSWORD = "redis-pass-1357924680"
PROMPT = "my-canary-prompt-of-aunt-agatha"
ANSWER_SECRETS = (PROVIDER_KEY, HEADER_KEY, QUERY_KEY, REDIS_PASSWORD, MASTER)
SECRETS = (KEY, *ANSWER_SECRETS)


class Tattling(Provider):
    """One that quotes what it was sent in its errors, as providers do with keys."""

    async def answer(self, number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        asked = body_of(request)
        if not asked["model"].startswith("tells-"):
            await super().answer(number, request, writer)
            return
        head = request.partition(b"\r\n\r\n")[0].decode("latin-1")
        words = f"Incorrect API key provided: {PROVIDER_KEY}. You sent: {head}"
        status = int(asked["model"].removeprefix("tells-"))
        if status == 1:  # in the middle of a stream
            await self._in_the_middle(asked, words, writer)
        elif status == 200:
            writer.write(reply(200, {"choices": words}))
        elif status == 0:
            writer.write(f"HTTP/1.1 200 {words}".encode()[:200] + b"\r\n")
            await writer.drain()
            reset(writer)
        else:
            writer.write(reply(status, {"error": {"message": words, "code": words}}))

    async def _in_the_middle(
        self, asked: dict[str, Any], words: str, writer: asyncio.StreamWriter
    ) -> None:
        if not asked.get("stream"):
            writer.write(reply(500, {"error": {"message": words}}))
            return
        error = {"error": {"message": words, "type": "server_error"}}
        writer.write(STREAM_HEAD + framed(chunk({"content": "half of it"})))
        await writer.drain()
        await asyncio.sleep(0.03)
        writer.write(framed(b"data: " + json.dumps(error).encode() + b"\n\n"))
        await writer.drain()
        await asyncio.sleep(0.03)
        writer.close()


TELLS = tuple(f"tells-{status}" for status in (400, 401, 403, 404, 429, 500, 200, 0, 1))


def settings(origin: object, redis: RedisServer, folder: Path) -> dict[str, Any]:
    (folder / "provider-key").write_text(PROVIDER_KEY + "\n")
    own = {
        "base_url": f"{origin}/v1", "api_key": ["file:provider-key"],
        "headers": {"x-extra-key": HEADER_KEY},
    }  # fmt: skip
    return {
        "access": {
            "master_key": MASTER, "redis": redis.url,
            "keys": {"k": {"key": "env:CHAOS_CLIENT_KEY", "when_stores_are_down": "closed"}},
        },
        "providers": {
            "p": own,
            **dict.fromkeys(TELLS, own),  # a key that was refused rests, at that provider
            "gone": {"base_url": f"http://127.0.0.1:9/{QUERY_KEY}", "api_key": [PROVIDER_KEY]},
        },
        "models": {
            **{name: [{"model": f"p/{name}", "price": PRICE}] for name in (*FAULTS, GOOD)},
            **{name: [f"{name}/{name}"] for name in TELLS},
            "gone": ["gone/x"],
            "careful": {"cascade": {"stages": [GOOD, GOOD], "accept": {"by": "rules"}}},
        },
        "timeouts": {"connect_s": 1, "first_token_s": 0.4, "idle_s": 0.3, "total_s": 3},
        "retries": {"attempts": 2, "backoff_s": 0.01},
        "breaker": {"min_attempts": 1000},
        "errors": {"detail": "full"},  # clients read the providers' words, of which none is secret
        "ledger": {"path": "ledger.sqlite3"},
        "log": {"level": "debug"},
    }  # fmt: skip


async def everything(gateway: Running, redis: RedisServer) -> list[bytes]:
    """All that goes wrong; what clients were told of it."""
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": PROMPT}]}
    heard: list[bytes] = []

    async def chat(model: str, **more: Any) -> None:
        told = await gateway.chat(model=model, **asked, **more)
        heard.append(str(told.headers).encode() + told.body)

    names = [*FAULTS, *TELLS, GOOD, "gone", "careful", "nobody"]
    await asyncio.gather(*(chat(name, stream=stream) for name in names for stream in (True, False)))
    told = await gateway.send(
        "POST", "/v1/messages", {"model": TELLS[-1], "max_tokens": 9, "stream": True, **asked}
    )
    heard.append(told.body)
    assert b"half of it" in told.body and b"[secret]" in told.body, "it was told, and cleaned"
    body = json.dumps({"model": GOOD, **asked}).encode()
    broken = (
        request(body=body, auth=f"authorization: Bearer {KEY}x"),
        request(body=body[:-5]),
        request(body=body, auth=f"authorization: Basic {KEY}"),
        request(body=body, target=f"/v1/chat/completions/?key={KEY}"),
        request(f"x-{KEY}: a\x00", body=body),
        request("content-length: 7", body=body),
        b"GET /" + KEY.encode() + b" NONSENSE\r\n\r\n",
    )
    for data in broken:
        answer = await sent(gateway, data)
        heard.append(answer.head + answer.body)
    redis.kill()
    await chat(GOOD)
    redis.start()
    for path in ("/metrics", "/health", "/ready", "/v1/models"):
        told = await gateway.fresh("GET", path, key=MASTER)
        heard.append(told.body)
    gateway.reload("providers: {p: {api_key: [" + PROVIDER_KEY + "], unknown: 1}}")
    await until(
        lambda: "the previous one stays" in gateway.log.read_text(),
        "a line about the file",
    )
    return heard


@pytest.mark.load
async def test_no_secret_is_written_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAOS_CLIENT_KEY", KEY)
    redis = RedisServer(redis_program(), tmp_path / "redis", password=REDIS_PASSWORD)
    redis.start()
    folder = tmp_path / "gateway"
    folder.mkdir()
    provider = Tattling()
    try:
        async with (
            served(provider.answer) as scripted,
            running(folder, settings(scripted.origin, redis, folder), workers=1) as gateway,
        ):
            heard = await everything(gateway, redis)
    finally:
        redis.kill()
    assert provider.counted[GOOD] > 0 and len(heard) > 2 * len(FAULTS)
    assert b"DEBUG" in (folder / "log").read_bytes()
    written = {
        one.name: one.read_bytes()
        for one in folder.iterdir()
        if one.is_file() and one.name not in ("gateway.yaml", "provider-key")
    }
    assert {"log", "ledger.sqlite3"} <= set(written), written.keys()
    found = found_in(written, (*SECRETS, PROMPT))
    told = {f"what a client was told, {number}": data for number, data in enumerate(heard)}
    found += found_in(told, ANSWER_SECRETS)
    assert not found, "\n".join(found[:10])
