"""What of a request tells how hard it is."""

from __future__ import annotations

import time
from typing import Any

import pytest

from headrace.gateway.routing.complexity.rules import why
from headrace.gateway.routing.complexity.view import View, has_code, view_of
from headrace.gateway.settings.complexity import ConditionSettings
from headrace.protocol.neutral.call import ChatCall, Message, OutputFormat, Tool
from headrace.protocol.neutral.part import Media, Text


def said(*turns: str, **more: Any) -> View:
    roles: Any = ("user", "assistant")
    messages = tuple(
        Message(role=roles[at % 2], parts=(Text(text=one),)) for at, one in enumerate(turns)
    )
    return view_of(ChatCall(dialect="", model="m", messages=messages, **more))


HI = said("Hi")
LONG = said("word " * 2000, "fine", "ok")


@pytest.mark.parametrize(
    ("condition", "holds", "does_not"),
    [
        ({"code": True}, said("Why? ```x = 1```"), HI),
        ({"code": False}, HI, said("def f(x):\n    return x")),
        ({"tools": True}, said("Hi", tools=(Tool(name="f"),)), HI),
        ({"json": True}, said("Hi", output=OutputFormat(kind="json")), HI),
        ({"tokens_over": 1000}, LONG, HI),
        ({"tokens_under": 1000}, HI, LONG),
        ({"tokens_over": 1000, "of": "last_turn"}, said("word " * 2000), LONG),
        ({"turns_over": 1}, LONG, HI),
        ({"matches": "(?i)^PROVE"}, said("prove it"), said("Prove it", "done", "thanks")),
        ({"matches": "(?i)prove", "of": "conversation"}, said("Prove it", "done", "ok"), HI),
        ({"tools": False, "turns_over": 1}, LONG, HI),
    ],
)
def test_a_condition(condition: dict[str, Any], holds: View, does_not: View) -> None:
    assert why(ConditionSettings(**condition), holds)
    assert why(ConditionSettings(**condition), does_not) is None


def test_pictures_are_seen() -> None:
    picture = Message(role="user", parts=(Media(kind="image", url="https://x/y.png"),))
    view = view_of(ChatCall(dialect="", model="m", messages=(picture,)))
    assert why(ConditionSettings(images=True), view) == "images"
    assert why(ConditionSettings(images=True), HI) is None


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\n  File x", "import os\nprint(os.sep)",
        "SELECT name FROM users", "    at foo.Bar(Baz.java:10)", "#include <stdio.h>",
        "const f = (x) => { return x }", "<div>hello</div>",
    ],
)  # fmt: skip
def test_code_is_told_from_prose(text: str) -> None:
    assert has_code(text)


@pytest.mark.parametrize(
    "text",
    ["Where do imports from China go?", "Select a gift for my aunt", "I return on Monday; fine"],
)
def test_prose_is_no_code(text: str) -> None:
    assert not has_code(text)


@pytest.mark.parametrize(
    "text", ["\n", " ", "SELECT ", ";\n ", "</a", "let ", "def a:", "import a", " at a(", "\t\n"]
)
def test_no_text_makes_it_look_for_long(text: str) -> None:
    began_s = time.process_time()
    has_code((text * 50_000)[:50_000])
    assert time.process_time() - began_s < 2.0, "what is quadratic takes minutes"


def test_an_expression_takes_time_that_grows_with_the_text_alone() -> None:
    """In Python's own engine this one would take longer than the universe is old."""
    condition = ConditionSettings(matches="(a+)+$")
    assert why(condition, said("a" * 100_000 + "!")) is None
    assert why(condition, said("a" * 100_000)) == "matches"


def test_an_expression_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="RE2's syntax has no lookaround"):
        ConditionSettings(matches="(?=a)b")
