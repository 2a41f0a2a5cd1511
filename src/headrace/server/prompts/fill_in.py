"""Prompts for filling in the middle of a text, as models that can are trained on them.

The marks are special tokens, and which of the known ones a vocabulary has says how: the text
before, the text after, then the middle is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace.text.tokenizer import Segment, Tokenizer


class FillInMarks(NamedTuple):
    """The marks before the parts of a prompt."""

    prefix: str
    suffix: str
    middle: str


_KNOWN = (
    FillInMarks("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, headrace
    FillInMarks("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder
    FillInMarks("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SmolLM
    FillInMarks("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
    FillInMarks("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM
    FillInMarks("<PRE>", "<SUF>", "<MID>"),  # CodeLlama
)


def fill_in_marks(tokenizer: Tokenizer) -> FillInMarks | None:
    """The marks that a vocabulary has; None for a model that cannot fill in."""
    control = frozenset(tokenizer.control_tokens)
    return next((marks for marks in _KNOWN if control.issuperset(marks)), None)


def fill_in_prompt(marks: FillInMarks, prefix: str, suffix: str) -> list[Segment]:
    """The prompt whose answer is what stands between; marks in the texts are ordinary text."""
    return [
        (marks.prefix, True),
        (prefix, False),
        (marks.suffix, True),
        (suffix, False),
        (marks.middle, True),
    ]
