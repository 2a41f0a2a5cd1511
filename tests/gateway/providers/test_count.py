"""Tokens of a prompt: counted by who would answer it, or estimated."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import openai
import pytest

from headrace.gateway.accounts import Limits
from headrace.gateway.accounts.terms import Terms
from headrace.gateway.serving.entry import Entry
from tests.gateway.accounts.parts import KEY, accounts_of, hierarchy
from tests.gateway.clients.over_socket import listening
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import reply
from tests.gateway.upstream.scripted import Scripted, served

MESSAGES = "/v1/messages/count_tokens"
RESPONSES = "/v1/responses/input_tokens"
TOOL = {"name": "weather", "description": "d", "input_schema": {"type": "object"}}
BODY = {
    "model": "m", "system": "Be short.", "tools": [TOOL],
    "messages": [{"role": "user", "content": "Weather in Zürich?"}],
}  # fmt: skip


class Counter:
    """Answers 42 in each API's words."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []

    async def __call__(self, _n: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        self.asked.append((lines[0].split(" ")[1], headers, json.loads(body)))
        told = {
            "input_tokens": 42, "totalTokens": 42, "inputTokens": 42, "count": 42,
            "max_model_len": 9, "tokens": [1] * 42,
        }  # fmt: skip
        writer.write(reply(200, told))


def settings(provider: Scripted, **given: Any) -> dict[str, Any]:
    base = {"base_url": str(provider.origin), "api_key": "key"}
    return {"providers": {"a": {**base, **given}}, "models": {"m": {"targets": ["a/x-1"]}}}


async def counted(provider: Scripted, path: str = MESSAGES, body: Any = BODY, **given: Any) -> Told:
    entries: list[Entry] = []
    built = gateway(settings(provider, **given), entries)
    told = await ask(built.app, body, path=path, headers={"anthropic-beta": "b-1"})
    built.close()
    assert not entries, "counting leaves no line"
    return told


VERTEX = {"google": {"project": "p", "location": "us-east5"}}


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"kind": "anthropic"}, "/v1/messages/count_tokens"),
        ({"kind": "google"}, "/v1beta/models/x-1:countTokens"),
        (
            {"kind": "vertex", **VERTEX},
            "/v1/projects/p/locations/us-east5/publishers/google/models/x-1:countTokens",
        ),
        (
            {"kind": "vertex-anthropic", **VERTEX},
            "/v1/projects/p/locations/us-east5/publishers/anthropic/models/count-tokens:rawPredict",
        ),
        ({"kind": "bedrock", "region": "us-east-1"}, "/model/x-1/count-tokens"),
        ({"kind": "openai"}, "/responses/input_tokens"),
        ({"kind": "vllm"}, "/tokenize"),
    ],
)
async def test_each_provider_counts_in_its_own_words(given: Any, path: str) -> None:
    counter = Counter()
    async with served(counter) as provider:
        told = await counted(provider, **given)
    assert told.json == {"input_tokens": 42}
    assert told.headers["x-headrace-count"] == "provider"
    assert told.headers["x-headrace-target"] == "a/x-1"
    ((asked, _, body),) = counter.asked
    assert asked == path
    text = json.dumps(body, ensure_ascii=False)
    assert "Weather in Zürich?" in text and "Be short." in text and "weather" in text
    assert "max_tokens" not in text and "maxOutputTokens" not in text


async def test_a_count_at_anthropic_is_passed_on_as_it_came() -> None:
    raw = b'{"messages": [{"role":"user","content":"\\u00e4"}],"x_new":1.50,"model":"m"}'
    async with served(Counter()) as provider:
        told = await counted(provider, body=raw, kind="anthropic")
        head, _, body = provider.requests[0].partition(b"\r\n\r\n")
    assert told.json == {"input_tokens": 42}
    assert body == raw.replace(b'"m"', b'"x-1"')
    assert b"anthropic-beta: b-1\r\n" in head and b"anthropic-version: 2023-06-01" in head


async def test_the_line_about_the_client_is_counted_at_anthropic_alone() -> None:
    line = "x-anthropic-billing-header: cc_version=2.1.0; cch=1;\n"
    counter = Counter()
    async with served(counter) as provider:
        for kind in ("vllm", "anthropic"):
            await counted(provider, body={**BODY, "system": line + "Be short."}, kind=kind)
        (_, _, engine), (_, _, own) = counter.asked
    assert "Be short." in str(engine) and "billing" not in str(engine)
    assert own["system"] == line + "Be short."


async def test_forms_of_bodies() -> None:
    counter = Counter()
    async with served(counter) as provider:
        for given in ({"kind": "google"}, {"kind": "vertex", **VERTEX},
                      {"kind": "bedrock", "region": "a-1"}):  # fmt: skip
            await counted(provider, **given)
        (_, _, gemini), (_, _, vertex), (_, _, bedrock) = counter.asked
    assert gemini["generateContentRequest"]["model"] == "models/x-1"
    assert set(vertex) == {"contents", "systemInstruction", "tools"}
    assert set(bedrock["input"]["converse"]) == {"messages", "system", "toolConfig"}


@pytest.mark.parametrize("kind", ["groq", "cohere", "mistral"])
async def test_who_cannot_count_is_not_asked(kind: str) -> None:
    async with served(Counter()) as provider:
        told = await counted(provider, kind=kind)
        assert not provider.requests
    assert told.headers["x-headrace-count"] == "estimate"
    assert told.json["input_tokens"] > 10 and "x-headrace-provider" not in told.headers


@pytest.mark.parametrize("way", ["500", "404", "damaged", "cut", "ignored", "gone"])
async def test_a_failure_is_an_estimate(way: str) -> None:
    async def fails(_n: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        if way == "cut":
            writer.close()
        elif way == "damaged":
            writer.write(reply(200, {"input_tokens": "many", "count": None}))
        elif way == "ignored":
            writer.write(reply(200, {"count": 3}, "x-ignored-params: tools"))
        else:
            writer.write(reply(int(way), {"error": "no"}))

    async with served(fails) as provider:
        if way != "gone":
            told = await counted(provider, kind="vllm" if way == "ignored" else "anthropic")
    if way == "gone":
        told = await counted(provider, kind="anthropic")
    assert told.status == 200 and told.headers["x-headrace-count"] == "estimate"
    assert told.json["input_tokens"] > 10


async def test_nobody_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.gateway.serving.count._MOST_S", 0.05)
    gone = asyncio.Event()

    async def hangs(_n: int, _request: bytes, _writer: asyncio.StreamWriter) -> None:
        await gone.wait()

    async with served(hangs) as provider:
        told = await counted(provider, kind="anthropic")
        gone.set()
    assert told.headers["x-headrace-count"] == "estimate"


async def test_the_responses_form() -> None:
    body = {"model": "m", "instructions": "Be short.", "input": "Weather?", "x_new": 1}
    async with served(Counter()) as provider:
        told = await counted(provider, RESPONSES, body, kind="openai")
        assert told.json == {"object": "response.input_tokens", "input_tokens": 42}
        sent = json.loads(provider.requests[0].partition(b"\r\n\r\n")[2])
        assert sent == {**body, "model": "x-1"}
        told = await counted(provider, "/api/v1/responses/input_tokens", body, kind="groq")
    assert told.headers["x-headrace-count"] == "estimate"


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "not valid JSON"),
        ({"messages": []}, 400, "model"),
        ({**BODY, "model": "mm"}, 404, "is not served here"),
        ({**BODY, "messages": 7}, 400, "messages"),
    ],
)
async def test_bad_requests(body: Any, status: int, says: str) -> None:
    async with served(Counter()) as provider:
        told = await counted(provider, body=body, kind="anthropic")
        assert not provider.requests
    assert told.status == status and says in told.json["error"]["message"]
    assert told.json["type"] == "error"


async def test_it_counts_as_a_request_and_as_nothing_else() -> None:
    limits = Limits(rpm=2, tpm=1)
    accounts = accounts_of(hierarchy(key=Terms(limits=(limits,))))
    await accounts.start()
    async with served(Counter()) as provider:
        built = gateway(settings(provider, kind="anthropic"), [], accounts=accounts)
        assert (await ask(built.app, BODY, path=MESSAGES)).status == 401
        headers = {"x-api-key": KEY}
        told = [await ask(built.app, BODY, path=MESSAGES, headers=headers) for _ in range(3)]
        built.close()
        assert len(provider.requests) == 2
    assert [one.status for one in told] == [200, 200, 429]
    assert "2 requests" in told[2].json["error"]["message"]


async def test_the_packages_of_anthropic_and_openai() -> None:
    async with served(Counter()) as provider:
        given = settings(provider, kind="anthropic")["providers"]
        async with listening(providers=given) as gate:
            claude = anthropic.AsyncAnthropic(base_url=gate.url, api_key="none")
            count = await claude.messages.count_tokens(
                model="chat", messages=[{"role": "user", "content": "Hi"}]
            )
            assert count.input_tokens == 42
            gpt = openai.AsyncOpenAI(base_url=f"{gate.url}/v1", api_key="none")
            found = await gpt.responses.input_tokens.count(model="chat", input="Hi")
            assert found.input_tokens == 42
            await claude.close()
            await gpt.close()
