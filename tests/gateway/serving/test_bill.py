"""What answers cost by kind of token, service tier, picture and second."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.building.prices import stated_price
from headrace.gateway.serving.bill import cost_nusd, most_nusd, standard_nusd
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.target import PriceSettings
from headrace.protocol.neutral.usage import TokenUsage
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import (
    DONE,
    END,
    STREAM_HEAD,
    USAGE,
    Answer,
    body_of,
    completion,
    framed,
    reply,
)
from tests.gateway.upstream.scripted import served

PLAIN = PriceSettings(input=1, output=2)
USED = TokenUsage(input_tokens=1_000, output_tokens=500)
# Of USED at PLAIN.
STANDARD_NUSD = 2_000_000


@pytest.mark.parametrize(
    ("tier", "nusd"),
    [
        (None, STANDARD_NUSD),
        ("default", STANDARD_NUSD),
        ("auto", STANDARD_NUSD),
        ("standard", STANDARD_NUSD),
        ("on_demand", STANDARD_NUSD),
        ("flex", STANDARD_NUSD // 2),
        ("priority", STANDARD_NUSD * 7 // 4),
        ("batch", None),
        ("scale", None),
    ],
)
def test_service_tiers_have_prices_of_their_own(tier: str | None, nusd: int | None) -> None:
    price = stated_price(PriceSettings(input=1, output=2, flex_factor=0.5, priority_factor=1.75))
    assert cost_nusd(USED, price, tier) == nusd


def test_a_tier_without_a_factor_is_unknown_and_not_standard() -> None:
    assert cost_nusd(USED, stated_price(PLAIN), "flex") is None
    assert cost_nusd(USED, stated_price(PLAIN), "priority") is None
    # What is free is free at all, and what a provider says itself wins.
    assert cost_nusd(USED, stated_price(PriceSettings(input=0, output=0)), "priority") == 0
    assert cost_nusd(TokenUsage(cost_nusd=7), stated_price(PLAIN), "flex") == 7


def test_the_most_of_a_tier_is_held() -> None:
    price = stated_price(PriceSettings(input=1, output=2, priority_factor=1.75))
    assert most_nusd(price, 1_000, 500, "priority") == STANDARD_NUSD * 7 // 4
    assert most_nusd(price, 1_000, 500, "flex") is None


def test_a_tier_that_was_asked_for_and_not_confirmed_costs_no_less_than_the_standard_one() -> None:
    price = stated_price(PriceSettings(input=1, output=2, priority_factor=1.75))
    assert cost_nusd(USED, price, asked_tier="priority") == STANDARD_NUSD * 7 // 4
    assert cost_nusd(USED, price, asked_tier="made up") == STANDARD_NUSD
    assert cost_nusd(USED, price, "made up", asked_tier="priority") is None
    assert standard_nusd(USED, price) == STANDARD_NUSD
    assert standard_nusd(USED, None) == 0


@pytest.mark.parametrize("more", [{"images": 2}, {"input_audio_s": 3}])
def test_pictures_and_seconds_without_a_price_are_unknown_and_never_0(more: dict[str, Any]) -> None:
    used = TokenUsage(input_tokens=1_000, output_tokens=500, **more)
    assert cost_nusd(used, stated_price(PLAIN)) is None
    assert cost_nusd(used, stated_price(PriceSettings(input=0, output=0))) is None
    price = stated_price(PriceSettings(input=1, output=2, image=0.04, input_audio_second=0.0001))
    own = more.get("images", 0) * 40_000_000 + more.get("input_audio_s", 0) * 100_000
    assert cost_nusd(used, price) == STANDARD_NUSD + own


def test_thoughts_and_sound_have_prices_in_the_file() -> None:
    price = stated_price(
        PriceSettings(input=1, output=2, reasoning=3, input_audio=10, output_audio=20)
    )
    used = TokenUsage(reasoning_tokens=100, input_audio_tokens=100, output_audio_tokens=100)
    assert cost_nusd(used, price) == 100 * (3_000 + 10_000 + 20_000)
    assert cost_nusd(used, stated_price(PLAIN)) == 100 * (2_000 + 1_000 + 2_000)


def at_tier(tier: str | None) -> Answer:
    """Whole or streamed; tells the tier that answered, or says nothing of it."""
    said = {} if tier is None else {"service_tier": tier}

    async def answer(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        if not body_of(request).get("stream"):
            writer.write(reply(200, {**completion("Hello"), **said}))
            return
        writer.write(STREAM_HEAD)
        for choices, more in (
            ([{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}], {}),
            ([{"index": 0, "delta": {}, "finish_reason": "stop"}], {}),
            ([], {"usage": USAGE}),
        ):
            value = {
                "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                "choices": choices, **said, **more,
            }  # fmt: skip
            writer.write(framed(b"data: " + json.dumps(value).encode() + b"\n\n"))
        writer.write(framed(DONE) + END)

    return answer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize(
    ("asked", "told", "factor"),
    [
        (None, None, 1),
        ("priority", "priority", 2),
        ("priority", "default", 1),
        ("auto", "priority", 2),
        ("priority", None, 2),
        ("flex", "flex", None),
    ],
)
async def test_what_the_reply_says_is_billed_else_what_was_asked(
    asked: str | None, told: str | None, factor: int | None, path: str, stream: bool
) -> None:
    entries: list[Entry] = []
    price = {"input": 1, "output": 2, "priority_factor": 2}
    body: dict[str, Any] = {"model": "chat", "stream": stream}
    if path == "/v1/responses":
        body["input"] = "Hi"
    else:
        body["messages"] = [{"role": "user", "content": "Hi"}]
    if asked is not None:
        body["service_tier"] = asked
    async with served(at_tier(told)) as provider:
        settings = {
            "providers": {"p": {"base_url": f"{provider.origin}/v1", "kind": "openai",
                                "api_key": ["k"], "responses": False}},
            "models": {"chat": [{"model": "p/m", "price": price}]},
        }  # fmt: skip
        answer = await ask(gateway(settings, entries).app, body, path=path)
    assert answer.status == 200, answer.body
    # 12 tokens read and 3 written.
    assert entries[0].cost_nusd == (None if factor is None else 18_000 * factor)
