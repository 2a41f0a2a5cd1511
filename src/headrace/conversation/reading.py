"""How the answer to a conversation is read: into content, reasoning and tool calls.

The model's format (`headrace.answer_formats`) says how it writes them. An answer of a model
without reasoning to a request without tools is content as it stands, and nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from headrace.answer_formats.call_heads import CallHead, call_heads
from headrace.answer_formats.call_syntax import (
    NO_FORMAT,
    AnswerFormat,
    ThinkTags,
)
from headrace.answer_formats.deltas import (
    CallDelta,
    CallEnd,
    CallStart,
    ContentDelta,
    Delta,
    ReasoningDelta,
)
from headrace.answer_formats.derivation.derive import Messages, Render
from headrace.answer_formats.formats import call_format, choose_format, reasoning_format
from headrace.answer_formats.parser import AnswerParser
from headrace.conversation.format_marks import FormatMarks, ReasoningMarks, ids_of
from headrace.conversation.reasoning_count import ReasoningCount

if TYPE_CHECKING:
    from headrace.text import ChatTemplate, Tokenizer

_ID_CHARS = 24

AUTO, NONE = "auto", "none"
"""In place of a format's name: the one that the chat template shows, and none at all."""


def answer_format(
    template: ChatTemplate | None, *, calls: str = AUTO, reasoning: str = AUTO
) -> AnswerFormat:
    """How a model writes reasoning and tool calls: as its chat template shows, or as named.

    template: None for a model without one. calls, reasoning: names of formats, AUTO or NONE.
    """
    shown = NO_FORMAT
    if template is not None:
        shown = choose_format(template.source_text, _renderer(template))
    chosen_calls, chosen_reasoning = shown.calls, shown.reasoning
    if calls != AUTO:
        chosen_calls = None if calls == NONE else call_format(calls)
    if reasoning != AUTO:
        chosen_reasoning = None if reasoning == NONE else reasoning_format(reasoning)
    return AnswerFormat(chosen_calls, chosen_reasoning)


def _renderer(template: ChatTemplate) -> Render:
    """What a format is derived from where the template's text has no known marks."""

    def render(messages: Messages, tools: Messages) -> str:
        asks = messages[-1]["role"] == "user"
        return template.render(messages, tools=tools, add_generation_prompt=asks)

    return render


@dataclass(frozen=True)
class AnswerReading:
    """The reading of one request's answers."""

    format: AnswerFormat
    tools: Mapping[str, Mapping[str, Any]] | None
    """The schema of the arguments by the tool's name; None where no calls are read."""
    reasoning_opened: bool
    """Whether the prompt ended within reasoning."""
    kept_ids: frozenset[int]
    """Special tokens that the format is written in, which its text therefore contains."""
    marks: ReasoningMarks | None = None
    """Between which ids the model reasons; None where it does not."""

    def parser(self) -> AnswerParser:
        """A fresh parser of one answer."""
        return AnswerParser(self.format, tools=self.tools, reasoning_opened=self.reasoning_opened)

    def call_id(self, written: str, random: str) -> str:
        """The id of a call: the one that the model wrote, or a random one as its format has it."""
        if written:
            return written
        length = None if self.format.calls is None else self.format.calls.id_chars
        if length is not None:
            return random[-length:]
        return f"call_{random[:_ID_CHARS]}"


def reading_of(
    written: FormatMarks,
    *,
    tools: Mapping[str, Mapping[str, Any]] | None,
    prompt: str,
    continues: bool,
    may_call: bool = True,
) -> AnswerReading | None:
    """The reading of answers to a prompt; None where they are content as they stand.

    written: how the model writes. tools: those that the prompt shows. prompt: as rendered.
    continues: whether it ends within the assistant's own message. may_call: whether calls are read;
    without, what is written as one is content.
    """
    format = written.format
    if format.reasoning is None and (tools is None or format.calls is None):
        return None
    read_tools = tools if may_call else None
    return AnswerReading(
        format,
        read_tools,
        reasoning_opened=_opened(format, prompt, continues=continues),
        kept_ids=written.kept_ids,
        marks=written.reasoning,
    )


def call_end_ids(
    reading: AnswerReading, tokenizer: Tokenizer, *, is_held: bool
) -> tuple[tuple[int, ...], ...]:
    """What ends reasoning as the beginning of a call, as ids: the heads that the answer's reader
    looks for, with what else the last token of each may have.

    is_held: whether a grammar holds the calls. None of their marks can be without a call then, and
    a call may begin in other ways, so that the marks are what ends it.
    """
    calls, tools = reading.format.calls, reading.tools
    if calls is None or not tools:
        return ()
    if is_held:
        return tuple(ids_of(mark, tokenizer) for mark in calls.ends_reasoning)
    heads = (
        head for mark in calls.ends_reasoning for name in tools
        for head in call_heads(calls, mark, name)
    )  # fmt: skip
    return tuple(dict.fromkeys(ids for head in heads for ids in _head_ids(head, tokenizer)))


def _head_ids(head: CallHead, tokenizer: Tokenizer) -> Iterator[tuple[int, ...]]:
    """The ids of a head, up to the token that has its last character, by what follows it."""
    for follower in head.followers:
        ids = tokenizer.encode(head.text + follower, add_special_tokens=False)
        beyond = len(follower.encode())
        while (size := len(tokenizer.token_bytes(ids[-1]))) <= beyond:
            beyond -= size
            ids.pop()
        yield tuple(ids)


def _opened(format: AnswerFormat, prompt: str, *, continues: bool) -> bool:
    tags = None if format.reasoning is None else format.reasoning.tags
    if not continues or not isinstance(tags, ThinkTags):
        return format.opens_reasoning(prompt)
    return prompt.rfind(tags.begin) > prompt.rfind(tags.end)


class ReadChoice:
    """One choice of an answer while it is read."""

    def __init__(self, reading: AnswerReading, new_id: Callable[[], str]) -> None:
        self.num_calls = 0
        self.num_broken_calls = 0
        self._reading = reading
        self._parser = reading.parser()
        self._reasoning = ReasoningCount()
        self._new_id = new_id

    @property
    def reasoning_tokens(self) -> int:
        """Tokens so far that are certain to be the model's reasoning."""
        return self._reasoning.tokens

    def passes(self, text: str) -> bool:
        """Whether more text in the middle of a choice is content as it stands; if so it is taken,
        with its tokens."""
        if not self._parser.passes(text):
            return False
        self._reasoning.skip(text)
        return True

    def take(self, text: str, starts: Sequence[int], *, is_last: bool) -> list[Delta]:
        """What more text makes certain; all of it with the last.

        starts: where the tokens that come begin, in characters of the choice's text.
        """
        parts = self._reasoning.cut(text, starts)
        if len(parts) == 1:  # as a rule
            deltas = self._read(parts[0])
        else:
            deltas = _merged(chain.from_iterable(map(self._read, parts)))
        if is_last:
            deltas += self._finish()
        for delta in deltas:
            if isinstance(delta, CallStart):
                self.num_calls += 1
            elif isinstance(delta, CallEnd) and delta.fault:
                self.num_broken_calls += 1
        return deltas

    def _read(self, part: str) -> list[Delta]:
        was_inside = self._parser.in_reasoning
        deltas = self._parser.feed(part)
        self._reasoning.note(part, deltas, is_inside=was_inside)
        return deltas

    def _finish(self) -> list[Delta]:
        was_inside = self._parser.in_reasoning
        deltas = self._parser.finish()
        self._reasoning.note("", deltas, is_inside=was_inside)
        self._reasoning.finish(is_inside=self._parser.in_reasoning)
        return deltas

    def call_id(self, start: CallStart) -> str:
        """The id of a call that starts."""
        return self._reading.call_id(start.id, self._new_id())

    def finish_reason(self, reason: str) -> str:
        """The reason of the choice's end: "tool_calls" where it ended by itself after whole
        calls."""
        complete = self.num_calls and not self.num_broken_calls
        return "tool_calls" if reason == "stop" and complete else reason


def _merged(deltas: Iterable[Delta]) -> list[Delta]:
    """Deltas with neighbours of one kind as one, as a reader gives them for all of their text."""
    merged: list[Delta] = []
    for delta in deltas:
        match (merged[-1] if merged else None, delta):
            case (ContentDelta(before), ContentDelta(text)):
                merged[-1] = ContentDelta(before + text)
            case (ReasoningDelta(before), ReasoningDelta(text)):
                merged[-1] = ReasoningDelta(before + text)
            case (CallDelta(index, before), CallDelta(_, text)):
                merged[-1] = CallDelta(index, before + text)
            case _:
                merged.append(delta)
    return merged
