"""What a gateway keeps of requests in each dialect, and what it does not."""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.building.request_log import sides_of
from headrace.gateway.request_log.record import LogRecord
from headrace.gateway.request_log.written_log import WrittenLog
from headrace.gateway.serving.entry import Entry
from headrace.protocol.neutral.part import Text
from tests.gateway.cache.test_hits import ASKED
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import STREAM_HEAD, Answer, answers, chunk, fails, framed
from tests.gateway.request_log.parts import log_of
from tests.gateway.test_serving import CHAT, settings
from tests.gateway.upstream.scripted import served

_WAIT_S = 10.0
DIALECTS = {
    **ASKED,
    "openai-completions": ("/v1/completions", {"model": "chat", "prompt": "Hi"}),
    "ollama-generate": ("/api/generate", {"model": "chat", "prompt": "Hi", "stream": False}),
}


class Logged(NamedTuple):
    """A gateway with a log, and the ledger's lines."""

    gateway: Gateway
    log: WrittenLog
    entries: list[Entry]
    path: Path

    async def written(self, count: int = 1) -> None:
        async with asyncio.timeout(_WAIT_S):
            while self.log.standing.written != count:
                await asyncio.sleep(0.005)

    async def record(self, request_id: str = "req-1", count: int = 1) -> LogRecord:
        await self.written(count)
        found = await self.log.find(request_id)
        assert found is not None
        return found


@asynccontextmanager
async def logged(
    folder: Path,
    *each: Answer,
    log: dict[str, Any] | None = None,
    accounts: Accounts | None = None,
    **more: Any,
) -> AsyncIterator[Logged]:
    """A gateway in front of a provider, with `log` as its request_log."""
    own: dict[str, Any] = {"enabled": True, "path": "log.sqlite3", **(log or {})}
    async with served(*(each or (answers(),))) as provider:
        kept = log_of(own, folder, now_s=1_790_000_000.0)
        entries: list[Entry] = []
        built = gateway(
            settings(provider.origin, request_log=own, **more),
            entries,
            accounts=accounts,
            request_log=kept,
        )
        try:
            yield Logged(built, kept, entries, folder / "log.sqlite3")
        finally:
            built.close()
            kept.close()


def parsed(record: LogRecord) -> tuple[Any, Any]:
    assert record.request is not None and record.reply is not None
    return json.loads(record.request.text), json.loads(record.reply.text)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_whole_answers_are_kept_as_they_were_told(tmp_path: Path, dialect: str) -> None:
    path, body = DIALECTS[dialect]
    async with logged(tmp_path) as one:
        told = await ask(one.gateway.app, body, path=path, headers={"x-session-id": "s1"})
        record = await one.record()
    assert parsed(record) == (body, told.json)
    (entry,) = one.entries
    assert (record.dialect, record.path, record.session) == (dialect, path, "s1")
    assert (record.status, record.outcome, record.target) == (200, "answered", "a/m0")
    assert entry.usage is not None
    assert record.input_tokens == entry.usage.prompt_tokens and record.cost_nusd == entry.cost_nusd
    assert record.reply is not None
    assert record.reply.bytes == len(told.body) and not record.reply.assembled


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_streams_are_kept_as_the_answer_they_tell(tmp_path: Path, dialect: str) -> None:
    path, body = DIALECTS[dialect]
    async with logged(tmp_path) as one:
        told = await ask(one.gateway.app, {**body, "stream": True}, path=path)
        record = await one.record()
    assert record.stream and record.reply is not None
    assert record.reply.assembled and not record.reply.cut
    assert record.reply.bytes == len(told.body)
    assert "Hello" in text_of(dialect, record) and "there" in text_of(dialect, record)


def text_of(dialect: str, record: LogRecord) -> str:
    assert record.reply is not None
    sides = sides_of(dialect)
    assert sides is not None
    reply = sides[1].read_reply(record.reply.text.encode())
    return "".join(
        part.text for choice in reply.choices for part in choice.parts if isinstance(part, Text)
    )


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_client_that_leaves_half_way(tmp_path: Path, dialect: str) -> None:
    async def slow(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        for word in ("first ", "second "):
            writer.write(
                (STREAM_HEAD if word == "first " else b"") + framed(chunk({"content": word}))
            )
            await writer.drain()
        await asyncio.sleep(5)

    path, body = DIALECTS[dialect]
    async with logged(tmp_path, slow) as one:
        told = await ask(one.gateway.app, {**body, "stream": True}, path=path, goes_after=1)
        record = await one.record()
    assert record.outcome == "client_gone"
    assert record.reply is not None and record.reply.bytes == len(told.body)
    assert ("first" in record.reply.text) == (b"first" in told.body)
    assert ("second" in record.reply.text) == (b"second" in told.body)
    assert parsed(record)[0]["stream"] is True


async def test_a_provider_that_breaks_off(tmp_path: Path) -> None:
    async def breaks(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + framed(chunk({"content": "half an answer"})))
        await writer.drain()
        writer.close()

    async with logged(tmp_path, breaks) as one:
        await ask(one.gateway.app, {**CHAT, "stream": True})
        record = await one.record()
    assert record.outcome == "cut" and record.error
    assert record.reply is not None and "half an answer" in record.reply.text


async def test_an_error_is_kept_as_it_was_told(tmp_path: Path) -> None:
    async with logged(tmp_path, fails(400, "I do not like it")) as one:
        told = await ask(one.gateway.app, CHAT)
        record = await one.record()
    assert record.outcome == "refused" and record.status == told.status == 400
    assert parsed(record)[1] == told.json


async def test_over_the_borders_of_pieces_personal_data_are_found(tmp_path: Path) -> None:
    async def torn(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for piece in ("write to bo", "b@exa", "mple.com, card 4111 1111", " 1111 1111."):
            writer.write(framed(chunk({"content": piece})))
        writer.write(framed(chunk({}, "stop")) + framed(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    redact = {"pii": ["email", "credit_card"], "fields": ["x_secret"]}
    async with logged(tmp_path, torn, log={"redact": redact}) as one:
        body = {**CHAT, "stream": True, "x_secret": {"a": 1}, "user": "ann@example.com"}
        await ask(one.gateway.app, body)
        record = await one.record()
        raw = one.path.read_bytes() + (one.path.parent / "log.sqlite3-wal").read_bytes()
    request, reply = parsed(record)
    assert request["user"] == "[EMAIL]" and request["x_secret"] == "[REDACTED]"
    assert reply["choices"][0]["message"]["content"] == "write to [EMAIL], card [CREDIT_CARD]."
    assert record.request is not None and record.request.redacted == 2
    for told in (b"ann@", b"bob@", b"4111"):
        assert told not in raw


async def test_pictures_and_long_bodies(tmp_path: Path) -> None:
    picture = base64.b64encode(b"picture " * 9000).decode()
    url = f"data:image/png;base64,{picture}"
    content = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "ü" * 900},
    ]
    body = {"model": "chat", "messages": [{"role": "user", "content": content}]}
    async with logged(tmp_path, log={"max_body_bytes": 1024}) as one:
        await ask(one.gateway.app, body)
        record = await one.record()
    assert record.request is not None
    kept = record.request
    assert kept.cut and kept.bytes == len(json.dumps(body)) and kept.redacted == 1
    assert "[MEDIA image/png 72000 bytes sha256:" in kept.text
    assert 1000 < len(kept.text.encode()) <= 1024


@pytest.mark.parametrize(
    "header",
    [
        {"x-headrace-log": "off"},
        {"helicone-omit-request": "true"},
        {"x-portkey-debug": "false"},
        {"x-litellm-enable-message-redaction": "TRUE"},
    ],
)
async def test_a_client_may_keep_its_words_out(tmp_path: Path, header: dict[str, str]) -> None:
    async with logged(tmp_path) as one:
        await ask(one.gateway.app, CHAT, headers=header)
        record = await one.record()
    assert record.request is None and record.reply is None and record.without_bodies == "client"
    assert record.outcome == "answered" and record.cost_nusd


@pytest.mark.parametrize("zdr", [True, "yes", 1])
async def test_no_retention_wins(tmp_path: Path, zdr: Any) -> None:
    async with logged(tmp_path) as one:
        await ask(one.gateway.app, {**CHAT, "provider": {"zdr": zdr}})
        record = await one.record()
    assert record.request is None and record.without_bodies == "zero_retention"


async def test_bodies_of_errors_alone(tmp_path: Path) -> None:
    async with logged(tmp_path, log={"bodies": "errors"}) as one:
        await ask(one.gateway.app, CHAT)
        await ask(one.gateway.app, {**CHAT, "models": ["nowhere/x"], "model": "nothing"})
        good = await one.record("req-1", 2)
        bad = await one.record("req-2", 2)
    assert good.request is None and good.without_bodies == "settings"
    assert bad.request is not None and bad.reply is not None and bad.outcome == "refused"


async def test_which_models_are_kept(tmp_path: Path) -> None:
    async with logged(tmp_path, log={"models": ["other", "ch?t:*"]}) as one:
        await ask(one.gateway.app, CHAT)
        await ask(one.gateway.app, {**CHAT, "model": "chat:floor"})
        await one.written()
        assert await one.log.find("req-1") is None
        assert (await one.record("req-2")).model == "chat:floor"


async def test_keys_are_nowhere(tmp_path: Path) -> None:
    secrets = {
        "authorization": "Bearer hr-" + "a1B2" * 10 + "xyz",
        "x-api-key": "sk-ant-api03-0123456789abcdefghij",
    }
    async with logged(tmp_path) as one:
        content = "my key is sk-proj-0123456789abcdefghij, keep it"
        body = {**CHAT, "messages": [{"role": "user", "content": content}]}
        await ask(one.gateway.app, body, headers=secrets)
        record = await one.record()
    assert parsed(record)[0]["messages"][0]["content"] == "my key is [API_KEY], keep it"
    with sqlite3.connect(one.path) as connection:
        told = repr(connection.execute("SELECT * FROM requests").fetchall())
    for secret in ("hr-a1B2", "sk-ant", "sk-proj"):
        assert secret not in told


async def test_traces_are_named(tmp_path: Path) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with logged(tmp_path) as one:
        await ask(one.gateway.app, CHAT, headers={"traceparent": parent})
        assert (await one.record()).trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"


async def test_off_by_default(tmp_path: Path) -> None:
    async with served(answers()) as provider:
        built = gateway(settings(provider.origin), [])
        assert built.serving.request_log is None
        assert (await ask(built.app, CHAT)).status == 200
    assert not list(tmp_path.iterdir())
