"""The marks of a model's reasoning and calls, as the ids that its tokenizer writes them with.

They follow from the model's format and its tokenizer alone, so that a server finds them once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from headrace.answer_formats import harmony_marks
from headrace.answer_formats.call_syntax import (
    AnswerFormat,
    HarmonyCalls,
    HeadedCalls,
    ReasoningFormat,
    TaggedCalls,
    ThinkTags,
)

if TYPE_CHECKING:
    from headrace.text import Tokenizer


_TAG = re.compile(r"</?[A-Za-z_]+>")
"""A tag as templates write it. Others' marks (`<|im_end|>`) are special tokens, and no text."""


class ReasoningMarks(NamedTuple):
    """The token ids between which a model reasons, as its tokenizer writes their texts."""

    begin_ids: tuple[int, ...]
    end_ids: tuple[int, ...]
    other_end_ids: tuple[tuple[int, ...], ...] = ()
    """Of what ends it as well: other marks, and heads of calls."""
    spent_ids: tuple[int, ...] = ()
    """Of marks that are a token each and mean nothing after it: its own, and those of others' turns
    in the template (the result of a tool), which a model writes in their place."""


@dataclass(frozen=True)
class FormatMarks:
    """A model's format with its marks as ids."""

    format: AnswerFormat
    tokenizer: Tokenizer
    template: str = ""
    """The source of the chat template, "" for none."""

    @cached_property
    def kept_ids(self) -> frozenset[int]:
        """The special tokens that are in the format's marks, or that have one in them."""
        marks, patterns = _marks(self.format)
        found = set()
        for text in self.tokenizer.control_tokens:
            in_mark = any(text in mark or mark in text for mark in marks)
            if in_mark or any(re.escape(text) in pattern for pattern in patterns):
                token_id = self.tokenizer.token_to_id(text)
                if token_id is not None:
                    found.add(token_id)
        return frozenset(found)

    @cached_property
    def reasoning(self) -> ReasoningMarks | None:
        """The marks of the model's reasoning; None where it has none. What ends harmony's is all
        that leads to the final channel."""
        reasoning, tokenizer = self.format.reasoning, self.tokenizer
        if reasoning is None:
            return None
        tags = reasoning.tags
        if not isinstance(tags, ThinkTags):
            end = harmony_marks.NEXT_MESSAGE + harmony_marks.message_on(harmony_marks.FINAL)
            begin = harmony_marks.message_on(harmony_marks.ANALYSIS)
            return ReasoningMarks(ids_of(begin, tokenizer), ids_of(end, tokenizer))
        calls = self.format.calls
        used = _of_content(reasoning) | _marks(AnswerFormat(calls, None))[0]
        if calls is not None:
            used.update(calls.dropped, calls.ends_reasoning)
        others = (*tags.other_ends, *tags.also_ended_by)
        return ReasoningMarks(
            ids_of(tags.begin, tokenizer),
            ids_of(tags.end, tokenizer),
            tuple(ids_of(mark, tokenizer) for mark in others),
            self._spent_ids(tags, used),
        )

    @cached_property
    def reasoning_alone(self) -> ReasoningMarks | None:
        """The same for answers without calls, whose marks mean nothing after it either."""
        marks, reasoning = self.reasoning, self.format.reasoning
        if marks is None or reasoning is None or not isinstance(reasoning.tags, ThinkTags):
            return marks
        spent_ids = self._spent_ids(reasoning.tags, _of_content(reasoning))
        return marks._replace(spent_ids=spent_ids)

    def _spent_ids(self, tags: ThinkTags, used: set[str]) -> tuple[int, ...]:
        """The marks that mean nothing after reasoning. used: those that do."""
        own = (tags.end, *tags.other_ends, tags.begin, *tags.other_begins)
        marks = dict.fromkeys((*own, *_TAG.findall(self.template)))
        found = [ids_of(mark, self.tokenizer) for mark in marks if mark and mark not in used]
        return tuple(ids[0] for ids in found if len(ids) == 1 and self.tokenizer.is_literal(ids[0]))

    @cached_property
    def call_ids(self) -> tuple[tuple[int, ...], ...]:
        """The ids of marks that begin calls, of those that have a token of their own in them: ids
        that an answer without calls is without. A mark of ordinary tokens may be text."""
        calls, tokenizer = self.format.calls, self.tokenizer
        if calls is None or isinstance(calls.syntax, HarmonyCalls):
            return ()
        marks = chain.from_iterable(
            (*syntax.begins, *(syntax.bare if isinstance(syntax, TaggedCalls) else ()))
            for syntax in calls.syntax
        )
        found = (tuple(tokenizer.encode(mark, add_special_tokens=False)) for mark in marks)
        return tuple(dict.fromkeys(ids for ids in found if any(map(tokenizer.is_literal, ids))))


def _of_content(reasoning: ReasoningFormat) -> set[str]:
    """The marks that stand around or before the content."""
    used = {*chain(*reasoning.wraps), *reasoning.dropped}
    if isinstance(reasoning.tags, ThinkTags):
        used.update(reasoning.tags.also_ended_by)
    return used


def ids_of(mark: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids of a mark: one where it is a token of its own, which need not be searched for."""
    token_id = tokenizer.token_to_id(mark) if mark in tokenizer.control_tokens else None
    if token_id is not None:
        return (token_id,)
    return tuple(tokenizer.encode(mark, add_special_tokens=False))


def special_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Texts of tokens that no text is spelled with, and their ids."""
    ids = ((text, tokenizer.token_to_id(text)) for text in tokenizer.control_tokens)
    return {
        text: token_id
        for text, token_id in ids
        if token_id is not None and tokenizer.is_special(token_id)
    }


def _marks(format: AnswerFormat) -> tuple[set[str], list[str]]:
    """The marks of a format, and the patterns that have more of them."""
    marks: set[str] = set()
    patterns: list[str] = []
    reasoning = format.reasoning
    if reasoning is not None:
        marks.update(chain(*reasoning.wraps), reasoning.dropped)
        if isinstance(reasoning.tags, ThinkTags):
            tags = reasoning.tags
            marks.update((tags.begin, tags.end), tags.other_begins, tags.other_ends)
            marks.update(tags.also_ended_by)
        else:
            marks.update(harmony_marks.MARKS)
    syntaxes = () if format.calls is None else format.calls.syntax
    if isinstance(syntaxes, HarmonyCalls):
        marks.update(harmony_marks.MARKS)
        syntaxes = ()
    for syntax in syntaxes:
        for name in syntax.__dataclass_fields__:
            value = getattr(syntax, name)
            marks.update([value] if isinstance(value, str) else ())
            if isinstance(value, tuple):
                marks.update(part for part in value if isinstance(part, str))
        if isinstance(syntax, HeadedCalls):
            patterns.append(syntax.header.pattern)
    # Braces and words (a key's name) are in too many tokens to be a sign.
    return {mark for mark in marks if len(mark) > 2 and not mark.isidentifier()}, patterns
