"""A model that chooses another one by how hard a request is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers, completion, fails, reply
from tests.gateway.serving.composed.models import (
    COST_NUSD,
    asked,
    late,
    model_of,
    says,
    settings,
)
from tests.gateway.upstream.scripted import served

RULES = {"choose": {"by": "rules", "default": "small", "rules": [
    {"if": {"tools": True}, "use": "medium"},
    {"if": {"matches": "(?i)prove"}, "use": "strong"},
]}}  # fmt: skip
BY_MODEL = {"choose": {"by": "model", "default": "small", "model": {
    "ask": "judge", "classes": {"simple": "small", "hard": "strong"}, "timeout_ms": 60,
}}}  # fmt: skip
ANY = says(small="s", medium="m", strong="t", judge="hard")


def chat(*turns: str, **more: Any) -> dict[str, Any]:
    """User and assistant in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": one} for at, one in enumerate(turns)]
    return {"model": "auto", "messages": messages, **more}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat"])
async def test_rules_choose_in_any_dialect(path: str) -> None:
    entries: list[Entry] = []
    async with served(ANY) as provider:
        built = gateway(settings(provider.origin, {"auto": RULES}), entries)
        plain = await ask(built.app, chat("Hi", max_tokens=9), path=path)
        hard = await ask(built.app, chat("Please prove it", max_tokens=9), path=path)
        assert (plain.status, hard.status) == (200, 200)
        assert asked(provider.requests, model_of) == ["small", "strong"]
        assert hard.headers["x-headrace-model"] == "strong"
        assert hard.headers["x-headrace-route"] == "rule 2 (matches)"
    assert [(one.model, one.target) for one in entries] == [
        ("auto", "a/small"), ("auto", "a/strong"),
    ]  # fmt: skip


async def test_length_takes_the_longest_step_passed() -> None:
    steps = [{"tokens_over": 500, "use": "strong"}, {"tokens_over": 50, "use": "medium"}]
    choose = {"choose": {"by": "length", "default": "small", "length": steps, "per_turn": True}}
    async with served(ANY) as provider:
        built = gateway(settings(provider.origin, {"auto": choose}), [])
        for words in (1, 60, 600):
            await ask(built.app, chat("word " * words))
        assert asked(provider.requests, model_of) == ["small", "medium", "strong"]


async def test_a_conversation_that_got_a_harder_model_keeps_it() -> None:
    turns = ("Prove it", "Here: ...", "Thanks")
    async with served(ANY) as provider:
        built = gateway(settings(provider.origin, {"auto": RULES}), [])
        await ask(built.app, chat(*turns[:1]))
        again = await ask(built.app, chat(*turns))
        assert again.headers["x-headrace-route"] == "as before in this conversation"
        await ask(built.app, chat("Thanks"))
        session = {"x-session-id": "s1"}
        await ask(built.app, chat("Prove it"), headers=session)
        await ask(built.app, chat("And now?"), headers=session)
        assert asked(provider.requests, model_of) == [
            "strong", "strong", "small", "strong", "strong",
        ]  # fmt: skip


async def test_per_turn_chooses_anew() -> None:
    choose = {"choose": {**RULES["choose"], "per_turn": True}}
    async with served(ANY) as provider:
        built = gateway(settings(provider.origin, {"auto": choose}), [])
        await ask(built.app, chat("Prove it"))
        await ask(built.app, chat("Prove it", "Here: ...", "Thanks"))
        assert asked(provider.requests, model_of) == ["strong", "small"]


async def test_a_router_model_is_asked_once_for_a_conversation_and_billed() -> None:
    entries: list[Entry] = []
    async with served(ANY) as provider:
        built = gateway(settings(provider.origin, {"auto": BY_MODEL}), entries)
        first = await ask(built.app, chat("Derive the formula"))
        await ask(built.app, chat("Derive the formula", "Here: ...", "Thanks"))
        assert first.headers["x-headrace-route"] == "complexity=hard"
        assert asked(provider.requests, model_of) == ["judge", "strong", "strong"]
        question = provider.requests[0].decode()
        assert "simple, hard" in question and "Derive the formula" in question
    assert [(one.purpose, one.target, one.cost_nusd) for one in entries] == [
        ("", "a/strong", COST_NUSD["strong"]),
        ("router", "a/judge", COST_NUSD["judge"]),
        ("", "a/strong", COST_NUSD["strong"]),
    ]


async def test_a_router_models_logprobs_say_how_sure_it_is() -> None:
    async def router(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        told = completion("hard", "judge")
        told["choices"][0]["logprobs"] = {"content": [{
            "token": "hard", "logprob": -0.2, "bytes": None, "top_logprobs": [
                {"token": "hard", "logprob": -0.2, "bytes": None},
                {"token": " simple", "logprob": -2.0, "bytes": None},
                {"token": "easy", "logprob": -3.0, "bytes": None},
            ],
        }]}  # fmt: skip
        writer.write(reply(200, told))

    async with served(says(strong="t", judge=router)) as provider:
        built = gateway(settings(provider.origin, {"auto": BY_MODEL}), [])
        told = await ask(built.app, chat("Hello"))
        assert told.headers["x-headrace-route"] == "complexity=hard (0.86)"


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        (late(1.0, fails(500)), "router: no answer in 60 ms"),
        (fails(500), "router: no answer"),
        (answers("I would say medium"), "router: named no class"),
    ],
)
async def test_a_router_model_without_an_answer_leaves_it_to_on_error(
    judge: Any, said: str
) -> None:
    async with served(says(small="s", judge=judge)) as provider:
        built = gateway(settings(provider.origin, {"auto": BY_MODEL}), [])
        told = await ask(built.app, chat("Hello"))
        assert (told.status, told.headers["x-headrace-route"]) == (200, said)


async def test_a_chosen_models_own_fallbacks_are_followed() -> None:
    models = {"auto": RULES}
    async with served(says(small=fails(500), medium="m")) as provider:
        config = settings(provider.origin, models)
        config["models"]["small"]["fallbacks"] = ["medium"]
        config["retries"]["attempts"] = 3
        built = gateway(config, [])
        told = await ask(built.app, chat("Hi"))
        assert told.headers["x-headrace-model"] == "medium"


async def test_a_choice_may_be_a_cascade_and_a_fallback_a_choice() -> None:
    entries: list[Entry] = []
    models = {
        "auto": RULES,
        "careful": {"cascade": {"stages": ["small", "strong"], "accept": {"by": "rules"}}},
        "top": {"choose": {**RULES["choose"], "default": "careful"}},
    }
    async with served(says(small="I don't know.", strong="t", judge=fails(500))) as provider:
        retries = {"attempts": 3, "backoff_s": 0.01, "same_target": 1}
        built = gateway(settings(provider.origin, models, retries=retries), entries)
        told = await ask(built.app, {**chat("Hi"), "model": "top"})
        assert told.headers["x-headrace-route"] == "no rule matched; small: a refusal"
        assert told.headers["x-headrace-model"] == "strong"
        assert [one.purpose for one in entries] == ["", "stage"]
        other = await ask(built.app, {**chat("Hi"), "model": "judge", "models": ["auto"]})
        assert (other.status, other.headers["x-headrace-model"]) == (200, "small")


async def test_a_body_that_cannot_be_read_here_goes_to_otherwise() -> None:
    async with served(ANY) as provider:
        built = gateway(settings(provider.origin, {"auto": RULES}), [])
        told = await ask(built.app, chat("prove", n="seven"))
        assert told.headers["x-headrace-route"] == "the request cannot be read"
        assert told.headers["x-headrace-model"] == "small"
