"""How the answer to a conversation is read: into content, reasoning and tool calls.

The model's format (`headrace.answer_formats`) says how it writes them. An answer of a model
without reasoning to a request without tools is content as it stands, and nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headrace.answer_formats.call_heads import CallHead, call_heads
from headrace.answer_formats.call_syntax import (
    NO_FORMAT,
    AnswerFormat,
    ThinkTags,
)
from headrace.answer_formats.deltas import CallEnd, CallStart, Delta, ReasoningDelta
from headrace.answer_formats.derivation.derive import Messages, Render
from headrace.answer_formats.formats import call_format, choose_format, reasoning_format
from headrace.answer_formats.parser import AnswerParser
from headrace.conversation.format_marks import FormatMarks, ReasoningMarks, ids_of

if TYPE_CHECKING:
    from headrace.text import ChatTemplate, Tokenizer

_ID_CHARS = 24


AUTO, NONE = "auto", "none"
"""In place of a format's name: the one that the chat template shows, and none at all."""


class Piece(Protocol):
    """A part of an answer as it comes: text, and the tokens that brought it or will."""

    @property
    def text(self) -> str:
        """Its text, which may lag behind its tokens."""

    @property
    def token_ids(self) -> Sequence[int]:
        """Its tokens."""

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ends with it; None where it goes on."""


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
        self.reasoning_tokens = 0
        """Tokens so far that are the model's reasoning, its marks included."""
        self._reading = reading
        self._parser = reading.parser()
        self._new_id = new_id
        self._faulty = False
        self._recent: tuple[int, ...] = ()
        """The last ids of the reasoning, in which the mark that ends it may have begun."""

    def passes(self, piece: Piece) -> bool:
        """Whether a piece in the middle of a choice is content as it stands; if so it is taken."""
        return piece.finish_reason is None and self._parser.passes(piece.text)

    def take(self, piece: Piece) -> list[Delta]:
        """What a piece of the text makes certain; all of it with the last piece."""
        parser = self._parser
        was_reasoning = parser.in_reasoning
        deltas = parser.feed(piece.text) if piece.text else []
        if was_reasoning or parser.in_reasoning or _has_reasoning(deltas):
            self._count(piece.token_ids, opened=was_reasoning, closed=not parser.in_reasoning)
        if piece.finish_reason is not None:
            deltas = deltas + parser.finish()
        for delta in deltas:
            if isinstance(delta, CallStart):
                self.num_calls += 1
            elif isinstance(delta, CallEnd) and delta.fault:
                self._faulty = True
        return deltas

    def _count(self, token_ids: Sequence[int], *, opened: bool, closed: bool) -> None:
        """Count the reasoning among the tokens of a piece, which may have others before and behind.

        opened, closed: whether it had begun before the piece, and is over with it. Where its marks
        are not among the ids, the whole piece counts.
        """
        marks, held = self._reading.marks, len(self._recent)
        if marks is None:
            self.reasoning_tokens += len(token_ids)
            return
        ids = (*self._recent, *token_ids)
        begin = -1 if opened else _place(ids, marks.begin_ids)
        end = _place(ids, marks.end_ids) if closed else -1
        first = max(begin, held)
        after = len(ids) if end < 0 else end + len(marks.end_ids)
        self.reasoning_tokens += max(0, after - first)
        kept = len(marks.end_ids) - 1
        self._recent = () if closed or not kept else ids[-kept:]

    def call_id(self, start: CallStart) -> str:
        """The id of a call that starts."""
        return self._reading.call_id(start.id, self._new_id())

    def finish_reason(self, reason: str) -> str:
        """The reason of the choice's end: "tool_calls" where it ended by itself after whole
        calls."""
        complete = self.num_calls and not self._faulty
        return "tool_calls" if reason == "stop" and complete else reason


def _has_reasoning(deltas: Sequence[Delta]) -> bool:
    return any(isinstance(delta, ReasoningDelta) for delta in deltas)


def _place(ids: tuple[int, ...], sought: tuple[int, ...]) -> int:
    """Where `sought` first comes; -1 where it does not."""
    size = len(sought)
    places = range(len(ids) - size + 1)
    return next((at for at in places if ids[at : at + size] == sought), -1)
