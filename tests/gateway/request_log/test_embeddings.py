"""What the log keeps of requests for embeddings: their texts, and of vectors how many there are."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.gateway.accounts import Limits
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.terms import DataPolicy, Terms
from headrace.gateway.building.request_log import sides_of
from headrace.gateway.replaying.answer import replayed
from headrace.gateway.replaying.replay import ReplayError, Sent
from headrace.gateway.request_log.filters import RecordFilter
from headrace.gateway.request_log.record import LoggedBody
from headrace.gateway.request_log.vectors import vectors_told, without_vectors
from headrace.gateway.serving.entry import Entry
from tests.gateway.accounts.parts import KEY, accounts_of, hierarchy
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import Answer, body_of, fails
from tests.gateway.request_log.parts import log_of, record
from tests.gateway.request_log.test_whole_gateway import Logged, parsed
from tests.gateway.test_embeddings import BODY, cohere, openai, settings
from tests.gateway.upstream.scripted import served

PATHS = ("/v1/embeddings", "/api/v1/embeddings", "/api/embed")
TOLD = "[VECTOR of 2 numbers]"


@asynccontextmanager
async def logged(
    folder: Path,
    answer: Answer = openai,
    *,
    log: dict[str, Any] | None = None,
    accounts: Accounts | None = None,
    dialect: str = "openai-chat",
    **more: Any,
) -> AsyncIterator[Logged]:
    own: dict[str, Any] = {"enabled": True, "path": "log.sqlite3", **(log or {})}
    async with served(answer) as provider:
        kept = log_of(own, folder, now_s=1_790_000_000.0)
        entries: list[Entry] = []
        config = settings((dialect, provider.origin)) | {"request_log": own} | more
        built = gateway(config, entries, accounts=accounts, request_log=kept)
        try:
            yield Logged(built, kept, entries, folder / "log.sqlite3")
        finally:
            built.close()
            kept.close()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dialect", ["openai-chat", "cohere"])
async def test_texts_are_kept_and_of_vectors_their_length(
    tmp_path: Path, path: str, dialect: str
) -> None:
    answer = openai if dialect == "openai-chat" else cohere
    async with logged(tmp_path, answer, dialect=dialect) as one:
        told = await ask(one.gateway.app, BODY, path=path, headers={"x-session-id": "s1"})
        kept = await one.record()
        found = (await one.log.newest(RecordFilter(text="TWO"))).records
        assert [each.id for each in found] == ["req-1"]
        assert not (await one.log.newest(RecordFilter(text="three"))).records
    request, reply = parsed(kept)
    assert request == BODY
    if path == "/api/embed":
        assert reply == {**told.json, "embeddings": [TOLD, TOLD]}
    else:
        data = [{**each, "embedding": TOLD} for each in told.json["data"]]
        assert reply == {**told.json, "data": data}
    (entry,) = one.entries
    assert (kept.path, kept.session, kept.target) == (path, "s1", "a/e")
    assert (kept.status, kept.outcome, kept.cost_nusd) == (200, "answered", entry.cost_nusd)
    assert kept.reply is not None and kept.reply.bytes == len(told.body) and not kept.reply.cut


async def test_vectors_are_kept_where_the_file_says_so(tmp_path: Path) -> None:
    async with logged(tmp_path, log={"redact": {"media": False}}) as one:
        told = await ask(one.gateway.app, BODY, path=PATHS[0])
        assert parsed(await one.record())[1] == told.json


async def test_many_long_vectors_leave_the_reply_whole(tmp_path: Path) -> None:
    async def large(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        count = len(body_of(request)["input"])
        packed = base64.b64encode(bytes(4 * 3072)).decode()
        data = [{"index": at, "embedding": packed} for at in range(count)]
        raw = json.dumps({"object": "list", "data": data, "model": "e"}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(raw) + raw)

    body = {"model": "vectors", "input": ["x"] * 50, "encoding_format": "base64"}
    async with logged(tmp_path, large, log={"max_body_bytes": 8192}) as one:
        told = await ask(one.gateway.app, body, path=PATHS[0])
        kept = await one.record()
    assert kept.reply is not None and not kept.reply.cut and kept.reply.bytes == len(told.body)
    assert vectors_told(kept.reply.text.encode()) == "50 vectors of 3072 numbers"


@pytest.mark.parametrize("path", PATHS)
async def test_why_there_is_no_answer_is_kept_as_it_was_told(tmp_path: Path, path: str) -> None:
    async with logged(tmp_path, fails(400, "I do not like it"), log={"bodies": "errors"}) as one:
        told = await ask(one.gateway.app, BODY, path=path)
        kept = await one.record()
        assert kept.outcome == "refused" and kept.status == told.status == 400
        assert parsed(kept) == (BODY, told.json)
        told = await ask(one.gateway.app, {**BODY, "model": "no"}, path=path)
        kept = await one.record("req-2", 2)
        assert kept.outcome == "refused" and parsed(kept)[1] == told.json


async def test_who_is_over_a_limit_is_kept_too(tmp_path: Path) -> None:
    own = accounts_of(hierarchy(key=Terms(limits=(Limits(rpm=0),))))
    await own.start()
    headers = {"authorization": f"Bearer {KEY}"}
    async with logged(tmp_path, accounts=own) as one:
        told = await ask(one.gateway.app, BODY, path=PATHS[0], headers=headers)
        kept = await one.record()
    assert told.status == kept.status == 429 and (kept.key, kept.team) == ("k", "red")
    assert parsed(kept) == (BODY, told.json)


async def test_a_client_that_goes_is_kept_with_what_it_asked(tmp_path: Path) -> None:
    there, gone = asyncio.Event(), asyncio.Event()

    async def hangs(_number: int, _request: bytes, _writer: asyncio.StreamWriter) -> None:
        there.set()
        await gone.wait()

    async with logged(tmp_path, hangs) as one:
        await ask(one.gateway.app, BODY, path=PATHS[0], goes_when=there.is_set)
        kept = await one.record()
        gone.set()
    assert kept.outcome == "client_gone" and kept.reply is None and kept.without_bodies == ""
    assert kept.request is not None and json.loads(kept.request.text) == BODY


async def test_personal_data_and_what_guardrails_took_out_are_not_kept(tmp_path: Path) -> None:
    texts = ["card 4111 1111 1111 1111", "from ada@example.com, key sk-proj-0123456789abcdefghij"]
    guards = {"pii": {"kind": "pii", "find": ["credit_card"], "on": "input", "action": "redact",
                      "default": True}}  # fmt: skip
    redact = {"pii": ["email", "api_key"]}
    async with logged(tmp_path, log={"redact": redact}, guardrails=guards) as one:
        told = await ask(one.gateway.app, {**BODY, "input": texts}, path=PATHS[0])
        kept = await one.record()
        raw = one.path.read_bytes() + (one.path.parent / "log.sqlite3-wal").read_bytes()
    assert told.status == 200
    assert parsed(kept)[0]["input"] == ["card [CREDIT_CARD]", "from [EMAIL], key [API_KEY]"]
    assert kept.request is not None and kept.request.redacted == 2
    for secret in (b"4111", b"ada@", b"sk-proj"):
        assert secret not in raw


@pytest.mark.parametrize(
    ("more", "headers", "why"),
    [
        ({}, {"x-headrace-log": "off"}, "client"),
        ({"provider": {"zdr": True}}, {}, "zero_retention"),
    ],
)
async def test_who_keeps_its_words_out(
    tmp_path: Path, more: dict[str, Any], headers: dict[str, str], why: str
) -> None:
    async with logged(tmp_path) as one:
        await ask(one.gateway.app, {**BODY, **more}, path=PATHS[0], headers=headers)
        kept = await one.record()
    assert kept.request is None and kept.reply is None and kept.without_bodies == why


async def test_a_key_without_retention_and_others_that_are_not_kept(tmp_path: Path) -> None:
    own = accounts_of(hierarchy(key=Terms(data_policy=DataPolicy(zero_retention=True))))
    await own.start()
    headers = {"authorization": f"Bearer {KEY}"}
    async with logged(tmp_path, accounts=own) as one:
        told = await ask(one.gateway.app, BODY, path=PATHS[0], headers=headers)
        kept = await one.record()
        assert told.status == kept.status == 400, "no target keeps nothing"
        assert kept.without_bodies == "zero_retention" and kept.request is None
    async with logged(tmp_path, log={"models": ["other"]}) as one:
        await ask(one.gateway.app, BODY, path=PATHS[0])
        await ask(one.gateway.app, b"{", path=PATHS[0])
        assert one.log.standing.written == one.log.standing.waiting == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"error": "no"}',
        b'{"data": 1}',
        b'{"data": [1]}',
        b'{"embeddings": {}}',
        b"\xff",
    ],
)
def test_what_has_no_vectors_stays_as_it_is(body: bytes) -> None:
    assert without_vectors(body) == body and vectors_told(body) == ""


def test_vectors_are_counted_by_their_length() -> None:
    body = b'{"embeddings": [[1,2,3],[ 0.5 ],[],[1e-3, 2,3]], "model": "\\u00e9", "n": 1.0}'
    without = without_vectors(body)
    assert b'"n":1.0' in without and b'"\\u00e9"' in without
    wanted = "1 vector of 0 numbers, 1 vector of 1 numbers, 2 vectors of 3 numbers"
    assert vectors_told(body) == vectors_told(without) == wanted


@pytest.mark.parametrize("path", PATHS)
async def test_a_replay_says_how_many_vectors_came_then_and_now(tmp_path: Path, path: str) -> None:
    async with logged(tmp_path) as one:
        await ask(one.gateway.app, BODY, path=path)
        kept = await one.record()
        sent: list[dict[str, Any]] = []
        replies = []
        for model in ("vectors", "nobody"):
            told = await ask(one.gateway.app, {**BODY, "model": model}, path=path)
            replies.append(Sent(told.status, told.body, "a/e", 4000, 1.0))

    def post(where: str, body: bytes, _session: str) -> Sent:
        assert where == path
        sent.append(json.loads(body))
        return replies[len(sent) - 1]

    found = replayed(kept, ["other", "nobody"], post, sides_of)
    assert sent == [{**BODY, "model": "other"}, {**BODY, "model": "nobody"}]
    good, bad = found.now
    assert found.then.text == good.text == "2 vectors of 2 numbers"
    assert found.then.input_tokens == good.input_tokens == 4
    assert not bad.answered and "nobody" in bad.text


def test_a_replay_of_what_was_cut_is_refused() -> None:
    body = LoggedBody(text='{"model":"vectors","input":["a', bytes=99, cut=True)
    given = record(1, path="/v1/embeddings", request=body)
    with pytest.raises(ReplayError, match="was cut"):
        replayed(given, ["x"], lambda path, body, session: Sent(200, b"", "", 0, 0.0), sides_of)
