"""How many tokens a prompt has for sure: what a vocabulary may have in one token counts as none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.gateway.routing.least_tokens import LeastTokens
from headrace.gateway.routing.query import query_from_body
from headrace.protocol.json_object import JsonObject
from tests.gateway.routing.parts import B, asking, names, route, router, target


def least(body: Any, **more: Any) -> int:
    return LeastTokens(JsonObject.read(json.dumps(body, **more).encode())).count


def turn(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text, **more}]}


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    "body",
    [
        turn((" " * 80 + "\n") * 200),
        turn("\t" * 5000),
        turn("-" * 64_000),
        turn("- " * 32_000),
        turn("\u2500" * 20_000),
        turn("\u00a0 " * 20_000),
        turn("responsibilities\n" * 2000),
        turn("QUJD" * 10_000),
        {"prompt": [12345] * 1000},
        {"prompt": ["a long text " * 100] * 100},
        {"tools": [TOOL | {"strict": True}] * 500},
        {"messages": [{"role": "user", "content": ""}] * 500},
        {"metadata": {f"k{one}": "a word " * 70 for one in range(16)}},
        turn("", reasoning_content="a thought " * 5000),
    ],
)
def test_what_is_not_sure_counts_as_none(body: Any) -> None:
    for more in ({}, {"indent": 12}, {"separators": (",", ":")}, {"ensure_ascii": False}):
        assert least(body, **more) == 0


@pytest.mark.parametrize(
    "body",
    [
        turn("river " * 1001),
        turn("\u0440\u0435\u043a\u0430 " * 1001),
        turn("\uac15 \ubb3c " * 500 + "\uac15 \ubb3c"),
        {"prompt": "river " * 1001},
        {"input": "river " * 1001},
        {"system": "river " * 501, "messages": [{"role": "user", "content": "river " * 501}]},
    ],
)
def test_a_word_behind_a_blank_begins_a_token(body: Any) -> None:
    for more in ({}, {"indent": 12}, {"separators": (",", ":")}):
        assert least(body, ensure_ascii=False, **more) == pytest.approx(1000, abs=1)


def test_a_prompt_that_may_have_room_is_asked_for() -> None:
    one = router(route("m", target("a/m", context_tokens=2048), B, strategy="ordered"))
    for body in (turn((" " * 80 + "\n") * 200), {"prompt": [12345] * 2000}):
        read = JsonObject.read(json.dumps(body, indent=12).encode())
        decision = one.decide(query_from_body(read, "m"), 0.0)
        assert names(decision) == ["b/m", "a/m"] and not decision.left_out


def test_it_is_looked_for_only_where_the_estimate_is_too_long() -> None:
    class Unasked(LeastTokens):
        @property
        def count(self) -> int:
            raise AssertionError("it has room")

    one = router(route("m", target("a/m", context_tokens=1000), B, strategy="ordered"))
    ask = asking(input_tokens=1000, least=Unasked(JsonObject.read(b"{}")))
    assert names(one.decide(ask, 0.0)) == ["a/m", "b/m"]
