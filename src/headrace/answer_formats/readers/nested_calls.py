"""Calls whose parameters are nested elements: MiniMax-M3.

    ]<]minimax[>[<tool_call>
    ]<]minimax[>[<invoke name="order">
    ]<]minimax[>[<user>42]<]minimax[>[</user>
    ]<]minimax[>[<items>]<]minimax[>[<item>pen]<]minimax[>[</item>]<]minimax[>[</items>
    ]<]minimax[>[</invoke>
    ]<]minimax[>[</tool_call>

An element with elements is an object, or a list where its schema says so or its elements are items;
elements of one name are a list, unless their schema allows none. An element without anything in it
is an empty list or object where its schema says so. A text means what its schema says, as in
tagged_calls.py. Whether an element comes twice shows at the end: the arguments are passed on
together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from headrace.answer_formats.answer_writer import SPACE
from headrace.answer_formats.call_syntax import NestedCalls
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
    is_within_string,
    typed_value,
)
from headrace.answer_formats.text_source import Step


def read_nested_section(reading: CallReading, syntax: NestedCalls) -> Step[None]:
    """A section of calls, after its mark."""
    source, before = reading.source, reading.answer.num_calls
    while True:
        yield from source.skip_space()
        called = reading.answer.num_calls > before
        mark = yield from source.at((syntax.name[0], *(syntax.section_ends if called else ())))
        if called and mark != syntax.name[0]:
            return
        if not mark:
            raise NotACallError
        if called:
            source.hold(len(mark))
        name: list[str] = []
        if not (yield from source.until((syntax.name[1],), name.append, limit=MAX_NAME_CHARS)):
            raise NotACallError
        written = "".join(name).strip(SPACE + "\"'")
        reading.start(written)
        try:
            text = yield from _members(reading, syntax, reading.tools.get(written), syntax.end, 0)
        except BrokenArgumentsError as error:
            reading.answer.end_call(str(error))
            return
        reading.answer.arguments(text or "{}")
        reading.answer.end_call()


def _members(
    reading: CallReading, syntax: NestedCalls, schema: object, end: str, depth: int
) -> Step[str]:
    """The elements up to an end, which is read, as JSON; "" where there are none."""
    source = reading.source
    check_depth(depth)
    members: dict[str, list[str]] = {}
    while True:
        yield from source.skip_space()
        mark = yield from source.at((end, syntax.prefix + "<"))
        if mark == end:
            break
        if not mark:
            raise BrokenArgumentsError(
                "an element or the end belongs here" if (yield from source.peek()) else CUT_OFF
            )
        pieces: list[str] = []
        if not (yield from source.until((">",), pieces.append, limit=MAX_NAME_CHARS)):
            raise BrokenArgumentsError(
                "an element's name has no end" if (yield from source.peek()) else CUT_OFF
            )
        key = "".join(pieces).strip(SPACE)
        declared = _declared(schema, key, syntax.item)
        members.setdefault(key, []).append(
            (yield from _value(reading, syntax, declared, f"{syntax.prefix}</{key}>", depth + 1))
        )
    if not members:
        return ""
    if members.keys() == {syntax.item} and depth and may_be_list(schema):
        return f"[{', '.join(members[syntax.item])}]"
    texts = (
        f"{json.dumps(key, ensure_ascii=False)}: "
        f"{_member(values, declared_types(_declared(schema, key, syntax.item)))}"
        for key, values in members.items()
    )
    return "{" + ", ".join(texts) + "}"


def _member(values: list[str], types: frozenset[str]) -> str:
    """What elements of one name are: of several, where none may be a list, the last counts as it
    does in JSON."""
    alone = len(values) == 1 or (types and "array" not in types)
    return values[-1] if alone else f"[{', '.join(values)}]"


def may_be_list(schema: object) -> bool:
    """Whether elements that are all items are a list: a schema says so, or there is none."""
    return "array" in declared_types(schema) or not isinstance(schema, Mapping)


def _declared(schema: object, key: str, item: str) -> object:
    """The schema of an element within one of a schema."""
    if key == item and isinstance(schema, Mapping) and "items" in schema:
        return declared_item(schema)
    return declared_member(schema, key)


def _value(
    reading: CallReading, syntax: NestedCalls, schema: object, end: str, depth: int
) -> Step[str]:
    """The value of an element as JSON, and the element's end."""
    source = reading.source
    pieces: list[str] = []
    types, marks = declared_types(schema), (end, syntax.prefix + "<")
    mark = yield from source.until(marks, pieces.append)
    while mark and "string" not in types and is_within_string("".join(pieces)):
        pieces.append(mark)
        mark = yield from source.until(marks, pieces.append)
    text = "".join(pieces)
    if not mark:
        raise BrokenArgumentsError(CUT_OFF)
    if mark == end:
        if not text.strip(SPACE) and types and "string" not in types:
            empty = "[]" if "array" in types else "{}" if "object" in types else ""
            if empty:
                return empty
        return typed_value(text, types)
    source.unread(len(mark))
    if text.strip(SPACE):
        raise BrokenArgumentsError("an element within a text")
    return (yield from _members(reading, syntax, schema, end, depth))
