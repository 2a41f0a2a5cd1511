"""Answers through a whole gateway with guardrails, whole and as streams."""

from __future__ import annotations

import asyncio
import json

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.guards.test_serving import BODIES, settings
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import STREAM_HEAD, answers, chunk, completion, framed
from tests.gateway.upstream.scripted import served


@pytest.mark.parametrize("dialect", BODIES)
async def test_a_whole_answer_is_redacted_in_every_dialect(dialect: str) -> None:
    path, body = BODIES[dialect]
    guards = {"words": {"kind": "regex", "patterns": ["(?i)internal only"], "on": "output",
                        "action": "redact"}}  # fmt: skip
    async with served(answers("This is Internal Only, yes")) as provider:
        built = gateway(settings(provider.origin, guards, guardrails=["words"]), [])
        told = await ask(built.app, {"model": "chat", **body}, path=path)
        assert told.status == 200
        assert b"This is [REDACTED], yes" in told.body and b"Internal" not in told.body
        assert told.headers["content-length"] == str(len(told.body))
        assert told.headers["x-headrace-guardrails"] == "words=redact"


async def test_an_answer_that_no_guard_changes_is_passed_on_byte_for_byte() -> None:
    guards = {"words": {"kind": "regex", "patterns": ["internal only"], "on": "output"}}
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
    async with served(answers("Hello")) as provider:
        plain = await ask(gateway(settings(provider.origin, {}), []).app, body)
        built = gateway(settings(provider.origin, guards, guardrails=["words"]), [])
        told = await ask(built.app, body)
        assert told.body == plain.body and told.json == completion("Hello", "m")
        streamed = {**body, "stream": True}
        plain = await ask(gateway(settings(provider.origin, {}), []).app, streamed)
        told = await ask(built.app, streamed)
        assert told.body == plain.body and b"[DONE]" in told.body


async def test_an_answer_that_is_blocked_is_an_error_and_is_billed() -> None:
    guards = {"words": {"kind": "regex", "patterns": ["internal only"], "on": "output",
                        "message": "ask somebody else"}}  # fmt: skip
    entries: list[Entry] = []
    async with served(answers("This is internal only")) as provider:
        built = gateway(settings(provider.origin, guards, guardrails=["words"]), entries)
        told = await ask(built.app, {"model": "chat", "messages": []})
        assert told.status == 400 and "ask somebody else" in told.json["error"]["message"]
        assert b"internal" not in told.body
        assert told.json["error"]["code"] == "content_policy_violation"
    (entry,) = entries
    assert (entry.outcome, entry.status, entry.cost_nusd) == ("refused", 400, 18_000)


@pytest.mark.parametrize("dialect", BODIES)
async def test_a_blocked_stream_ends_with_an_error_in_every_dialect(dialect: str) -> None:
    path, body = BODIES[dialect]
    guards = {"words": {"kind": "regex", "patterns": ["internal only"], "on": "output"}}
    entries: list[Entry] = []
    text = "word " * 40 + "is internal only and more " + "word " * 40
    async with served(answers(text)) as provider:
        built = gateway(settings(provider.origin, guards, guardrails=["words"]), entries)
        told = await ask(built.app, {"model": "chat", **body, "stream": True}, path=path)
        assert told.status == 200 and b"internal" not in told.body
        assert told.body.count(b"word ") > 20, "what came before was let through"
        assert b"guardrail words" in told.body
    (entry,) = entries
    assert entry.outcome == "cut" and entry.cost_nusd and "guardrail words" in entry.error
    assert entry.guardrails == ("words=block",)


@pytest.mark.parametrize("dialect", BODIES)
async def test_originals_come_back_into_the_answer(dialect: str) -> None:
    path, body = BODIES[dialect]
    guards = {"mail": {"kind": "pii", "find": ["email"], "on": "input", "action": "redact",
                       "restore": True, "default": True}}  # fmt: skip
    async with served(answers("You are [EMAIL_1] or so")) as provider:
        built = gateway(settings(provider.origin, guards), [])
        for stream in (False, True):
            told = await ask(built.app, {"model": "chat", **body, "stream": stream}, path=path)
            assert b"ada@" not in provider.requests[-1] and b"[EMAIL_1]" in provider.requests[-1]
            assert b"ada@example.com" in told.body and b"EMAIL_1" not in told.body
            assert told.headers["x-headrace-guardrails"] == "mail=redact"


async def test_answers_from_the_cache_pass_the_guardrails_too() -> None:
    guards = {"words": {"kind": "regex", "patterns": ["internal only"], "on": "output",
                        "action": "redact"}}  # fmt: skip
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0}
    entries: list[Entry] = []
    async with served(answers("It is internal only")) as provider:
        made = settings(provider.origin, guards, guardrails=["words"])
        built = gateway({**made, "cache": {"enabled": True}}, entries)
        for stream in (False, True, False):
            told = await ask(built.app, {**body, "stream": stream})
            assert b"internal" not in told.body and b"REDACTED" in told.body
        assert len(provider.requests) == 1 and entries[-1].cache == "hit"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_has_to_have_its_shape(stream: bool) -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
    guards = {"shape": {"kind": "json_schema", "schema": schema, "on": "output", "default": True}}
    body = {"model": "chat", "messages": [], "stream": stream}
    async with served(answers(json.dumps({"a": 1}))) as provider:
        told = await ask(gateway(settings(provider.origin, guards), []).app, body)
        assert told.status == 200 and b"guardrail" not in told.body
    for wrong in ('{"a": "x"}', "{}", "no JSON"):
        async with served(answers(wrong)) as provider:
            told = await ask(gateway(settings(provider.origin, guards), []).app, body)
            assert (told.status == 400) == (not stream)
            assert b"guardrail shape" in told.body and b"no JSON" not in told.body


async def test_legacy_completions_are_looked_at() -> None:
    guards = {
        "mail": {"kind": "pii", "find": ["email"], "on": "input", "action": "redact"},
        "words": {"kind": "regex", "patterns": ["internal only"], "on": "output",
                  "action": "redact"},
    }  # fmt: skip
    async with served(answers("it is internal only")) as provider:
        built = gateway(settings(provider.origin, guards, guardrails=[*guards]), [])
        for stream in (False, True):
            body = {"model": "chat", "prompt": "ada@example.com", "stream": stream}
            told = await ask(built.app, body, path="/v1/completions")
            assert told.status == 200 and b"REDACTED" in told.body and b"internal" not in told.body
            assert b"[EMAIL]" in provider.requests[-1] and b"ada@" not in provider.requests[-1]


async def test_a_blocked_stream_lets_go_of_the_provider() -> None:
    gone = asyncio.Event()

    async def answer(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + framed(chunk({"role": "assistant", "content": "Hello "})))
        writer.write(framed(chunk({"content": "and so on " * 3})))
        writer.write(framed(chunk({"content": "it is internal only, and " + "x" * 40})))
        try:
            while True:
                writer.write(framed(chunk({"content": "more "})))
                await writer.drain()
                await asyncio.sleep(0.002)
        except ConnectionError:
            gone.set()
            raise

    guards = {"words": {"kind": "regex", "patterns": ["internal only"], "on": "output",
                        "default": True}}  # fmt: skip
    entries: list[Entry] = []
    async with served(answer) as provider:
        built = gateway(settings(provider.origin, guards), entries)
        told = await ask(built.app, {"model": "chat", "messages": [], "stream": True})
        assert b"Hello " in told.body and b"internal" not in told.body
        async with asyncio.timeout(5):
            await gone.wait()
    assert entries[0].outcome == "cut" and entries[0].usage_from == "estimated"
    assert entries[0].cost_nusd, "what came is billed"
