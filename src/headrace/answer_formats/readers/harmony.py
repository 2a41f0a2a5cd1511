"""Harmony, the format of gpt-oss: messages with headers, on channels.

The channel `analysis` is reasoning; a message with a recipient is a call, `functions.` before its
name left out; all else is content, including what the channel `commentary` says before a call. The
tokens `<|call|>` and `<|return|>` may be missing: generation ends there. Behind a call models
repeat the channel's name before the next message, which means nothing.
"""

from __future__ import annotations

import re

from headrace.answer_formats.answer_writer import SPACE
from headrace.answer_formats.harmony_marks import (
    ANALYSIS,
    CALL,
    CHANNEL,
    COMMENTARY,
    END,
    FUNCTIONS,
    MESSAGE,
    RETURN,
    START,
)
from headrace.answer_formats.readers.call_reading import CUT_OFF, CallReading
from headrace.answer_formats.text_source import Sink, Step

_CHANNEL = re.compile(rf"{re.escape(CHANNEL)}\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_ENDS = (END, CALL, RETURN, START, CHANNEL)
_STARTS = (START, CHANNEL, "to=")
_PEOPLE = ("assistant", "user", "all")
"""Recipients that are not tools."""
_MAX_HEADER_CHARS = 1024


def read_harmony(reading: CallReading, *, calls: bool) -> Step[None]:
    """A whole answer. calls: whether messages with recipients are calls; content otherwise."""
    source, answer = reading.source, reading.answer
    while True:
        if answer.num_calls:
            yield from _skip_channel_name(reading)
        space: list[str] = []
        yield from source.run(re.compile(r"[ \t\r\n]*"), space.append)
        source.hold()
        mark = yield from source.at(_STARTS)
        if not mark:
            source.release()
            answer.content("".join(space))
            mark = yield from source.until(_ENDS, answer.content)
            if not mark:
                return
            if mark in _STARTS:
                source.unread(len(mark))
            continue
        header = [mark]
        if not (yield from source.until((MESSAGE,), header.append, limit=_MAX_HEADER_CHARS)):
            answer.content(source.rewind(len(mark)))
            yield from source.until((), answer.content)
            return
        source.release()
        yield from _message(reading, "".join(header), calls)


def _skip_channel_name(reading: CallReading) -> Step[None]:
    """The name of the channel of calls where a message follows."""
    source = reading.source
    source.hold()
    if (yield from source.at((COMMENTARY,))):
        yield from source.skip_space()
        if mark := (yield from source.at((START, CHANNEL))):
            source.unread(len(mark))
            source.release()
            return
    source.rewind(0)


def _message(reading: CallReading, header: str, calls: bool) -> Step[None]:
    """A message's body, of which its header is read."""
    source, answer = reading.source, reading.answer
    recipient = _RECIPIENT.search(header) if calls else None
    channels = _CHANNEL.findall(header)
    if recipient is not None and recipient.group(1) not in _PEOPLE:
        answer.start_call(recipient.group(1).removeprefix(FUNCTIONS), "")
        yield from _call(reading)
        return
    thought = channels[-1:] == [ANALYSIS]
    sink: Sink = answer.reasoning if thought else answer.content
    answer.in_reasoning = thought
    mark = yield from source.until(_ENDS, sink)
    if thought:
        answer.end_reasoning()
        answer.in_reasoning = not mark
    if mark in _STARTS:
        source.unread(len(mark))


def _call(reading: CallReading) -> Step[None]:
    source, answer = reading.source, reading.answer
    yield from source.skip_space()
    pieces: list[str] = []

    def pass_on(text: str) -> None:
        pieces.append(text)
        answer.arguments(text)

    mark = yield from source.until(_ENDS, pass_on)
    if mark in _STARTS:
        source.unread(len(mark))
    text = "".join(pieces).strip(SPACE)
    if not text and mark:
        answer.arguments("{}")
    answer.end_call("" if text or mark else CUT_OFF)
