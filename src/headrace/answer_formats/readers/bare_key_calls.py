"""Calls whose arguments look like JSON without its quotes: Gemma 4 and FunctionGemma.

    <|tool_call>call:get_weather{city:<|"|>Oslo<|"|>,days:3,at:{hours:[6,18]}}<tool_call|>

A key is a word; a string stands between two marks of its own and has no escapes, so that all that
is not the mark belongs to it. The arguments are passed on as JSON. What stands bare and is neither
a number nor a word of JSON is a string.
"""

from __future__ import annotations

import json
import re

from headrace.answer_formats.answer_writer import SPACE
from headrace.answer_formats.call_syntax import BareKeyCalls
from headrace.answer_formats.readers.call_reading import (
    CUT_OFF,
    MAX_NAME_CHARS,
    BrokenArgumentsError,
    CallReading,
    NotACallError,
    check_depth,
)
from headrace.answer_formats.readers.tagged_calls import (
    declared_item,
    declared_member,
    declared_types,
    typed_value,
)
from headrace.answer_formats.text_source import Step

_BARE = re.compile(r"[^,\[\]{}<]*")
_CLOSING = {"[": "]", "{": "}"}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+\-]?\d+)?", re.ASCII)
_WORDS = {"true": "true", "false": "false", "null": "null", "none": "null"}


def read_bare_key_section(reading: CallReading, syntax: BareKeyCalls) -> Step[None]:
    """One call, after its mark."""
    source = reading.source
    name: list[str] = []
    mark = yield from source.until(("{", *syntax.ends), name.append, limit=MAX_NAME_CHARS)
    if not mark:
        raise NotACallError
    written = "".join(name).strip(SPACE)
    reading.start(written)
    if mark != "{":
        reading.answer.arguments("{}")
        reading.answer.end_call()
        return
    source.unread(1)
    try:
        yield from _container(reading, syntax, reading.tools.get(written), 0)
    except BrokenArgumentsError as error:
        reading.answer.end_call(str(error))
        return
    reading.answer.end_call()
    yield from source.skip_space()
    yield from source.at(syntax.ends)


def _container(
    reading: CallReading, syntax: BareKeyCalls, schema: object, depth: int
) -> Step[None]:
    """An object or a list. schema: of the whole, as far as it is known."""
    source, answer = reading.source, reading.answer
    check_depth(depth)
    bracket = yield from source.take(1)
    closing = _CLOSING[bracket]
    answer.arguments(bracket)
    separator = ""
    while True:
        yield from source.skip_space()
        if (yield from source.at((closing,))):
            answer.arguments(closing)
            return
        if separator:
            if not (yield from source.at((",",))):
                character = yield from source.peek()
                raise BrokenArgumentsError(
                    f"{character!r} is where ',' belongs" if character else CUT_OFF
                )
            yield from source.skip_space()
            if (yield from source.at((closing,))):
                answer.arguments(closing)
                return
        answer.arguments(separator)
        separator = ", "
        if bracket == "{":
            key = yield from _key(reading, syntax)
            answer.arguments(f"{_quoted(key)}: ")
            declared = declared_member(schema, key)
        else:
            declared = declared_item(schema)
        yield from source.skip_space()
        yield from _value(reading, syntax, declared, depth)


def _key(reading: CallReading, syntax: BareKeyCalls) -> Step[str]:
    source = reading.source
    pieces: list[str] = []
    if not (yield from source.until((":",), pieces.append, limit=MAX_NAME_CHARS)):
        raise BrokenArgumentsError("a key has no end" if (yield from source.peek()) else CUT_OFF)
    return (
        "".join(pieces)
        .strip(SPACE)
        .removeprefix(syntax.quote)
        .removesuffix(syntax.quote)
        .strip("\"'")
    )


def _value(reading: CallReading, syntax: BareKeyCalls, declared: object, depth: int) -> Step[None]:
    source, answer = reading.source, reading.answer
    character = yield from source.peek()
    if not character:
        raise BrokenArgumentsError(CUT_OFF)
    if character in _CLOSING:
        yield from _container(reading, syntax, declared, depth + 1)
    elif (yield from source.at((syntax.quote,))):
        types = declared_types(declared)
        if syntax.all_quoted and types != {"string"}:
            pieces: list[str] = []
            ended = yield from source.until((syntax.quote,), pieces.append)
            text = "".join(pieces)
            answer.arguments(typed_value(text, types) if ended else _quoted(text)[:-1])
        else:
            answer.arguments('"')
            ended = yield from source.until(
                (syntax.quote,), lambda text: answer.arguments(_quoted(text)[1:-1])
            )
            answer.arguments('"' if ended else "")
        if not ended:
            raise BrokenArgumentsError(CUT_OFF)
    else:
        yield from _bare(reading)


def _bare(reading: CallReading) -> Step[None]:
    source, answer = reading.source, reading.answer
    pieces: list[str] = []
    yield from source.run(_BARE, pieces.append)
    if not (yield from source.peek()):
        raise BrokenArgumentsError(CUT_OFF)
    atom = "".join(pieces).strip(SPACE)
    if not atom:
        raise BrokenArgumentsError("a value is missing")
    known = atom if _NUMBER.fullmatch(atom) else _WORDS.get(atom.lower())
    answer.arguments(known if known is not None else _quoted(atom.strip("\"'")))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
