"""The budget of an answer's reasoning, as the engine takes it.

The engine bounds reasoning between ids (`engine.params.ThinkingBudget`). Which ids those are is
known from the model's format; whether an answer begins within reasoning is known from its prompt:
from the text that a conversation is rendered to, or from the ids of a prompt without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.answer_formats.call_syntax import AnswerFormat
from headrace.conversation.reading import AnswerReading, ReasoningMarks, reasoning_marks
from headrace.engine.params import ThinkingBudget

if TYPE_CHECKING:
    from headrace.text import Tokenizer


def budget_of_reading(
    max_tokens: int | None, reading: AnswerReading | None
) -> ThinkingBudget | None:
    """The budget of answers to a conversation; None where max_tokens is, or nothing is to bound."""
    if max_tokens is None or reading is None or reading.marks is None:
        return None
    return ThinkingBudget.between(
        *reading.marks, max_tokens=max_tokens, is_open=reading.reasoning_opened
    )


def budget_after(
    token_ids: Sequence[int], max_tokens: int | None, format: AnswerFormat, tokenizer: Tokenizer
) -> ThinkingBudget | None:
    """The budget of what follows a prompt of ids, whose answers have no calls; None where
    max_tokens is, or the model does not reason."""
    if max_tokens is None or not tokenizer.has_text:
        return None
    marks = reasoning_marks(format, tokenizer, with_calls=False)
    if marks is None:
        return None
    is_open = ends_in_reasoning(token_ids, marks)
    return ThinkingBudget.between(*marks, max_tokens=max_tokens, is_open=is_open)


def ends_in_reasoning(token_ids: Sequence[int], marks: ReasoningMarks) -> bool:
    """Whether a prompt ends within reasoning: its last mark is one that begins it."""
    ends = (marks.end_ids, *marks.other_end_ids)
    return _last(token_ids, marks.begin_ids) > max(_last(token_ids, ids) for ids in ends)


def _last(token_ids: Sequence[int], sought: tuple[int, ...]) -> int:
    """Where `sought` comes last; -1 where it does not."""
    size = len(sought)
    places = range(len(token_ids) - size, -1, -1)
    return next((at for at in places if tuple(token_ids[at : at + size]) == sought), -1)
