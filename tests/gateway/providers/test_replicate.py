"""Replicate's predictions through a whole gateway: made, then streamed or asked for again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.building.gateway import Gateway
from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import END, STREAM_HEAD, answers, framed, reply
from tests.gateway.upstream.scripted import Scripted, served

ID = "2knutntbosoct6233zaqaieafa"
CHAT = {"model": "llama", "messages": [{"role": "user", "content": "Hi"}]}
PRICE = {"input": 1.0, "output": 2.0}
TOKENS = {"input_token_count": 12, "output_token_count": 3, "predict_time": 0.5}
CREATE = "POST /v1/models/meta/llama/predictions"
GET = f"GET /v1/predictions/{ID}"
CANCEL = f"POST /v1/predictions/{ID}/cancel"


def prediction(status: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": ID, "model": "meta/llama", "status": status, "output": None, "error": None,
        "created_at": "2024-02-12T16:45:41.730471035Z", "metrics": {}, "urls": {}, **fields,
    }  # fmt: skip


SUCCEEDED = prediction("succeeded", output=["Hello", " there"], metrics=TOKENS)


class Replicate:
    """Answers each kind of request from its own list; the last of a list again and again."""

    def __init__(self, **scripts: list[Any]) -> None:
        self.scripts = scripts
        self.lines: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.gone = asyncio.Event()

    async def __call__(self, _n: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        method, path = request.decode("latin-1").split(" ")[:2]
        self.lines.append(f"{method} {path}")
        assert b"\r\nauthorization: Bearer r8-key\r\n" in request
        if path.startswith("/stream"):
            await self._stream(writer)
            return
        if path.endswith("/cancel"):
            writer.write(reply(200, prediction("canceled")))
            return
        kind = "create" if method == "POST" else "get"
        await self.gate.wait()
        script = self.scripts[kind]
        told = script.pop(0) if len(script) > 1 else script[0]
        status = 201 if kind == "create" else 200
        writer.write(reply(*told) if isinstance(told, tuple) else reply(status, told))

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for piece in self.scripts["stream"]:
            if isinstance(piece, float):
                await asyncio.sleep(piece)
                continue
            if piece is None:  # nothing more comes
                await self.gone.wait()
                return
            writer.write(framed(piece))
            await writer.drain()
        writer.write(END)


def event(kind: str, data: str) -> bytes:
    return f"event: {kind}\nid: 1\ndata: {data}\n\n".encode()


def gate_of(
    provider: Scripted, entries: list[Entry], *, price: bool = True, **more: Any
) -> Gateway:
    target = {"model": "replicate/meta/llama", **({"price": PRICE} if price else {})}
    return gateway(
        {
            "providers": {"replicate": {"base_url": f"{provider.origin}/v1", "api_key": "r8-key"}},
            "models": {"llama": {"targets": [target]}},
            "retries": {"attempts": 2, "same_target": 1},
            **more,
        },
        entries,
    )


def without_waits(built: Gateway) -> list[float]:
    """Pauses between requests are noted and not made."""
    pauses: list[float] = []

    async def sleep(for_s: float) -> None:
        pauses.append(for_s)
        await asyncio.sleep(0)

    in_steps = built.providers["replicate"].in_steps
    assert in_steps is not None
    in_steps.sleep = sleep
    return pauses


async def errands(built: Gateway) -> None:
    """Until what outlives requests is done."""
    in_steps = built.providers["replicate"].in_steps
    assert in_steps is not None
    async with asyncio.timeout(5):
        while in_steps.errands:
            await asyncio.sleep(0.005)


async def test_an_answer_that_is_there_at_once() -> None:
    entries: list[Entry] = []
    script = Replicate(create=[SUCCEEDED])
    async with served(script) as provider:
        built = gate_of(provider, entries)
        told = await ask(built.app, CHAT)
        built.close()
        head = provider.requests[0].lower()
    assert told.json["choices"][0]["message"]["content"] == "Hello there"
    assert told.json["usage"]["total_tokens"] == 15
    assert script.lines == [CREATE] and b"\r\nprefer: wait\r\n" in head
    assert entries[0].cost_nusd == 18_000 and entries[0].usage_from == "provider"


async def test_it_is_asked_for_with_growing_waits() -> None:
    entries: list[Entry] = []
    running = prediction("processing")
    script = Replicate(
        create=[prediction("starting")], get=[running, running, (503, {}), running, SUCCEEDED]
    )
    async with served(script) as provider:
        built = gate_of(provider, entries)
        pauses = without_waits(built)
        told = await ask(built.app, CHAT)
        built.close()
    assert told.status == 200 and told.json["id"] == ID
    assert script.lines == [CREATE] + [GET] * 5
    assert pauses == sorted(pauses) and pauses[0] >= 0.25 and pauses[-1] > pauses[0]
    assert entries[0].attempts[0].failure is None and len(entries[0].attempts) == 1


async def test_a_stream_and_its_usage() -> None:
    entries: list[Entry] = []
    script = Replicate(create=[], get=[SUCCEEDED], stream=[
        event("output", "Hello"), event("output", " there"), event("done", "{}"),
    ])  # fmt: skip
    async with served(script) as provider:
        script.scripts["create"] = [
            prediction("starting", urls={"stream": f"{provider.origin}/stream/abc?x=1"})
        ]
        built = gate_of(provider, entries)
        without_waits(built)
        told = await ask(built.app, {**CHAT, "stream": True})
        built.close()
    assert script.lines == [CREATE, "GET /stream/abc?x=1", GET]
    chunks = [json.loads(one[6:]) for one in told.body.split(b"\n\n") if one[6:7] == b"{"]
    text = "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks)
    assert text == "Hello there" and told.body.endswith(b"data: [DONE]\n\n")
    assert entries[0].cost_nusd == 18_000 and entries[0].outcome == "answered"


async def test_time_alone_is_no_price() -> None:
    """A model that counts no tokens is billed by the second, which nobody here knows."""
    entries: list[Entry] = []
    told = {**SUCCEEDED, "metrics": {"predict_time": 2.5}}
    async with served(Replicate(create=[told])) as provider:
        built = gate_of(provider, entries, price=False)
        assert (await ask(built.app, CHAT)).status == 200
        built.close()
    assert entries[0].cost_nusd is None and entries[0].usage_from == "estimated"


@pytest.mark.parametrize(
    ("told", "kind", "status"),
    [
        (prediction("failed", error="CUDA out of memory"), "server", 502),
        (prediction("canceled"), "server", 502),
        (prediction("failed", error="NSFW content detected"), "content_policy", 400),
        ((402, {"title": "Insufficient credit", "status": 402, "detail": "x"}), "payment", 502),
        ((429, {"detail": "Request was throttled."}), "rate_limit", 429),
    ],
)
async def test_failures_are_told_apart(told: Any, kind: str, status: int) -> None:
    entries: list[Entry] = []
    async with served(Replicate(create=[told])) as provider:
        built = gate_of(provider, entries)
        answer = await ask(built.app, CHAT)
        built.close()
    assert answer.status == status
    assert entries[0].attempts[0].failure == kind and entries[0].cost_nusd is None


async def test_a_failed_one_is_another_targets_turn() -> None:
    entries: list[Entry] = []
    script = Replicate(create=[prediction("starting")], get=[prediction("failed", error="boom")])
    async with served(script) as provider, served(answers("of another")) as other:
        given = {
            "base_url": f"{provider.origin}/v1", "api_key": "r8-key",
        }  # fmt: skip
        built = gate_of(
            provider, entries,
            providers={"replicate": given, "b": f"{other.origin}/v1"},
            models={"llama": {"strategy": "ordered", "targets": ["replicate/meta/llama", "b/m"]}},
        )  # fmt: skip
        without_waits(built)
        told = await ask(built.app, CHAT)
        await errands(built)
        built.close()
    assert told.json["choices"][0]["message"]["content"] == "of another"
    assert script.lines == [CREATE, GET], "what has failed needs no cancelling"


async def test_a_client_that_goes_while_it_runs_cancels_it() -> None:
    entries: list[Entry] = []
    script = Replicate(create=[], get=[SUCCEEDED], stream=[event("output", "Hello there"), None])
    async with served(script) as provider:
        script.scripts["create"] = [
            prediction("starting", urls={"stream": f"{provider.origin}/stream/abc"})
        ]
        built = gate_of(provider, entries)
        await ask(built.app, {**CHAT, "stream": True}, goes_after=1)
        await errands(built)
        script.gone.set()
        built.close()
    assert script.lines == [CREATE, "GET /stream/abc", CANCEL]
    (entry,) = entries
    assert entry.outcome == "client_gone" and entry.usage_from == "estimated"
    assert entry.usage is not None and entry.usage.output_tokens > 0


async def test_a_client_that_goes_before_it_is_made_cancels_it_too() -> None:
    entries: list[Entry] = []
    script = Replicate(create=[prediction("starting")], get=[SUCCEEDED])
    script.gate.clear()
    async with served(script) as provider:
        built = gate_of(provider, entries)
        await ask(built.app, CHAT, goes_when=lambda: script.lines == [CREATE])
        assert script.lines == [CREATE] and entries[0].outcome == "client_gone"
        script.gate.set()
        await errands(built)
        built.close()
    assert script.lines == [CREATE, CANCEL]


async def test_one_that_takes_too_long_is_cancelled() -> None:
    entries: list[Entry] = []
    script = Replicate(create=[prediction("starting")], get=[prediction("processing")])
    async with served(script) as provider:
        built = gate_of(
            provider, entries, timeouts={"first_token_s": 0.15}, retries={"attempts": 1}
        )
        in_steps = built.providers["replicate"].in_steps
        assert in_steps is not None
        in_steps.sleep = lambda for_s: asyncio.sleep(0.03)
        told = await ask(built.app, CHAT)
        await errands(built)
        built.close()
    assert told.status == 504
    assert script.lines[-1] == CANCEL and 2 < len(script.lines) < 12


@pytest.mark.parametrize(("silent", "outcome"), [(0, "answered"), (1, "cut")])
async def test_a_stream_may_be_silent_before_its_first_words(silent: int, outcome: str) -> None:
    entries: list[Entry] = []
    pieces: list[Any] = [event("output", "Hello"), event("done", "{}")]
    script = Replicate(create=[], get=[SUCCEEDED], stream=pieces)
    pieces.insert(silent, 0.3)
    async with served(script) as provider:
        script.scripts["create"] = [
            prediction("starting", urls={"stream": f"{provider.origin}/stream/abc"})
        ]
        built = gate_of(provider, entries, timeouts={"first_token_s": 9, "idle_s": 0.05})
        told = await ask(built.app, {**CHAT, "stream": True})
        await errands(built)
        built.close()
    assert told.status == 200 and b"Hello" in told.body
    assert entries[0].outcome == outcome and script.lines.count(CREATE) == 1


async def test_a_key_that_replicate_repeats_is_shown_to_nobody() -> None:
    entries: list[Entry] = []
    told = (401, {"title": "Unauthenticated", "detail": "no such key: Bearer r8-key"})
    async with served(Replicate(create=[told])) as provider:
        built = gate_of(provider, entries)
        answer = await ask(built.app, CHAT)
        built.close()
    assert answer.status == 502 and b"r8-key" not in answer.body
    assert "r8-key" not in repr(entries)


async def test_nor_one_that_it_repeats_in_the_middle_of_a_stream() -> None:
    entries: list[Entry] = []
    failed = prediction("failed", error="no such key: Bearer r8-key")
    script = Replicate(create=[], get=[failed], stream=[
        event("output", "Hello"), event("error", "Bearer r8-key is gone"), event("done", "{}"),
    ])  # fmt: skip
    async with served(script) as provider:
        script.scripts["create"] = [
            prediction("starting", urls={"stream": f"{provider.origin}/stream/abc"})
        ]
        built = gate_of(provider, entries)
        without_waits(built)
        told = await ask(built.app, {**CHAT, "stream": True})
        built.close()
    assert b"Hello" in told.body and b"[secret]" in told.body and b"r8-key" not in told.body
    assert "r8-key" not in repr(entries) and entries[0].outcome == "cut"
