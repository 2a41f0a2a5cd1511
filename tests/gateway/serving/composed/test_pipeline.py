"""A fast model drafts, a slow one answers where that is not enough."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers, fails
from tests.gateway.serving.composed.models import COST_NUSD, asked, late, model_of, says, settings
from tests.gateway.upstream.scripted import served

CHAT = {"model": "auto", "messages": [{"role": "user", "content": "What is 2+2?"}]}
REFUSED = "I don't know."


def pipeline(**more: Any) -> dict[str, Any]:
    return {"auto": {"pipeline": {
        "draft": "small", "final": "strong", "decide": {"by": "rules"}, **more,
    }}}  # fmt: skip


def lines(entries: list[Entry]) -> list[tuple[str, str | None, str, str]]:
    return [(one.purpose, one.target, one.outcome, one.usage_from) for one in entries]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/chat/completions", {}, "messages"),
        ("/v1/chat/completions", {"messages": [
            {"role": "system", "content": "Be short."}, *CHAT["messages"],
        ]}, "messages"),
        ("/v1/messages", {"max_tokens": 9, "system": "Be short."}, "messages"),
        ("/v1/responses", {"input": "What is 2+2?", "messages": None}, "messages"),
    ],
)  # fmt: skip
async def test_the_draft_is_a_note_to_the_slow_model(
    path: str, body: dict[str, Any], field: str
) -> None:
    entries: list[Entry] = []
    asked_for = {name: one for name, one in {**CHAT, **body}.items() if one}
    async with served(says(small=REFUSED, strong="Four.")) as provider:
        built = gateway(settings(provider.origin, pipeline(give={"draft": True})), entries)
        told = await ask(built.app, asked_for, path=path)
        assert told.status == 200 and b"Four." in told.body, told.body
        sent = json.loads(provider.requests[1].partition(b"\r\n\r\n")[2])
        system = [one for one in sent[field] if one["role"] in ("system", "developer")]
        assert len(system) == 1 and REFUSED in str(system[0]["content"])
        assert ("Be short." in str(body)) == ("Be short." in str(system[0]["content"]))
    assert [one[:2] for one in lines(entries)] == [("", "a/strong"), ("stage", "a/small")]


async def test_without_give_the_slow_model_is_asked_as_the_client_asked() -> None:
    async with served(says(small=REFUSED, strong="Four.")) as provider:
        built = gateway(settings(provider.origin, pipeline()), [])
        await ask(built.app, CHAT)
        sent = json.loads(provider.requests[1].partition(b"\r\n\r\n")[2])
        assert sent == {**CHAT, "model": "strong"}


async def test_a_speculative_one_that_is_not_needed_is_cut_and_its_prompt_billed() -> None:
    entries: list[Entry] = []
    cut = asyncio.Event()

    async def slow(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        while not writer.transport.is_closing():
            await asyncio.sleep(0.005)
        cut.set()

    draft = late(0.03, answers("Four."))
    async with served(says(small=draft, strong=slow)) as provider:
        built = gateway(settings(provider.origin, pipeline(speculative=True)), entries)
        told = await ask(built.app, CHAT)
        assert told.json["choices"][0]["message"]["content"].strip() == "Four."
        assert sorted(asked(provider.requests, model_of)) == ["small", "strong"]
    assert lines(entries) == [
        ("", "a/small", "answered", "provider"), ("stage", "a/strong", "cut", "estimated"),
    ]  # fmt: skip
    assert entries[1].usage is not None and entries[1].usage.input_tokens > 8
    assert entries[1].usage.output_tokens == 0
    assert all(one.targets[0].health.in_flight == 0 for one in built.router.routes.values())


async def test_a_speculative_stream_that_has_begun_is_billed_for_what_came() -> None:
    entries: list[Entry] = []
    async with served(says(small=late(0.08, answers("Four.")), strong="It is four.")) as provider:
        built = gateway(settings(provider.origin, pipeline(speculative=True)), entries)
        told = await ask(built.app, {**CHAT, "stream": True})
        assert b"Four." in told.body and b"It is" not in told.body
    assert [one[:2] for one in lines(entries)] == [("", "a/small"), ("stage", "a/strong")]
    assert entries[1].cost_nusd is not None and entries[1].cost_nusd > 0


async def test_a_speculative_one_answers_where_the_draft_is_no_good() -> None:
    entries: list[Entry] = []
    async with served(says(small=REFUSED, strong=late(0.05, answers("It is four.")))) as provider:
        built = gateway(settings(provider.origin, pipeline(speculative=True)), entries)
        told = await ask(built.app, {**CHAT, "stream": True})
        assert b"four." in told.body and b"know" not in told.body
    assert lines(entries)[0][:3] == ("", "a/strong", "answered")
    assert [one.cost_nusd for one in entries] == [COST_NUSD["strong"], COST_NUSD["small"]]


async def test_a_speculative_one_that_fails_is_not_missed_where_the_draft_is_good() -> None:
    entries: list[Entry] = []
    async with served(says(small=late(0.03, answers("Four.")), strong=fails(500))) as provider:
        built = gateway(settings(provider.origin, pipeline(speculative=True)), entries)
        assert (await ask(built.app, CHAT)).status == 200
    assert [one.target for one in entries] == ["a/small"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_ends_both(stream: bool) -> None:
    entries: list[Entry] = []
    async with served(
        says(small=late(5.0, answers()), strong=late(0.01, answers("It is four.")))
    ) as provider:
        built = gateway(settings(provider.origin, pipeline(speculative=True)), entries)
        await ask(
            built.app, {**CHAT, "stream": stream}, goes_when=lambda: len(provider.requests) == 2
        )
    assert entries[0].outcome == "client_gone"
    assert [one[:2] for one in lines(entries)[1:]] == [
        ("stage", "a/small"), ("stage", "a/strong"),
    ]  # fmt: skip
    assert all(one.targets[0].health.in_flight == 0 for one in built.router.routes.values())
