"""A model's text, as it comes, into content, reasoning and tool calls.

    format = choose_format(template_text)
    parser = AnswerParser(
        format,
        tools={"get_weather": {"type": "object", "properties": {"city": {"type": "string"}}}},
        reasoning_opened=format.opens_reasoning(rendered_prompt),
    )
    for text in texts:
        deltas = parser.feed(text)
    deltas = parser.finish()

The promise: however the text is cut into pieces, the deltas joined are the same. The rules:

- The text has to contain special tokens, since most formats are written in them, but not the token
  that ended the answer. Stop strings are searched before, in the same text.
- Only the longest end of the text that may begin a mark is held back, and white space before it.
- Arguments come as the model writes them: JSON unchanged, other syntaxes as JSON with Python's
  spaces. A call starts once its name and the beginning of its arguments are known; one that no mark
  announces has its name first.
- A mark that no call follows is content, and what comes after it is read again. So are a call that
  is cut off before it has started, and one whose name and arguments do not appear within
  MAX_HELD_CHARS.
- A call that has started stays a call. If its arguments break or the answer ends within them,
  CallEnd has a fault; what follows the break is content. A server should report "length" or an
  error then, not "tool_calls".
- Reasoning is recognised at the beginning of the answer only, and marks of calls within it mean
  nothing, except those that a format lists: some end it as they stand, some as the head of a call
  of one of the request's tools (call_heads.py). The mark that ends reasoning is dropped if it
  follows such a call, or if nothing but white space and such marks stand between it and the end.
- Without tools in the request, marks of calls are content.
- White space between parts is dropped (see answer_writer.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from headrace.answer_formats.answer_writer import AnswerWriter
from headrace.answer_formats.call_heads import call_heads
from headrace.answer_formats.call_syntax import (
    AnswerFormat,
    BareKeyCalls,
    CallFormat,
    CallSyntax,
    HarmonyCalls,
    HeadedCalls,
    JsonCalls,
    NestedCalls,
    PythonCalls,
    TaggedCalls,
    ThinkTags,
)
from headrace.answer_formats.deltas import ContentDelta, Delta, ReasoningDelta
from headrace.answer_formats.readers.bare_key_calls import read_bare_key_section
from headrace.answer_formats.readers.call_reading import CallReading, NotACallError
from headrace.answer_formats.readers.harmony import read_harmony
from headrace.answer_formats.readers.headed_calls import read_headed_section
from headrace.answer_formats.readers.json_calls import read_json_section
from headrace.answer_formats.readers.nested_calls import read_nested_section
from headrace.answer_formats.readers.python_calls import read_python_section
from headrace.answer_formats.readers.tagged_calls import read_tagged_section
from headrace.answer_formats.text_source import Step, TextSource


class _Run(NamedTuple):
    """A run of text that goes on as it is until one of some marks comes."""

    plain: re.Pattern[str]
    """A text in which no mark begins and that does not end with white space, which would wait for
    what follows: most tokens are such, and need not be searched."""
    delta: type[ContentDelta] | type[ReasoningDelta]
    """The delta of such a text."""


@lru_cache(maxsize=64)
def _run(markers: tuple[str, ...], delta: type[ContentDelta] | type[ReasoningDelta]) -> _Run:
    firsts = re.escape("".join(sorted({mark[0] for mark in markers})))
    free = f"[^{firsts}]" if firsts else r"[\s\S]"
    return _Run(re.compile(rf"{free}*(?![ \t\r\n]){free}"), delta)


class AnswerParser:
    """A reader of one answer.

    tools: the JSON schema of the parameters of each tool of the request; None to read no calls.
    reasoning_opened: the answer begins within reasoning (AnswerFormat.opens_reasoning).
    """

    def __init__(
        self,
        format: AnswerFormat,
        *,
        tools: Mapping[str, Mapping[str, Any]] | None = None,
        reasoning_opened: bool = False,
    ) -> None:
        self._source = TextSource()
        self._answer = AnswerWriter()
        self._reading = CallReading(self._source, self._answer, tools or {})
        self._answer.in_reasoning = reasoning_opened
        self._run: _Run | None = None
        self._steps: Step[None] | None = self._read(format, tools is not None, reasoning_opened)
        if format.calls is not None:
            self._source.feed(format.calls.opened_by)

    @property
    def in_reasoning(self) -> bool:
        """Whether the text that was fed so far ends within reasoning, as far as it is certain.

        The token with which this changes still belongs to what it ends: a server that counts
        reasoning tokens counts a token if this holds before or after it was fed.
        """
        return self._answer.in_reasoning

    def feed(self, text: str) -> list[Delta]:
        """Take more text; the deltas that are certain by now."""
        run = self._run
        if run is not None and self._goes_on(run, text):
            return [run.delta(text)]
        self._source.feed(text)
        self._advance()
        return self._answer.take()

    def passes(self, text: str) -> bool:
        """Whether more text is content as it stands; if so it is taken, and if not nothing is."""
        run = self._run
        return run is not None and run.delta is ContentDelta and self._goes_on(run, text)

    def _goes_on(self, run: _Run, text: str) -> bool:
        return (
            self._answer.in_part and self._source.all_read and run.plain.fullmatch(text) is not None
        )

    def finish(self) -> list[Delta]:
        """The last deltas, once no more text will come."""
        self._source.end()
        self._advance()
        self._answer.end()
        return self._answer.take()

    def _advance(self) -> None:
        """Read until more text is needed, or the end."""
        if self._steps is not None:
            try:
                next(self._steps)
            except StopIteration:
                self._steps = None

    def _read(self, format: AnswerFormat, with_calls: bool, opened: bool) -> Step[None]:
        calls = None if format.calls is None else format.calls.syntax
        reasoning = format.reasoning
        if isinstance(calls, HarmonyCalls) or (
            reasoning is not None and isinstance(reasoning.tags, HarmonyCalls)
        ):
            yield from read_harmony(self._reading, calls=with_calls)
            return
        syntaxes = calls if calls is not None and with_calls else ()
        dropped = () if format.calls is None else format.calls.dropped
        if reasoning is not None:
            dropped = (*dropped, *chain(*reasoning.wraps), *reasoning.dropped)
        if reasoning is not None and isinstance(reasoning.tags, ThinkTags):
            tags = reasoning.tags
            heads: dict[str, tuple[str, ...]] = {}
            if syntaxes and format.calls is not None:
                heads = _heads(format.calls, tuple(self._reading.tools))
            yield from self._read_reasoning(tags, opened, syntaxes, heads)
            if self._answer.num_calls:
                dropped = (*dropped, tags.end, *tags.other_ends)
        yield from self._read_content(syntaxes, tuple(dict.fromkeys(dropped)))

    def _read_reasoning(
        self,
        tags: ThinkTags,
        opened: bool,
        syntaxes: tuple[CallSyntax, ...],
        heads: Mapping[str, tuple[str, ...]],
    ) -> Step[None]:
        """Reasoning and what ends it. heads: of calls of the syntaxes that do, by their mark."""
        source, answer = self._source, self._answer
        source.hold()
        answer.in_reasoning = opened
        yield from source.skip_space()
        begun = yield from source.at((tags.begin, *tags.other_begins))
        if not begun:
            source.rewind(0)
        source.release()
        if not begun and not opened:
            return
        answer.in_reasoning = True
        ends = (tags.end, *tags.other_ends, *tags.also_ended_by)
        marks = tuple(dict.fromkeys((*ends, *heads)))
        self._run = run = _run(marks, ReasoningDelta)
        while (mark := (yield from source.until(marks, answer.reasoning))) and mark not in ends:
            self._run = None
            source.unread(len(mark))
            source.hold()
            head = yield from source.at(heads[mark])
            source.rewind(len(mark))
            if head:
                yield from self._read_section(syntaxes, mark)
            else:
                answer.reasoning(mark)
            if not answer.in_reasoning:
                return
            self._run = run
        self._run = None
        answer.end_reasoning()
        answer.in_reasoning = not mark
        if mark in tags.also_ended_by:
            source.unread(len(mark))
        elif mark:
            yield from self._skip_marks((tags.end, *tags.other_ends))

    def _skip_marks(self, marks: tuple[str, ...]) -> Step[None]:
        """Marks that come again, with white space before them."""
        source = self._source
        while True:
            source.hold()
            yield from source.skip_space()
            if not (yield from source.at(marks)):
                source.rewind(0)
                return
            source.release()

    def _read_content(
        self, syntaxes: tuple[CallSyntax, ...], dropped: tuple[str, ...]
    ) -> Step[None]:
        marks = [mark for syntax in syntaxes for mark in (*syntax.begins, *_bare(syntax))]
        markers = tuple(dict.fromkeys((*marks, *dropped)))
        self._run = run = _run(markers, ContentDelta)
        while mark := (yield from self._source.until(markers, self._answer.content)):
            self._run = None
            if mark in dropped:
                self._answer.end_part()
            else:
                yield from self._read_section(syntaxes, mark)
            self._run = run
        self._run = None

    def _read_section(self, syntaxes: tuple[CallSyntax, ...], mark: str) -> Step[None]:
        """What follows a mark, by the first syntax that it is of; if it is of none, the mark is
        content or, within reasoning, reasoning."""
        source, answer = self._source, self._answer
        before = answer.num_calls
        source.hold(len(mark))
        for syntax in syntaxes:
            bare = mark in _bare(syntax)
            if not bare and mark not in syntax.begins:
                continue
            if bare:
                source.unread(len(mark))
            try:
                yield from self._read_calls(syntax, bare)
            except NotACallError:
                if answer.num_calls > before:
                    answer.content(source.rewind(1))
                    return
                source.rewind(len(mark))
                source.hold(len(mark))
            else:
                source.release()
                return
        source.release()
        (answer.reasoning if answer.in_reasoning else answer.content)(mark)

    def _read_calls(self, syntax: CallSyntax, bare: bool) -> Step[None]:
        match syntax:
            case JsonCalls():
                yield from read_json_section(self._reading, syntax, bare=bare)
            case HeadedCalls():
                yield from read_headed_section(self._reading, syntax)
            case TaggedCalls():
                yield from read_tagged_section(self._reading, syntax)
            case BareKeyCalls():
                yield from read_bare_key_section(self._reading, syntax)
            case NestedCalls():
                yield from read_nested_section(self._reading, syntax)
            case PythonCalls():
                yield from read_python_section(self._reading, syntax, bare=bare)


def _heads(calls: CallFormat, tools: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The heads of calls that end reasoning, by the mark that each begins with."""
    return {
        mark: tuple(head.text for name in tools for head in call_heads(calls, mark, name))
        for mark in calls.ends_reasoning
    }


def _bare(syntax: CallSyntax) -> tuple[str, ...]:
    return () if isinstance(syntax, HeadedCalls | BareKeyCalls | NestedCalls) else syntax.bare
