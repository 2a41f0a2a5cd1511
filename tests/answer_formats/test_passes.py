"""What passes as content without a search is what a search would have found."""

from __future__ import annotations

import random
import time

import pytest

from headrace.answer_formats.deltas import ContentDelta, Delta, joined
from headrace.answer_formats.formats import choose_format
from headrace.answer_formats.parser import AnswerParser

FORMAT = choose_format("<tool_call> <think>")
CALL = '<tool_call>{"name": "f", "arguments": {"a": "<b> c"}}</tool_call>'
TEXTS = (
    "plain words, no marks at all",
    "<think>a <b> c\n\n</think>\n\n  text with < and <tool and more \n\n",
    f"before it  {CALL} \n after {CALL}{CALL} end ",
    f"<think>x</think>{CALL}",
    " \n leading and trailing \n ",
    "<think>never closed <tool_call>",
)
WITHOUT_CONTENT = (f"<think>x</think>{CALL}", "<think>never closed <tool_call>")
"""Of the texts: those in which nothing could pass."""


def read(pieces: list[str], *, with_passes: bool) -> tuple[list[Delta], int]:
    """The deltas of a text in pieces, and how many pieces passed without a search."""
    parser = AnswerParser(FORMAT, tools={"f": {}})
    deltas: list[Delta] = []
    num_passed = 0
    for piece in pieces:
        if with_passes and parser.passes(piece):
            deltas.append(ContentDelta(piece))
            num_passed += 1
        else:
            deltas += parser.feed(piece)
    return deltas + parser.finish(), num_passed


@pytest.mark.parametrize("text", TEXTS)
def test_however_a_text_is_cut(text: str) -> None:
    whole = joined(read([text], with_passes=False)[0])
    draw = random.Random(7)
    num_passed = 0
    for size in (1, 2, 3, 5, 9):
        for _ in range(20):
            cuts = sorted(draw.sample(range(len(text) + 1), min(len(text), size * 3)))
            pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
            pieces = [piece for piece in pieces if piece]
            deltas, passed = read(pieces, with_passes=True)
            assert joined(deltas) == whole, pieces
            num_passed += passed
    assert (num_passed > 0) == (text not in WITHOUT_CONTENT)


def test_words_in_the_middle_of_content_pass_and_marks_do_not() -> None:
    parser = AnswerParser(FORMAT, tools={"f": {}})
    assert not parser.passes("Hi")  # it may still begin with reasoning
    parser.feed("Hi there")
    assert parser.passes(" and more")
    for piece in (" ends with space ", " <", "\n", ""):
        assert not parser.passes(piece)


@pytest.mark.parametrize("before", ["Hi", "<think>a", '<tool_call>{"name": "'])
def test_white_space_that_waits_takes_time_by_its_length(before: str) -> None:
    parser = AnswerParser(FORMAT, tools={"f": {}})
    deltas = parser.feed(before)
    begin_s = time.process_time()
    for _ in range(32_000):
        deltas += parser.feed("\n\n")
    deltas += parser.finish()
    # Some 0.05 s; what joins the waiting part with every piece takes 4 s and more.
    assert time.process_time() - begin_s < 1.5
    if before == "Hi":
        assert joined(deltas).content == before + "\n\n" * 32_000
