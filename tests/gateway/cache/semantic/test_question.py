"""Which part of a request is compared by its meaning, and what must be equal beside it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.gateway.cache.key import Around
from headrace.gateway.cache.semantic.question import (
    Question,
    is_reordered,
    may_be_same,
    question_of,
    wording_of,
)
from headrace.gateway.settings.cache import SemanticSettings

SETTINGS = SemanticSettings(embedding_model="e/m", min_chars=5, max_chars=40)
AROUND = Around(("key", "k"), "", "openai-chat", (("chat", "a/m"),), (), ())
TEXT = "How do I get a refund?"


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def question(around: Around = AROUND, **fields: Any) -> Question | None:
    return question_of({"model": "chat", **fields}, around, SETTINGS)


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [user(TEXT)]},
        {"messages": [{"role": "system", "content": "Be kind."}, user(TEXT)]},
        {"messages": [user([{"type": "text", "text": TEXT}])]},
        {"input": TEXT},
        {"input": [user([{"type": "input_text", "text": TEXT}])]},
        {"input": [user(TEXT)], "instructions": "Be kind."},
    ],
)
def test_the_last_text_of_the_user_is_the_question(fields: dict[str, Any]) -> None:
    found = question(**fields)
    assert found is not None and found.text == TEXT


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"messages": []},
        {"messages": "x" * 20},
        {"messages": [user("Hi")]},
        {"messages": [user("x" * 41)]},
        {"messages": [user("    Hi      ")]},
        {"messages": [user(TEXT), {"role": "assistant", "content": TEXT}]},
        {"messages": [user(TEXT), {"role": "tool", "content": TEXT, "tool_call_id": "1"}]},
        {"messages": [user(TEXT, images=["aGk="])]},
        {"messages": [user([{"type": "image_url", "image_url": {"url": "x"}}])]},
        {"messages": [user([{"type": "text", "text": TEXT}, {"type": "text", "text": TEXT}])]},
        {"messages": [user([{"type": "text", "text": 5}])]},
        {"messages": [TEXT]},
        {"messages": [user(None)]},
        {"input": [{"type": "function_call_output", "output": TEXT}]},
    ],
)
def test_what_is_no_question(fields: dict[str, Any]) -> None:
    assert question(**fields) is None


BASE: dict[str, Any] = {
    "messages": [{"role": "system", "content": "Be kind."}, user(TEXT)],
    "temperature": 0,
}
OTHER_TEXT = [{"role": "system", "content": "Be kind."}, user("Where is my money back?")]


def test_another_wording_lies_in_the_same_bucket_and_any_other_change_does_not() -> None:
    one = question(**BASE)
    assert one is not None
    other = question(**{**BASE, "messages": OTHER_TEXT})
    assert other is not None and (other.bucket, other.tenant) == (one.bucket, one.tenant)
    streamed = question(**BASE, stream=True, user="ann", metadata={"a": "b"})
    assert streamed == one
    turns = BASE["messages"]
    changes: list[dict[str, Any]] = [
        {"temperature": 1},
        {"model": "own"},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"messages": [{"role": "system", "content": "Be rude."}, user(TEXT)]},
        {"messages": [*turns[:1], user("Hello"), {"role": "assistant", "content": "Hi"}, turns[1]]},
        {"messages": [*turns[:1], user(TEXT, name="ann")]},
        {"messages": [*turns[:1], user("How do I get 2 refunds?")]},
        {"messages": [*turns[:1], user("How do I get no refund?")]},
        {"max_tokens": 5},
        {"x_unknown": True},
    ]
    buckets = {one.bucket}
    for change in changes:
        changed = question(**{**BASE, **change})
        assert changed is not None
        buckets.add(changed.bucket)
    others = [
        AROUND._replace(tenant=("key", "l")),
        AROUND._replace(namespace="eval"),
        AROUND._replace(routes=(("chat", "b/m"),)),
        AROUND._replace(rules=(("eu",), True)),
    ]
    for around in others:
        changed = question(around, **BASE)
        assert changed is not None
        buckets.add(changed.bucket)
    assert len(buckets) == 1 + len(changes) + len(others)
    stranger = question(others[0], **BASE)
    assert stranger is not None and stranger.tenant != one.tenant


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("How do I pay?", "What is the way to pay?", True),
        ("How do I pay?", "how do i PAY", True),
        ("Take 5 mg", "Take 50 mg", False),
        ("In 1.5 hours", "In 15 hours", False),
        ("From 2 to 3", "From 3 to 2", False),
        ("You may enter", "You may not enter", False),
        ("You can't enter", "You cannot enter", True),
        ("Is it toxic?", "Is it non-toxic?", False),
        ("Mit Zucker", "Ohne Zucker", False),
        ("From A to B", "From B to A", False),
        ("Pay, then go!", "pay then go", True),
    ],
)
def test_numbers_negations_and_order_are_compared_as_they_are(
    one: str, other: str, expected: bool
) -> None:
    assert may_be_same(one, other) is expected
    assert may_be_same(other, one) is expected


def test_a_wording_is_two_digests() -> None:
    assert len(wording_of(TEXT)) == 32 and not is_reordered(wording_of(TEXT), wording_of(TEXT))
