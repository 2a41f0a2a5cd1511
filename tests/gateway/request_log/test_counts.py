"""What the log keeps of requests to count tokens, where the file wants it; whose limits count."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.gateway.building.request_log import sides_of
from headrace.gateway.replaying.answer import replayed
from headrace.gateway.replaying.replay import Sent
from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import Answer, fails
from tests.gateway.providers.test_count import BODY, MESSAGES, RESPONSES, Counter
from tests.gateway.providers.test_count import settings as counting
from tests.gateway.request_log.parts import log_of
from tests.gateway.request_log.test_whole_gateway import Logged, parsed
from tests.gateway.test_accounts_of_the_file import KEY, accounts
from tests.gateway.upstream.scripted import served

COUNTS = {"counts": True}


@asynccontextmanager
async def logged(
    folder: Path, log: dict[str, Any], answer: Answer | None = None, **more: Any
) -> AsyncIterator[Logged]:
    own: dict[str, Any] = {"enabled": True, "path": "log.sqlite3", **log}
    async with served(answer or Counter()) as provider:
        kept = log_of(own, folder, now_s=1_790_000_000.0)
        entries: list[Entry] = []
        config = counting(provider, kind="anthropic") | {"request_log": own} | more
        built = gateway(config, entries, request_log=kept)
        try:
            yield Logged(built, kept, entries, folder / "log.sqlite3")
        finally:
            built.close()
            kept.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [(MESSAGES, BODY), (RESPONSES, {"model": "m", "input": "Weather in Zürich?"})],
)
async def test_a_count_is_kept_with_who_counted(tmp_path: Path, path: str, body: Any) -> None:
    async with logged(tmp_path, COUNTS) as one:
        told = await ask(one.gateway.app, body, path=path)
        kept = await one.record()
        assert not one.entries, "counting leaves no line in the ledger"
    assert parsed(kept) == (body, told.json)
    assert (kept.path, kept.target, kept.provider, kept.model) == (path, "a/x-1", "a", "m")
    assert (kept.outcome, kept.status, kept.input_tokens, kept.cost_nusd) == (
        "answered", 200, None, 0,
    )  # fmt: skip


async def test_counts_are_not_kept_unless_the_file_wants_it(tmp_path: Path) -> None:
    async with logged(tmp_path, {}) as one:
        assert (await ask(one.gateway.app, BODY, path=MESSAGES)).status == 200
        assert one.log.standing.written == one.log.standing.waiting == 0


async def test_a_refusal_and_a_client_that_goes_are_kept(tmp_path: Path) -> None:
    there, gone = asyncio.Event(), asyncio.Event()

    async def hangs(_number: int, _request: bytes, _writer: asyncio.StreamWriter) -> None:
        there.set()
        await gone.wait()

    guards = {"no": {"kind": "regex", "patterns": ["Zürich"], "on": "input", "default": True}}
    async with logged(tmp_path, COUNTS, hangs, guardrails=guards) as one:
        told = await ask(one.gateway.app, BODY, path=MESSAGES)
        kept = await one.record()
        assert told.status == kept.status == 400 and kept.outcome == "refused"
        assert parsed(kept) == (BODY, told.json) and kept.target is None
        other = {**BODY, "messages": [{"role": "user", "content": "Hi"}]}
        await ask(one.gateway.app, other, path=MESSAGES, goes_when=there.is_set)
        kept = await one.record("req-2", 2)
        gone.set()
        assert kept.outcome == "client_gone" and kept.request is not None and kept.reply is None


async def test_an_estimate_is_kept_as_nobodys(tmp_path: Path) -> None:
    async with logged(tmp_path, COUNTS, fails(500)) as one:
        told = await ask(one.gateway.app, BODY, path=MESSAGES)
        kept = await one.record()
    assert told.headers["x-headrace-count"] == "estimate"
    assert parsed(kept)[1] == told.json and kept.outcome == "answered" and kept.target is None


async def test_what_guardrails_took_out_is_not_kept(tmp_path: Path) -> None:
    guards = {"no": {"kind": "regex", "patterns": ["Zürich"], "on": "input", "action": "redact",
                     "default": True}}  # fmt: skip
    async with logged(tmp_path, COUNTS, guardrails=guards) as one:
        await ask(one.gateway.app, BODY, path=MESSAGES)
        kept = await one.record()
    assert kept.request is not None
    assert "[REDACTED]" in kept.request.text and "rich" not in kept.request.text


async def test_a_replay_asks_for_a_count_again(tmp_path: Path) -> None:
    async with logged(tmp_path, COUNTS) as one:
        await ask(one.gateway.app, BODY, path=MESSAGES)
        kept = await one.record()
    sent: list[Any] = []

    def post(path: str, body: bytes, _session: str) -> Sent:
        sent.append((path, json.loads(body)))
        return Sent(200, b'{"input_tokens":43}', "b/m", 0, 1.0)

    found = replayed(kept, ["other"], post, sides_of)
    assert sent == [(MESSAGES, {**BODY, "model": "other"})]
    assert json.loads(found.then.text) == {"input_tokens": 42}
    assert found.now[0].text == '{"input_tokens":43}'


async def test_a_count_is_of_the_model_that_would_answer() -> None:
    limits = [{"rpm": 5, "models": "m"}, {"rpm": 5, "models": "other"}]
    async with served(Counter()) as provider:
        config = counting(provider, kind="anthropic")
        config["models"]["m"]["fallbacks"] = ["other"]
        config["models"]["other"] = {"targets": ["a/x-2"]}
        config["access"] = {"keys": {"k": {"key": "env:KEY", "limits": limits}}}
        book = await accounts(config)
        built = gateway(config, [], accounts=book)
        headers = {"authorization": f"Bearer {KEY}"}
        told = await ask(built.app, BODY, path=MESSAGES, headers=headers)
        built.close()
    assert told.status == 200
    readings = await book.readings("key", "k")
    assert {one.meter.model: (one.used, one.held) for one in readings} == {
        "m": (1, 0), "other": (0, 0),
    }  # fmt: skip
