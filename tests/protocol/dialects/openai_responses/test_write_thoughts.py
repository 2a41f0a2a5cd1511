"""Reasoning that is asked for, and thoughts that are given back to who signed them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.protocol.dialects.openai_responses import PROVIDER, OpenAIResponsesProvider
from headrace.protocol.neutral.call import (
    Reasoning,
)
from headrace.protocol.neutral.part import (
    Signature,
    Text,
    Thinking,
)
from tests.protocol.dialects.openai_responses.samples import foreign, read, said, written
from tests.protocol.dialects.openai_responses.test_write_call import OPENAI


@pytest.mark.parametrize(
    ("reasoning", "expected"),
    [
        (Reasoning(effort="none"), {"effort": "none"}),
        (Reasoning(budget_tokens=0), {"effort": "none"}),
        (Reasoning(effort="high", shown=False), {"effort": "high"}),
        (Reasoning(effort="high", summary="detailed"), {"effort": "high", "summary": "detailed"}),
        (Reasoning(shown=True), {"summary": "auto"}),
    ],
)
def test_reasoning(reasoning: Reasoning, expected: dict[str, Any]) -> None:
    assert written(foreign(reasoning=reasoning))["reasoning"] == expected


@pytest.mark.parametrize(
    ("reasoning", "asked"),
    [
        (None, False),
        (Reasoning(), False),
        (Reasoning(effort="none"), False),
        (Reasoning(budget_tokens=0), False),
        (Reasoning(effort="low"), True),
        (Reasoning(budget_tokens=1024), True),
    ],
)
def test_encrypted_thoughts_are_asked_for_where_others_want_reasoning(
    reasoning: Reasoning | None, asked: bool
) -> None:
    body = written(foreign(reasoning=reasoning))
    assert body.get("include") == (["reasoning.encrypted_content"] if asked else None)


def test_a_client_of_this_dialect_asks_for_encrypted_thoughts_itself() -> None:
    assert "include" not in written(read(reasoning={"effort": "low"}))
    asked = ["reasoning.encrypted_content"]
    assert written(read(include=asked))["include"] == asked


def test_only_thoughts_of_the_provider_are_given_to_it() -> None:
    parts = (
        Thinking(text="a", signature=Signature("anthropic", "x")),
        Thinking(text="b"),
        Thinking(text="", redacted=True, signature=Signature("gemini", "x")),
        Thinking(text="sum", summary=True, id="rs_1"),
        Thinking(text="", redacted=True, signature=OPENAI, id="rs_1"),
        Thinking(text="", redacted=True, signature=OPENAI),
        Text(text="Hi"),
    )
    sent = PROVIDER.write_call(foreign(said(*parts)), "m")
    assert json.loads(sent.body)["input"] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "sum"}],
            "encrypted_content": "gAAA",
        },
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
        {"role": "assistant", "content": "Hi"},
    ]
    assert sent.dropped == ()


def test_a_provider_may_take_thoughts_that_nobody_signed() -> None:
    provider = OpenAIResponsesProvider(takes_unsigned_thoughts=True, origin="deepseek")
    call = foreign(said(Thinking(text="b"), Thinking(text="a", signature=OPENAI), Text(text="x")))
    assert json.loads(provider.write_call(call, "m").body)["input"] == [
        {
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "b"}],
        },
        {"role": "assistant", "content": "x"},
    ]
