"""Arguments of calls that have none, whole and in pieces."""

from __future__ import annotations

import pytest

from headrace.protocol.neutral.arguments import GrowingArguments, given_arguments
from headrace.protocol.neutral.part import ToolCall

EMPTY = ("", " ", "null", " null\n", "\n\t ")
GIVEN = (
    "{}",
    '{"a": null}',
    "nullx",
    "nul",
    "n",
    "[null]",
    '"null"',
    " " * 65,
    "null null",
    "NULL",
)


def grown(*pieces: str) -> str:
    arguments = GrowingArguments()
    return "".join([*map(arguments.take, pieces), arguments.end()])


@pytest.mark.parametrize("text", EMPTY)
def test_nothing_and_null_are_an_empty_object(text: str) -> None:
    assert given_arguments(text) == "{}"
    assert ToolCall(id="c", name="f", arguments=text).arguments == "{}"


@pytest.mark.parametrize("text", GIVEN)
def test_all_else_stays_as_the_model_wrote_it(text: str) -> None:
    assert given_arguments(text) == text
    assert ToolCall(id="c", name="f", arguments=text).arguments == text


@pytest.mark.parametrize("text", [*EMPTY, *GIVEN])
def test_pieces_say_what_the_whole_says(text: str) -> None:
    assert grown(text) == grown(*text) == given_arguments(text)
    for cut in range(len(text)):
        assert grown(text[:cut], "", text[cut:]) == given_arguments(text)


def test_only_what_may_be_nothing_is_held_back() -> None:
    arguments = GrowingArguments()
    assert [arguments.take(piece) for piece in (" ", '{"a', '": 1}')] == ["", ' {"a', '": 1}']
    assert arguments.end() == ""
    blanks = GrowingArguments()
    assert blanks.take(" " * 64) == ""
    assert blanks.take(" ") == " " * 65
    assert blanks.take(" " * 1000) == " " * 1000
