"""Whether an answer begins within reasoning, and between which ids the model reasons.

A budget of reasoning needs both. Which ids those are is known from the model's format; where an
answer begins is known from its prompt: from the text that a conversation is rendered to, or from
the ids of a prompt without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.conversation.format_marks import FormatMarks, ReasoningMarks
from headrace.conversation.reading import AnswerReading, call_end_ids

if TYPE_CHECKING:
    from headrace.text import Tokenizer


class ReasoningStart(NamedTuple):
    """The place of reasoning in the answers to a prompt."""

    marks: ReasoningMarks
    is_open: bool
    """Whether the prompt has begun it."""


def start_of_reading(
    reading: AnswerReading | None, tokenizer: Tokenizer, *, is_held: bool
) -> ReasoningStart | None:
    """That of answers to a conversation; None where the model does not reason. is_held: whether
    the answers are held to a grammar."""
    if reading is None or reading.marks is None:
        return None
    marks, calls = reading.marks, call_end_ids(reading, tokenizer, is_held=is_held)
    return ReasoningStart(
        marks._replace(other_end_ids=(*marks.other_end_ids, *calls)), reading.reasoning_opened
    )


def start_after(token_ids: Sequence[int], written: FormatMarks) -> ReasoningStart | None:
    """That of what follows a prompt of ids, whose answers have no calls; None where the model does
    not reason."""
    marks = written.reasoning_alone if written.tokenizer.has_text else None
    return None if marks is None else ReasoningStart(marks, ends_in_reasoning(token_ids, marks))


def ends_in_reasoning(token_ids: Sequence[int], marks: ReasoningMarks) -> bool:
    """Whether a prompt ends within reasoning: its last mark is one that begins it."""
    ends = (marks.end_ids, *marks.other_end_ids)
    return _last(token_ids, marks.begin_ids) > max(_last(token_ids, ids) for ids in ends)


def _last(token_ids: Sequence[int], sought: tuple[int, ...]) -> int:
    """Where `sought` comes last; -1 where it does not."""
    size = len(sought)
    places = range(len(token_ids) - size, -1, -1)
    return next((at for at in places if tuple(token_ids[at : at + size]) == sought), -1)
