"""What a request allows its answer and which tools it asks for, however it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.gateway.guards.action import GuardBlockedError
from headrace.gateway.guards.asked_tools import requested_tools
from headrace.gateway.guards.guard import Guard, Subject
from headrace.gateway.guards.request import looked_at
from headrace.protocol.json_object import JsonObject

CHAT = "openai-chat"


async def limited(dialect: str, body: dict[str, Any], action: Any = "cap") -> dict[str, Any]:
    guard = Guard(name="g", on=frozenset(("output",)), action=action, most_tokens=100)
    subject = Subject(on="input", passages=(), dialect=dialect)
    found = await looked_at([guard], subject, JsonObject.read(json.dumps(body).encode()))
    left: dict[str, Any] = json.loads(found.body.body)
    return left


@pytest.mark.parametrize(
    ("dialect", "body", "left"),
    [
        (CHAT, {"max_tokens": 5, "max_completion_tokens": 5000.0},
         {"max_tokens": 5, "max_completion_tokens": 100}),
        (CHAT, {"max_tokens": 5, "max_completion_tokens": "5000"},
         {"max_tokens": 5, "max_completion_tokens": 100}),
        (CHAT, {"max_tokens": 5, "max_completion_tokens": -1},
         {"max_tokens": 5, "max_completion_tokens": 100}),
        (CHAT, {"max_tokens": 5, "max_output_tokens": 101, "max_new_tokens": 1e9, "n_predict": -1},
         {"max_tokens": 5, "max_output_tokens": 100, "max_new_tokens": 100, "n_predict": 100}),
        (CHAT, {"max_tokens": [1]}, {"max_tokens": 100}),
        (CHAT, {"max_tokens": 100.0}, {"max_tokens": 100.0}),
        (CHAT, {"max_tokens": None}, {"max_tokens": None, "max_completion_tokens": 100}),
        ("anthropic", {"max_tokens": "5000"}, {"max_tokens": 100}),
        ("openai-responses", {}, {"max_output_tokens": 100}),
        ("ollama", {"options": {"num_predict": -2}}, {"options": {"num_predict": 100}}),
        ("ollama", {"options": {"num_predict": 5}, "max_tokens": 5000},
         {"options": {"num_predict": 5}, "max_tokens": 100}),
    ],
)  # fmt: skip
async def test_every_field_that_limits_the_answer_is_capped(
    dialect: str, body: dict[str, Any], left: dict[str, Any]
) -> None:
    assert await limited(dialect, body) == left


@pytest.mark.parametrize("most", [5000, 5000.0, "5000", 100.5])
async def test_too_much_is_refused_however_it_is_written(most: Any) -> None:
    with pytest.raises(GuardBlockedError, match="at most 100 are allowed"):
        await limited(CHAT, {"max_tokens": 5, "max_completion_tokens": most}, "block")


FUNCTION = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"plugins": [{"id": "web", "max_results": 3}]}, ("web",)),
        ({"tool_choice": {"type": "allowed_tools",
                          "allowed_tools": {"mode": "auto", "tools": [FUNCTION]}}}, ("f",)),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION]}}, ("f",)),
        ({"tools": {"0": FUNCTION}}, ("f",)),
        ({"tools": [{"type": "function", "Function": {"Name": "f"}}]}, ("f",)),
        ({"tools": [{"type": "function", "function": {"name": "a"}, "FUNCTION": {"name": "f"}}]},
         ("a", "f")),
        ({"plugins": [{"ID": "web"}]}, ("web",)),
        ({"tools": FUNCTION}, ("f",)),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [FUNCTION]}]},
         ("n", "namespace", "f")),
        ({"tools": [{"type": "function", "function": {
            "name": "f", "parameters": {"properties": {"tools": {"type": "array"}}}}}]}, ("f",)),
    ],
)  # fmt: skip
def test_tools_are_seen_wherever_they_are_asked_for(
    body: dict[str, Any], named: tuple[str, ...]
) -> None:
    assert requested_tools(body) == named


def test_tools_within_tools_are_looked_at_once() -> None:
    nested: dict[str, Any] = {"name": "f"}
    for _ in range(100):
        nested = {"tools": nested}
    assert requested_tools({"tools": nested}) == ("f",)
