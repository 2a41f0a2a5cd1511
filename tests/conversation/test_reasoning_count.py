"""Tokens of reasoning are counted alike however an answer comes."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import pytest

from headrace.answer_formats.formats import choose_format
from headrace.conversation.format_marks import ReasoningMarks
from headrace.conversation.reading import AnswerReading, ReadChoice


class Text(NamedTuple):
    """A piece of an answer."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None = None


@pytest.mark.parametrize("opened", [True, False])
def test_reasoning_is_counted_alike_however_the_answer_comes(opened: bool) -> None:
    format = choose_format("<think></think>")
    marks = ReasoningMarks((60, 60), (61, 62))
    pieces = [("", 60), ("<think>", 60), ("a", 1), ("b", 2), ("", 61), ("</think>", 62), ("c", 3)]
    pieces = pieces[2:] if opened else pieces
    counts = set()
    for cuts in product((False, True), repeat=len(pieces) - 1):
        reading = AnswerReading(format, None, opened, frozenset(), marks)
        read = ReadChoice(reading, str)
        text, ids = "", []
        for (more, token_id), cut in zip(pieces, (*cuts, True), strict=True):
            text, ids = text + more, [*ids, token_id]
            if cut:
                read.take(Text(text, tuple(ids)))
                text, ids = "", []
        counts.add(read.reasoning_tokens)
    assert counts == ({4} if opened else {5, 6})  # a mark that is cut counts from its last token
