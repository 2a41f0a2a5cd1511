"""Guardrails one by one: what the file may say, functions of one's own, webhooks, schemas."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.config.yaml_file import Document
from headrace.errors import ConfigError
from headrace.gateway.building.guards import guard_of
from headrace.gateway.guards.action import Acted, GuardBlockedError
from headrace.gateway.guards.check_text import check_text
from headrace.gateway.guards.guard import NOTHING, Guard, Subject, Verdict
from headrace.gateway.guards.patterns import Patterns
from headrace.gateway.guards.text_span import TextSpan, request_passages
from headrace.gateway.settings.guards import GuardrailSettings
from headrace.gateway.settings.read import parse_settings
from headrace.gateway.settings.secret import Sources
from tests.gateway.openai_provider import body_of, reply
from tests.gateway.upstream.scripted import served


def subject(*texts: str, **more: Any) -> Subject:
    passages = tuple(
        TextSpan(("messages", at, "content"), "user", "text", one) for at, one in enumerate(texts)
    )
    return Subject(on="input", passages=passages, dialect="openai-chat", **more)


def made(folder: Path = Path(), **settings: Any) -> Guard:
    environ = {"TOKEN": "token-1", "SIGN": "sign-1"}
    return guard_of("g", GuardrailSettings(**settings), Sources(environ, folder), lambda: 1000.0)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"kind": "regex"}, "patterns: is required for regex"),
        ({"kind": "regex", "patterns": ["("]}, "guardrails.g: '\\('"),
        ({"kind": "regex", "patterns": ["(?=x)"]}, "lookaround"),
        ({"kind": "regex", "patterns": ["a*"]}, "empty text"),
        ({"kind": "pii", "patterns": ["x"]}, "patterns: has no effect for pii"),
        ({"kind": "json_schema", "schema": {"type": "object"}}, "on: output"),
        ({"kind": "json_schema", "schema": {"type": 1}, "on": "output"}, "guardrails.g: schema"),
        ({"kind": "json_schema", "schema": "no.json", "on": "output"}, "no.json"),
        ({"kind": "json_schema", "schema": {"$ref": "http://x.y/"}, "on": "output"}, "schema"),
        ({"kind": "max_tokens"}, "max_tokens: is required for max_tokens"),
        ({"kind": "max_tokens", "max_tokens": 0}, "max_tokens"),
        ({"kind": "max_tokens", "max_tokens": 5, "action": "cap"}, "cap applies to output"),
        ({"kind": "allowed_tools"}, "allow or deny"),
        ({"kind": "allowed_tools", "deny": ["x"], "action": "redact"}, "action"),
        ({"kind": "python", "function": "no_such_module:check"}, "cannot be imported"),
        ({"kind": "python", "function": "json"}, "module:function"),
        ({"kind": "python", "function": "json:nothing"}, "no function"),
        ({"kind": "webhook", "url": "ftp://x"}, "url: expected an address"),
        ({"kind": "webhook", "url": "http://x/", "headers": {"a b": "env:TOKEN"}}, "headers"),
        ({"kind": "webhook", "url": "http://x/", "headers": {"a": "env:NONE"}}, "NONE"),
        ({"kind": "pii", "restore": True}, "restore"),
        ({"kind": "nothing"}, "kind"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_name(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read = parse_settings(Document({"guardrails": {"g": settings}}, {}), "f.yaml")
        guard_of("g", read.guardrails["g"], Sources({"TOKEN": "x"}, Path()), lambda: 0.0)


@pytest.mark.parametrize(
    "where",
    [
        {"models": {"m": {"targets": ["p/m"], "guardrails": ["nonw"]}}},
        {"access": {"keys": {"k": {"key": "x", "guardrails": ["nonw"]}}}},
        {"access": {"teams": {"t": {"guardrails": ["nonw"]}}}},
    ],
)
def test_a_name_that_is_no_guardrail_is_told(where: dict[str, Any]) -> None:
    file = {"providers": {"p": "http://127.0.0.1:1/v1"},
            "guardrails": {"none": {"kind": "pii"}}, **where}  # fmt: skip
    with pytest.raises(ConfigError, match="none"):
        parse_settings(Document(file, {}), "f.yaml")


def test_a_pattern_made_to_take_forever_takes_no_time() -> None:
    began = time.monotonic()
    assert not Patterns((r"(a+)+$", r"(?:x|x?)+y"), "", 16).find("a" * 50_000 + "!", 0)
    assert time.monotonic() - began < 5


MODULE = """
import time
from headrace.gateway.guards.guard import Verdict

def check(subject):
    text = subject.passages[0].text
    if text == "raise": raise RuntimeError("with the text " + text)
    if text == "hang": time.sleep(5)
    if text == "odd": return "yes"
    if text == "replace": return Verdict("replaced", ("other",))
    return Verdict("it is bad") if text == "bad" else None

async def slow(subject):
    return check(subject)
"""


@pytest.fixture
def own_module(tmp_path: Path) -> Path:
    (tmp_path / "own_guardrails_of_a_test.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("own_guardrails_of_a_test", None)


@pytest.mark.parametrize("name", ["check", "slow"])
async def test_a_function_of_ones_own(own_module: Path, name: str) -> None:
    def of(**more: Any) -> Guard:
        return made(own_module, kind="python", function=f"own_guardrails_of_a_test:{name}", **more)

    guard = of()
    assert (await check_text([guard], subject("fine"))).acted == ()
    with pytest.raises(GuardBlockedError, match="it is bad"):
        await check_text([guard], subject("bad"))
    for text in ("raise", "odd"):
        with pytest.raises(GuardBlockedError) as raised:
            await check_text([guard], subject(text))
        assert raised.value.acted.action == "failed" and "with the text" not in str(raised.value)
        passed = await check_text([of(on_error="allow")], subject(text))
        assert [one.action for one in passed.acted] == ["failed"]
    passed = await check_text([of(action="redact")], subject("replace"))
    assert passed.subject.passages[0].text == "other"


async def test_a_function_that_hangs_is_not_waited_for(own_module: Path) -> None:
    guard = made(own_module, kind="python", function="own_guardrails_of_a_test:check",
                 timeout_s=0.05, on_error="allow")  # fmt: skip
    began = time.monotonic()
    passed = await check_text([guard], subject("hang"))
    assert passed.acted[0].action == "failed" and time.monotonic() - began < 3


async def test_why_a_guardrail_came_to_no_verdict_is_in_the_log(
    own_module: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard = made(own_module, kind="python", function="own_guardrails_of_a_test:check")
    with pytest.raises(GuardBlockedError):
        await check_text([guard], subject("raise"))
    assert "guardrail g failed: it raised RuntimeError" in caplog.text
    assert "with the text" not in caplog.text


async def test_a_webhook_is_asked_in_known_words_and_signed() -> None:
    verdicts = {
        "fine": {"action": "NONE"},
        "bad": {"action": "BLOCKED", "blocked_reason": "it is bad"},
        "replace": {"action": "GUARDRAIL_INTERVENED", "texts": ["other"]},
        "few": {"action": "GUARDRAIL_INTERVENED", "texts": []},
        "odd": {"answer": 42},
    }

    async def answer(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        text = body_of(request)["texts"][0]
        if text == "hang":
            await asyncio.sleep(3)
        writer.write(reply(500 if text == "500" else 200, verdicts.get(text, {})))

    async with served(answer) as server:

        def of(**more: Any) -> Guard:
            return made(kind="webhook", url=f"{server.origin}/check?x=1", timeout_s=0.2,
                        headers={"x-token": "env:TOKEN"}, secret="env:SIGN", **more)  # fmt: skip

        guard = of()
        assert (await check_text([guard], subject("fine", request_id="r1", key="k"))).acted == ()
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /check?x=1 ") and b"x-token: token-1" in head
        digest = hmac.new(b"sign-1", b"1000." + body, hashlib.sha256).hexdigest()
        assert f"x-headrace-signature: v1={digest}".encode() in head
        asked = json.loads(body)
        assert asked["input_type"] == "request" and asked["texts"] == ["fine"]
        assert asked["request_id"] == "r1" and asked["key"] == "k" and asked["roles"] == ["user"]
        with pytest.raises(GuardBlockedError, match="it is bad"):
            await check_text([guard], subject("bad"))
        guard.look.close()  # type: ignore[union-attr]
        assert (await check_text([guard], subject("fine"))).acted == ()
        passed = await check_text([of(action="redact")], subject("replace"))
        assert passed.subject.passages[0].text == "other"
        for text in ("few", "odd", "500", "hang"):
            with pytest.raises(GuardBlockedError) as raised:
                await check_text([guard], subject(text))
            assert raised.value.acted.action == "failed"
    gone = await check_text([of(on_error="allow")], subject("fine"))
    assert gone.acted == (Acted("g", "failed", "the check failed"),)


async def test_guardrails_that_look_are_asked_side_by_side_and_redactions_in_order() -> None:
    running = 0
    most = 0

    async def nothing(asked: Subject) -> Verdict:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        seen.append(asked.passages[0].text)
        return NOTHING

    seen: list[str] = []
    looking = [Guard(name=f"l{n}", on=frozenset(("input",)), action="block", look=nothing)
               for n in range(3)]  # fmt: skip
    redacting = made(kind="regex", patterns=("secret",), action="redact")
    passed = await check_text([*looking, redacting, *looking], subject("a secret"))
    assert most == 3 and seen == ["a secret"] * 3 + ["a [REDACTED]"] * 3
    assert passed.subject.passages[0].text == "a [REDACTED]"


async def test_roles_say_whose_texts_count() -> None:
    body = {"messages": [
        {"role": "system", "content": "secret s"},
        {"role": "user", "content": [{"type": "text", "text": "secret u"},
                                     {"type": "image_url", "image_url": {
                                         "url": "data:image/png;base64,secret"}}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "secret", "type": "function",
             "function": {"name": "secret", "arguments": '{"a": "secret a"}'}}]},
        {"role": "tool", "tool_call_id": "secret", "content": "secret t"},
    ]}  # fmt: skip
    texts = request_passages("openai-chat", body)
    assert [(one.role, one.kind, one.text) for one in texts] == [
        ("system", "text", "secret s"), ("user", "text", "secret u"),
        ("assistant", "arguments", '{"a": "secret a"}'), ("tool", "text", "secret t"),
    ]  # fmt: skip
    asked = Subject(on="input", passages=tuple(texts))
    for role in ("system", "user", "assistant", "tool"):
        guard = made(kind="regex", patterns=("secret",), action="redact", roles=(role,))
        passed = await check_text([guard], asked)
        changed = [one.role for one in passed.subject.passages if "secret" not in one.text]
        assert changed == [role]


def test_anthropic_blocks_and_responses_items_are_looked_at() -> None:
    anthropic = {
        "system": [{"type": "text", "text": "t1", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "i", "name": "n", "input": {"url": "t2", "x": ["t3"]}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "i", "content": [
                    {"type": "text", "text": "t4"}]},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain",
                                                "data": "t5"}},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                             "data": "AAAA"}}]},
        ],
    }  # fmt: skip
    texts = request_passages("anthropic", anthropic)
    assert [(one.text, one.role) for one in texts] == [
        ("t1", "system"), ("url", "assistant"), ("t2", "assistant"), ("x", "assistant"),
        ("t3", "assistant"), ("t4", "tool"), ("t5", "user"),
    ]  # fmt: skip
    responses = {
        "instructions": "t1",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "t2"}]},
            {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{t3}"},
            {"type": "function_call_output", "call_id": "c", "output": "t4"},
        ],
    }
    texts = request_passages("openai-responses", responses)
    assert [(one.text, one.role) for one in texts] == [
        ("t1", "system"), ("t2", "user"), ("{t3}", "assistant"), ("t4", "tool"),
    ]  # fmt: skip
