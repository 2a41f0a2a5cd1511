"""Beginnings of prompts, and who has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.gateway.engines.prefix_index import PrefixIndex
from headrace.gateway.routing.prompt_blocks import BLOCK_BYTES, MOST_BLOCKS, prompt_blocks
from headrace.protocol.json_object import JsonObject

LONG = "Once upon a time there was an engine. " * 40


def blocks(**body: Any) -> tuple[int, ...]:
    return prompt_blocks(JsonObject.read(json.dumps(body).encode()))


def chat(*said: str) -> list[dict[str, Any]]:
    roles = ("system", "user", "assistant")
    return [
        {"role": roles[0] if not at else roles[1 + (at - 1) % 2], "content": one}
        for at, one in enumerate(said)
    ]


def test_a_second_turn_begins_as_the_first() -> None:
    first = blocks(messages=chat(LONG, "Hi"))
    second = blocks(messages=chat(LONG, "Hi", "Hello!", "Go on, " + LONG))
    assert len(first) == (len(LONG) + len("\0system\0\0user\0Hi")) // BLOCK_BYTES
    assert second[: len(first)] == first and len(second) > len(first)


def test_one_other_byte_makes_all_blocks_behind_it_others() -> None:
    first = blocks(messages=chat(LONG))
    at = 2 * BLOCK_BYTES + 7
    other = blocks(messages=chat(LONG[:at] + "X" + LONG[at + 1 :]))
    assert first[:2] == other[:2] and not set(first[2:]) & set(other[2:])


def test_the_same_in_every_dialect() -> None:
    same = blocks(messages=chat(LONG, LONG[:600]))
    parts = [{"type": "text", "text": LONG[:100]}, {"type": "text", "text": LONG[100:600]}]
    assert same == blocks(system=LONG, messages=[{"role": "user", "content": parts}])
    assert same == blocks(instructions=LONG, input=LONG[:600])
    message = {"type": "message", "role": "user", "content": [{"text": LONG[:600]}]}
    assert same == blocks(input=[{"role": "developer", "content": LONG}, message])


def test_tools_and_pictures_count() -> None:
    plain = blocks(messages=chat(LONG))
    assert not set(plain) & set(blocks(messages=chat(LONG), tools=[{"name": "f"}]))
    call = {"role": "assistant", "tool_calls": [{"id": "1"}], "content": None}
    tail = {"role": "user", "content": LONG}
    assert blocks(messages=[call, tail]) != blocks(messages=[{**call, "tool_calls": []}, tail])
    picture = {"type": "image_url", "image_url": {"url": "data:" + "x" * 600}}
    other = {"type": "image_url", "image_url": {"url": "data:" + "y" * 600}}
    one, two = (blocks(messages=[{"role": "user", "content": [each]}]) for each in (picture, other))
    assert len(one) == len(two) and not set(one) & set(two)


@pytest.mark.parametrize(
    "body",
    [
        {}, {"messages": []}, {"messages": None}, {"messages": 7}, {"messages": [7, None, []]},
        {"messages": [{"role": None, "content": {"x": 1}}]}, {"input": {"x": 1}},
        {"prompt": ["x"]},
    ],
)  # fmt: skip
def test_what_is_no_conversation_has_no_blocks_to_speak_of(body: dict[str, Any]) -> None:
    assert blocks(**body) == ()


def test_a_long_prompt_has_so_many_and_no_more() -> None:
    assert len(blocks(messages=chat(LONG * 1000))) == MOST_BLOCKS


def test_the_index_knows_who_had_what_and_forgets_the_oldest_first() -> None:
    index = PrefixIndex(most_blocks=4)
    index.had("a", (1, 2, 3))
    assert [index.matched("a", one) for one in ((1, 2, 3, 4), (1, 2, 9), (9, 2), ())] == [
        3,
        2,
        0,
        0,
    ]
    assert index.matched("b", (1, 2, 3)) == 0
    index.had("a", (1, 2, 5))
    assert index.blocks == 4
    index.had("a", (7,))
    assert index.matched("a", (1, 2, 3)) == 2, "the end of the older one is forgotten first"
    assert index.matched("a", (1, 2, 5)) == 3
    index.forget("a")
    assert index.matched("a", (1,)) == 0 and index.blocks == 0
