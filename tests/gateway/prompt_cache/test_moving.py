"""What moves before the first turn, in each way that applications do it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.gateway.prompt_cache.moving import Difference, difference_of, shared_turns_tokens
from headrace.gateway.prompt_cache.prompt import Prompt, prompt_of, tokens_of

RULES = "Answer in one sentence. Be kind to everybody who asks. " * 20


def prompt(**body: Any) -> Prompt:
    found = prompt_of({"model": "m", **body})
    assert found is not None
    return found


def chat(system: str, *, tools: list[Any] | None = None, turn: str = "Hi") -> Prompt:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": turn}]
    return prompt(messages=messages, **({} if tools is None else {"tools": tools}))


def between(one: str, other: str) -> Difference:
    found = difference_of([chat(one), chat(other)])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("what", "one", "other"),
    [
        ("timestamp", "2026-11-22T15:04:05Z", "2026-11-22T15:04:09Z"),
        ("timestamp", "2026-11-22 15:04:05.123", "2026-11-23 15:04:05.123"),
        ("timestamp", "1790000000", "1790000123"),
        ("timestamp", "November 22, 2026 at 3:04 PM", "November 22, 2026 at 3:05 PM"),
        ("date", "2026-11-22", "2026-11-23"),
        ("date", "22.11.2026", "23.11.2026"),
        ("date", "22 November 2026", "3 December 2026"),
        ("date", "Monday", "Sunday"),
        ("time", "15:04", "15:05"),
        ("uuid", "0b9c8f5e-3d1a-4c52-9e6f-1a2b3c4d5e6f", "7b9c8f5e-3d1a-4c52-9e6f-1a2b3c4d5e6f"),
        ("request id", "req_8f3kd92jfa01", "req_8f3kd92jfb77"),
        ("request id", "deadbeef0123456789", "deadbeef0123456780"),
        ("counter", "17", "18"),
        ("number", "0.25", "0.75"),
        ("name", "for the user Ann", "for the user Ben"),
        ("name", "You are talking to Maria", "You are talking to Jonathan"),
        ("name", "Contact ann@example.com", "Contact ben@example.com"),
        ("text", "Mode green", "Mode yellow"),
    ],
)
def test_what_moves_has_a_name(what: str, one: str, other: str) -> None:
    found = between(f"You help. {one}. {RULES}", f"You help. {other}. {RULES}")
    assert found.what == what
    assert found.one in one and found.other in other and found.one != found.other
    assert found.path == "messages[0].content"
    behind = tokens_of(len(RULES))
    assert behind <= found.behind_tokens <= behind + 12
    assert found.prefix_tokens <= 12


def test_what_moves_at_the_end_leaves_nothing_behind() -> None:
    found = between(RULES + "Now: 15:04", RULES + "Now: 15:05")
    assert found.what == "time" and found.behind_tokens == 0


def test_white_space() -> None:
    assert between("You  help. " + RULES, "You help. " + RULES).what == "white space"


def test_nothing_moves_in_the_turns() -> None:
    assert difference_of([chat(RULES, turn="a"), chat(RULES, turn="b")]) is None
    assert difference_of([chat("a" + RULES)]) is None
    users = [prompt(messages=[{"role": "user", "content": one}]) for one in "ab"]
    assert difference_of(users) is None


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "d" * 200, **more}}


def test_tools_in_another_order() -> None:
    tools = [tool(name) for name in "abcd"]
    found = difference_of([chat(RULES, tools=tools), chat(RULES, tools=tools[::-1])])
    assert found is not None and found.what == "order of tools"
    size = sum(len(json.dumps(one)) for one in tools) + len(RULES)
    assert abs(found.behind_tokens - tokens_of(size)) <= 2
    assert (found.path, found.prefix_tokens) == ("tools[0]", tokens_of(len(_begin(tools))))


def _begin(tools: list[dict[str, Any]]) -> str:
    one, other = json.dumps(tools[0]), json.dumps(tools[-1])
    return one[: next(at for at, each in enumerate(one) if each != other[at])]


def test_keys_of_json_in_another_order() -> None:
    tools = [tool("a"), {"type": "function", "function": {"description": "x", "name": "b"}}]
    other = [tool("a"), {"type": "function", "function": {"name": "b", "description": "x"}}]
    found = difference_of([chat(RULES, tools=tools), chat(RULES, tools=other)])
    assert found is not None
    assert (found.what, found.path) == ("order of JSON keys", "tools[1]")
    assert found.behind_tokens >= tokens_of(len(RULES))


def test_tools_that_come_and_go() -> None:
    found = difference_of(
        [chat(RULES, tools=[tool("a")]), chat(RULES, tools=[tool("a"), tool("b")])]
    )
    assert found is not None and found.what == "tools"


def test_a_date_in_a_tools_description() -> None:
    tools = [[tool("a", note=f"Today is 2026-11-{day}.")] for day in (21, 22)]
    found = difference_of([chat(RULES, tools=one) for one in tools])
    assert found is not None and (found.what, found.path) == ("date", "tools[0]")


def test_turns_that_are_sent_again() -> None:
    turns = ["x" * 400, "y" * 400, "z" * 400]
    prompts = [
        prompt(messages=[{"role": "user", "content": one} for one in turns[:count]])
        for count in (1, 2, 3)
    ]
    # 0, then one turn, then two.
    assert shared_turns_tokens(prompts) == 100


@pytest.mark.parametrize(
    "body",
    [
        {"system": "S", "tools": [{"name": "t"}], "messages": [{"role": "user", "content": "u"}]},
        {
            "system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "t"}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "u"}]}],
        },
        {"instructions": "S", "tools": [{"name": "t"}], "input": "u"},
        {
            "instructions": "S",
            "tools": [{"name": "t"}],
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "u"}]}],
        },
        {
            "systemInstruction": {"parts": [{"text": "S"}]},
            "tools": [{"name": "t"}],
            "contents": [{"role": "user", "parts": [{"text": "u"}]}],
        },
        {
            "tools": [{"name": "t"}],
            "messages": [{"role": "developer", "content": "S"}, {"role": "user", "content": "u"}],
        },
    ],
)
def test_every_dialect_has_tools_system_and_turns(body: dict[str, Any]) -> None:
    found = prompt(**body)
    assert [(one.kind, one.text) for one in found.segments] == [
        ("tool", '{"name": "t"}'), ("system", "S"), ("turn", "u"),
    ]  # fmt: skip
    assert [one.marked for one in found.segments] == [False, "cache_control" in str(body), False]


@pytest.mark.parametrize("body", [None, [], {}, {"prompt": "x"}, {"model": "m"}])
def test_what_is_no_chat(body: Any) -> None:
    assert prompt_of(body) is None


def test_odd_bodies_are_read_as_far_as_they_go() -> None:
    found = prompt(messages=[None, 5, {"role": "user"}, {"content": 7}], tools="x", system=5)
    assert found.segments == ()
