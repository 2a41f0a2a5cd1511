"""Requests through a whole gateway with guardrails to a scripted provider."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.config.yaml_file import Document
from headrace.gateway.building.accounts import accounts_of
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.read import parse_settings
from headrace.gateway.settings.secret import Sources
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import (
    answers,
    body_of,
    reply,
)
from tests.gateway.upstream.scripted import served

BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "openai-chat": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "I am ada@example.com, hello"}]},
    ),
    "openai-responses": ("/v1/responses", {"input": "I am ada@example.com, hello"}),
    "anthropic": (
        "/v1/messages",
        {
            "max_tokens": 99,
            "messages": [{"role": "user", "content": "I am ada@example.com, hello"}],
        },
    ),
    "ollama": (
        "/api/chat",
        {"messages": [{"role": "user", "content": "I am ada@example.com, hello"}], "stream": False},
    ),
    "openai-completions": ("/v1/completions", {"prompt": "I am ada@example.com, hello"}),
    "ollama-generate": (
        "/api/generate",
        {"prompt": "I am ada@example.com, hello", "stream": False},
    ),
}


def settings(origin: Any, found: dict[str, Any], **model: Any) -> dict[str, Any]:
    return {
        "providers": {"a": {"base_url": f"{origin}/v1", "dialect": "openai-chat"}},
        "models": {"chat": {"targets": [{"model": "a/m", "price": {"input": 1, "output": 2}}],
                            **model}},
        "guardrails": found,
    }  # fmt: skip


@pytest.mark.parametrize("dialect", BODIES)
async def test_what_is_redacted_never_reaches_the_provider_in_any_dialect(dialect: str) -> None:
    path, body = BODIES[dialect]
    guards = {"mail": {"kind": "pii", "find": ["email"], "on": "input", "action": "redact"}}
    entries: list[Entry] = []
    async with served(answers("Hello")) as provider:
        built = gateway(settings(provider.origin, guards, guardrails=["mail"]), entries)
        told = await ask(built.app, {"model": "chat", **body}, path=path)
        assert told.status == 200, told.body
        sent = body_of(provider.requests[0])
        assert sent["messages"][-1]["content"] == "I am [EMAIL], hello"
        assert told.headers["x-headrace-guardrails"] == "mail=redact"
    assert entries[0].guardrails == ("mail=redact",)


async def test_a_redaction_changes_no_other_byte() -> None:
    guards = {"mail": {"kind": "pii", "find": ["email"], "on": "input", "action": "redact",
                       "default": True}}  # fmt: skip
    raw = (
        b'{ "model" : "chat","x": 1.0e2, "messages": [ {"role":"user" , "content":"\\u00e4 ada@'
        b'example.com" , "y":[1, 2.50]}, {"role":"user","content":"\\u00e4"}] }'
    )
    async with served(answers("Hello")) as provider:
        built = gateway(settings(provider.origin, guards), [])
        assert (await ask(built.app, raw)).status == 200
        sent = provider.requests[0].partition(b"\r\n\r\n")[2]
        wanted = raw.replace(b'"chat"', b'"m"')
        assert sent == wanted.replace(b'"\\u00e4 ada@example.com"', '"ä [EMAIL]"'.encode())


async def test_a_long_text_is_looked_at_too() -> None:
    guards = {"mail": {"kind": "pii", "find": ["email"], "on": "input", "action": "redact",
                       "restore": True, "default": True}}  # fmt: skip
    text = "word " * 10_000 + "ada@example.com" + " word" * 10_000
    async with served(answers("To [EMAIL_1]")) as provider:
        built = gateway(settings(provider.origin, guards), [])
        body = {"model": "chat", "messages": [{"role": "user", "content": text}]}
        told = await ask(built.app, body)
        sent = body_of(provider.requests[0])["messages"][0]["content"]
        assert sent == text.replace("ada@example.com", "[EMAIL_1]")
        assert b"To ada@example.com" in told.body


async def test_what_a_guardrail_waits_for_is_not_the_gateways_own_time(tmp_path: Path) -> None:
    (tmp_path / "waiting_guardrail_of_a_test.py").write_text(
        "import asyncio\nasync def check(subject): await asyncio.sleep(0.3)\n"
    )
    guard = {"kind": "python", "function": "waiting_guardrail_of_a_test:check", "on": "input",
             "default": True}  # fmt: skip
    sys.path.append(str(tmp_path))
    try:
        async with served(answers("Hello")) as provider:
            entries: list[Entry] = []
            built = gateway(settings(provider.origin, {"slow": guard}), entries)
            body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
            assert (await ask(built.app, body)).status == 200
    finally:
        sys.path.remove(str(tmp_path))
    assert (
        entries[0].total_ms > 290 and entries[0].overhead_us < entries[0].total_ms * 1000 - 290_000
    )


@pytest.mark.parametrize("dialect", BODIES)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_blocked_is_told_in_every_dialect_and_costs_nothing(
    dialect: str, stream: bool
) -> None:
    path, body = BODIES[dialect]
    guards = {"mail": {"kind": "pii", "find": ["email"], "on": "input", "default": True}}
    entries: list[Entry] = []
    async with served(answers("Hello")) as provider:
        built = gateway(settings(provider.origin, guards), entries)
        told = await ask(built.app, {"model": "chat", **body, "stream": stream}, path=path)
        assert told.status == 400 and not provider.requests
        assert "guardrail mail" in told.body.decode() and b"ada@" not in told.body
    assert entries[0].outcome == "refused" and entries[0].cost_nusd is None
    assert entries[0].guardrails == ("mail=block",)


async def test_a_request_names_more_guardrails_and_never_fewer() -> None:
    guards = {
        "mail": {"kind": "pii", "find": ["email"], "on": "input"},
        "always": {"kind": "regex", "patterns": ["forbidden"], "on": "input", "default": True},
    }

    def body(text: str, **more: Any) -> dict[str, Any]:
        return {"model": "chat", "messages": [{"role": "user", "content": text}], **more}

    async with served(answers("Hello")) as provider:
        built = gateway(settings(provider.origin, guards), [])
        assert (await ask(built.app, body("ada@example.com"))).status == 200
        named = body("ada@example.com", guardrails=["mail"])
        assert (await ask(built.app, named)).status == 400
        assert (await ask(built.app, body("forbidden", guardrails=[]))).status == 400
        told = await ask(built.app, body("Hi", guardrails=["mial"]))
        assert told.status == 400 and "mail" in told.json["error"]["message"]
        assert (await ask(built.app, body("Hi", guardrails=["mail"]))).status == 200
        assert "guardrails" not in body_of(provider.requests[-1])
        bare = gateway(settings(provider.origin, {}), [])
        assert (await ask(bare.app, body("Hi", guardrails=["mail"]))).status == 400


async def test_a_field_that_is_there_twice_is_refused() -> None:
    guards = {"mail": {"kind": "pii", "find": ["email"], "on": "input", "default": True}}
    raw = (
        b'{"model":"chat","messages":[{"role":"user","content":"ada@example.com",'
        b'"content":"nothing"}]}'
    )
    async with served(answers("Hello")) as provider:
        told = await ask(gateway(settings(provider.origin, guards), []).app, raw)
        assert told.status == 400 and not provider.requests and "twice" in told.body.decode()


async def test_warnings_are_told_and_watching_is_not() -> None:
    guards = {
        "seen": {"kind": "regex", "patterns": ["Hello"], "action": "warn", "default": True},
        "quiet": {"kind": "regex", "patterns": ["Hello"], "action": "monitor", "default": True},
    }
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}]}
    entries: list[Entry] = []
    async with served(answers("Hello")) as provider:
        built = gateway(settings(provider.origin, guards), entries)
        told = await ask(built.app, body)
        assert told.status == 200 and told.headers["x-headrace-guardrails"] == "seen=warn"
    assert entries[0].guardrails == ("seen=warn", "quiet=monitor")


async def test_tools_that_are_not_allowed() -> None:
    guards = {"tools": {"kind": "allowed_tools", "allow": ["search_*"], "deny": ["search_all"],
                        "default": True}}  # fmt: skip

    def body(*names: str, **more: Any) -> dict[str, Any]:
        tools = [{"type": "function", "function": {"name": one}} for one in names]
        return {"model": "chat", "messages": [], "tools": tools, **more}

    async with served(answers("Hello")) as provider:
        built = gateway(settings(provider.origin, guards), [])
        assert (await ask(built.app, body("search_web"))).status == 200
        for bad in (
            body("delete"),
            body("search_web", "search_all"),
            body(tool_choice={"type": "function", "function": {"name": "delete"}}),
            body(web_search_options={}),
        ):
            assert (await ask(built.app, bad)).status == 400
        assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("dialect", "field"),
    [("openai-chat", "max_completion_tokens"), ("ollama", "options"), ("anthropic", "max_tokens")],
)
async def test_the_answer_is_capped(dialect: str, field: str) -> None:
    path, body = BODIES[dialect]
    guards = {"cheap": {"kind": "max_tokens", "max_tokens": 20, "on": "output", "action": "cap",
                        "default": True}}  # fmt: skip
    async with served(answers("Hello")) as provider:
        built = gateway(settings(provider.origin, guards), [])
        told = await ask(built.app, {"model": "chat", **body}, path=path)
        sent = body_of(provider.requests[-1])
        assert told.status == 200 and 20 in (
            sent.get("max_tokens"),
            sent.get("max_completion_tokens"),
        )
        assert told.headers["x-headrace-guardrails"] == "cheap=cap"
        refusing = {"cheap": {**guards["cheap"], "action": "block"}}
        built = gateway(settings(provider.origin, refusing), [])
        more: dict[str, Any] = (
            {"options": {"num_predict": 21}} if field == "options" else {field: 21}
        )
        told = await ask(built.app, {"model": "chat", **body, **more}, path=path)
        assert told.status == 400 and "21" in told.body.decode()


async def test_a_prompt_that_is_too_long_is_refused() -> None:
    guards = {"cheap": {"kind": "max_tokens", "max_tokens": 100, "on": "input", "default": True}}
    async with served(answers("Hello")) as provider:
        built = gateway(settings(provider.origin, guards), [])
        body = {"model": "chat", "messages": [{"role": "user", "content": "x " * 1000}]}
        told = await ask(built.app, body)
        assert told.status == 400 and "at most 100" in told.body.decode() and not provider.requests


async def test_the_models_fallbacks_guardrails_hold_too() -> None:
    guards = {"mail": {"kind": "pii", "find": ["email"], "on": "input"}}
    async with served(answers("Hello")) as provider:
        made = settings(provider.origin, guards, fallbacks=["other"])
        made["models"]["other"] = {"targets": [{"model": "a/n"}], "guardrails": ["mail"]}
        built = gateway(made, [])
        body = {"model": "chat", "messages": [{"role": "user", "content": "ada@example.com"}]}
        assert (await ask(built.app, body)).status == 400


async def vectors(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    data = [{"object": "embedding", "index": 0, "embedding": [0.5]}]
    usage = {"prompt_tokens": 4, "total_tokens": 4}
    writer.write(reply(200, {"object": "list", "data": data, "model": "e", "usage": usage}))


@pytest.mark.parametrize("path", ["/v1/embeddings", "/api/embed"])
async def test_what_embeddings_are_asked_for_is_looked_at_too(path: str) -> None:
    mail = {"kind": "pii", "find": ["email"], "on": "input", "default": True}
    body = {"model": "chat", "input": ["I am ada@example.com"]}
    entries: list[Entry] = []
    async with served(vectors) as provider:
        redacting = settings(provider.origin, {"mail": {**mail, "action": "redact"}})
        told = await ask(gateway(redacting, entries).app, body, path=path)
        assert told.status == 200 and told.headers["x-headrace-guardrails"] == "mail=redact"
        assert body_of(provider.requests[0])["input"] in ("I am [EMAIL]", ["I am [EMAIL]"])
        blocking = settings(provider.origin, {"mail": mail})
        told = await ask(gateway(blocking, entries).app, body, path=path)
        assert told.status == 400 and "guardrail mail" in told.body.decode()
        assert len(provider.requests) == 1
        told = await ask(gateway(blocking, []).app, {**body, "guardrails": ["no"]}, path=path)
        assert told.status == 400
    assert [one.guardrails for one in entries] == [("mail=redact",), ("mail=block",)]
    assert [one.outcome for one in entries] == ["answered", "refused"]


async def test_a_limit_on_answers_is_not_written_where_nothing_is_written() -> None:
    cheap = {"kind": "max_tokens", "max_tokens": 9, "on": "both", "action": "block",
             "default": True}  # fmt: skip
    async with served(vectors) as provider:
        built = gateway(settings(provider.origin, {"cheap": cheap}), [])
        told = await ask(built.app, {"model": "chat", "input": "Hi"}, path="/v1/embeddings")
    assert told.status == 200
    assert "max_tokens" not in body_of(provider.requests[0])


async def test_guardrails_of_a_key_and_of_its_team() -> None:
    guards = {
        "mail": {"kind": "pii", "find": ["email"], "on": "input"},
        "word": {"kind": "regex", "patterns": ["secret"], "on": "input"},
    }
    access = {
        "teams": {"t": {"guardrails": ["mail"]}},
        "keys": {
            "k": {"key": "key-k-0123456789abcdef", "team": "t", "guardrails": ["word"]},
            "free": {"key": "key-free-0123456789abcdef"},
        },
    }
    async with served(answers("Hello")) as provider:
        made = {**settings(provider.origin, guards), "access": access}
        accounts = await accounts_of(
            parse_settings(Document(made, {}), "f.yaml").access, Sources({}, Path()),
            now_ns=time.time_ns, random_bytes=os.urandom, on_alert=lambda alert: None,
        )  # fmt: skip
        built = gateway(made, [], accounts=accounts)
        for text, key, status in (
            ("ada@example.com", "k", 400), ("a secret", "k", 400), ("Hi", "k", 200),
            ("ada@example.com, a secret", "free", 200),
        ):  # fmt: skip
            body = {"model": "chat", "messages": [{"role": "user", "content": text}]}
            headers = {"authorization": f"Bearer key-{key}-0123456789abcdef"}
            assert (await ask(built.app, body, headers=headers)).status == status


async def test_what_guardrails_do_is_counted() -> None:
    guards = {"mail": {"kind": "pii", "find": ["email"], "on": "input", "action": "redact",
                       "default": True}}  # fmt: skip
    async with served(answers("Hello")) as provider:
        built = gateway(settings(provider.origin, guards), [])
        body = {"model": "chat", "messages": [{"role": "user", "content": "ada@example.com"}]}
        await ask(built.app, body)
        told = await ask(built.app, b"", path="/metrics", method="GET")
    wanted = 'headrace:gateway_guardrails_total{action="redact",guardrail="mail"} 1'
    assert wanted in told.body.decode().replace(".0", "")
