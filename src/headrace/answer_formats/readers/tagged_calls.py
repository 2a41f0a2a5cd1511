"""Calls whose parameters are tags: Qwen3-Coder, GLM, MiniMax-M2, Seed-OSS, DeepSeek-V3.2.

The value of a parameter is a text without quotes, and its schema decides what it means: a string
is passed on while it comes; another type is JSON if it reads as that type, and a string if not. A
mark within a string of JSON belongs to it.
Without a schema, what reads as JSON is JSON.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from html import unescape

from headrace.answer_formats.answer_writer import SPACE
from headrace.answer_formats.call_syntax import TaggedCalls
from headrace.answer_formats.readers.call_reading import (
    CUT_OFF,
    MAX_NAME_CHARS,
    CallReading,
    NotACallError,
)
from headrace.answer_formats.text_source import Step

_JSON_STARTS = "{[-0123456789tfn \t\r\n"
_QUOTE = re.compile(r'\\.|(")', re.DOTALL)
_STRING = frozenset(("string",))
_TYPES = {
    **{
        name: name for name in ("string", "integer", "number", "boolean", "null", "array", "object")
    },
    "str": "string",
    "text": "string",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "list": "array",
    "arraylist": "array",
    "tuple": "array",
    "dict": "object",
    "map": "object",
    "hashmap": "object",
}
"""The types of JSON Schema by their names, and by names that tools have for them all the same."""
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


def read_tagged_section(reading: CallReading, syntax: TaggedCalls) -> Step[None]:
    """A section of calls, after its mark or at the mark of its first call."""
    source, before = reading.source, reading.answer.num_calls
    while True:
        yield from source.skip_space()
        called = reading.answer.num_calls > before
        if called:
            source.hold()
        while (yield from source.at(syntax.fillers)):
            yield from source.skip_space()
        mark = yield from source.at((syntax.name[0], *(syntax.section_ends if called else ())))
        if called and mark != syntax.name[0]:
            if not mark:
                source.rewind(0)
            return
        if not mark:
            raise NotACallError
        name = yield from _name(reading, syntax)
        reading.start(name)
        schema = reading.tools.get(name, {}).get("properties")
        fault = yield from _parameters(reading, syntax, schema)
        reading.answer.end_call(fault)
        if fault:
            return


def _name(reading: CallReading, syntax: TaggedCalls) -> Step[str]:
    source = reading.source
    pieces: list[str] = []
    ends = (syntax.name[1],) if syntax.name[1] else (syntax.key[0], syntax.end)
    mark = yield from source.until(ends, pieces.append, limit=MAX_NAME_CHARS)
    if not mark:
        raise NotACallError
    if not syntax.name[1]:
        source.unread(len(mark))
    return _named("".join(pieces), syntax)[0]


def _named(text: str, syntax: TaggedCalls) -> tuple[str, str | None]:
    """The name in a text between marks, and the type that is written beside it."""
    if syntax.attributes is not None and (found := syntax.attributes.search(text)):
        return unescape(found["name"]), found.groupdict().get("type")
    return text.strip(SPACE + "\"'"), None


def _parameters(reading: CallReading, syntax: TaggedCalls, schema: object) -> Step[str]:
    """All parameters of a call and its end; why they break, or ""."""
    source, answer = reading.source, reading.answer
    yield from source.skip_space()
    if syntax.json_arguments and (yield from source.peek()) == "{":
        return (yield from _json_arguments(reading, syntax))
    answer.arguments("{")
    separator = ""
    while True:
        yield from source.skip_space()
        mark = yield from source.at((syntax.key[0], syntax.end))
        if mark == syntax.end:
            answer.arguments("}")
            return ""
        if not mark:
            return (
                "neither a parameter nor the end of the call"
                if (yield from source.peek())
                else CUT_OFF
            )
        pieces: list[str] = []
        if not (yield from source.until((syntax.key[1],), pieces.append, limit=MAX_NAME_CHARS)):
            return CUT_OFF if not (yield from source.peek()) else "a parameter's name has no end"
        key, written = _named("".join(pieces), syntax)
        if not key:
            return "a parameter has no name"
        answer.arguments(f"{separator}{_quoted(key)}: ")
        separator = ", "
        if syntax.value[0]:
            yield from source.skip_space()
            if not (yield from source.at((syntax.value[0],))):
                return f"the parameter {key!r} has no value"
        declared = schema.get(key) if isinstance(schema, Mapping) else None
        types = declared_types(declared)
        if written is not None and (not types or (types & _STRING and types != _STRING)):
            types = _STRING if written in ("string", "true") else types - _STRING
        if not (yield from _value(reading, syntax, types)):
            return CUT_OFF


def _json_arguments(reading: CallReading, syntax: TaggedCalls) -> Step[str]:
    """All arguments as a JSON object, and the call's end; why they break, or ""."""
    source = reading.source
    if fault := (yield from reading.json_value(reading.answer.arguments)):
        return fault
    yield from source.skip_space()
    if (yield from source.at((syntax.end,))):
        return ""
    return "more than the arguments is there" if (yield from source.peek()) else CUT_OFF


def _value(reading: CallReading, syntax: TaggedCalls, types: frozenset[str]) -> Step[bool]:
    """A value and its end; whether the end came.

    Models forget the end of a value whose first mark is empty: a line that begins with the next
    parameter or the end of the call ends it too.
    """
    source, answer = reading.source, reading.answer
    unread = () if syntax.value[0] else ("\n" + syntax.key[0], "\n" + syntax.end)
    ends: tuple[str, ...] = (syntax.value[1], *unread)
    if syntax.own_lines and (yield from source.at(("\n",))):
        ends = ("\n" + syntax.value[1], *ends)
    if syntax.quotes is not None and (yield from source.at(syntax.quotes[:1])):
        ends = tuple(syntax.quotes[1] + end for end in ends)
        types = _STRING
    start = yield from source.peek()
    if types == _STRING or (not types and start not in _JSON_STARTS):
        answer.arguments('"')
        ended = yield from source.until(ends, lambda text: answer.arguments(_quoted(text)[1:-1]))
        answer.arguments('"' if ended else "")
    else:
        pieces: list[str] = []
        ended = yield from source.until(ends, pieces.append)
        while ended and "string" not in types and is_within_string("".join(pieces)):
            pieces.append(ended)
            ended = yield from source.until(ends, pieces.append)
        text = "".join(pieces)
        answer.arguments(typed_value(text, types) if ended else _quoted(text)[:-1])
    if ended and ended.endswith(unread):
        source.unread(len(ended.removeprefix(syntax.quotes[1] if syntax.quotes else "")) - 1)
    return bool(ended)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def is_within_string(text: str) -> bool:
    """Whether JSON that begins so goes on within a string, to which a mark then belongs."""
    return text.lstrip(SPACE)[:1] in ("{", "[") and sum(map(bool, _QUOTE.findall(text))) % 2 == 1


def _no_constant(text: str) -> object:
    raise ValueError(text)


def typed_value(text: str, types: frozenset[str]) -> str:
    """A text as the JSON value that it is meant to be, by the types that its schema allows.

    Some templates write lists and objects as Python does, some models as what a string has inside.
    """
    bare = text.strip(SPACE)
    bare = _PYTHON_WORDS.get(bare, bare) if types else bare
    value: object
    try:
        value = json.loads(bare, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        if not types & {"array", "object"} or bare[:1] not in ("{", "["):
            return _quoted(text)
        try:
            value = _written_otherwise(bare)
            bare = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return _quoted(text)
    fits = not isinstance(value, str) and (not types or types & types_of(value))
    return bare if fits else _quoted(text)


def _written_otherwise(bare: str) -> object:
    """A list or an object with the escapes of a string, or in Python's form."""
    try:
        return json.loads(json.loads(f'"{bare}"', strict=False))
    except ValueError:
        return ast.literal_eval(bare)


def types_of(value: object) -> frozenset[str]:
    """The types of JSON Schema that a value is of."""
    match value:
        case None:
            return frozenset(("null",))
        case bool():
            return frozenset(("boolean",))
        case int():
            return frozenset(("integer", "number"))
        case float():
            return frozenset(("integer", "number") if value.is_integer() else ("number",))
        case str():
            return frozenset(("string",))
        case list():
            return frozenset(("array",))
        case _:
            return frozenset(("object",))


def _known_types(names: Iterable[object]) -> frozenset[str]:
    """The types with these names; none at all where one has a name that says nothing here."""
    types = [_TYPES.get(name.lower()) if isinstance(name, str) else None for name in names]
    return frozenset(type for type in types if type) if all(types) else frozenset()


def declared_member(schema: object, key: str) -> object:
    """The schema of a member of objects of a schema; None where it says nothing of it."""
    if not isinstance(schema, Mapping):
        return None
    properties = schema.get("properties")
    found = properties.get(key) if isinstance(properties, Mapping) else None
    return schema.get("additionalProperties") if found is None else found


def declared_item(schema: object) -> object:
    """The schema of an item of lists of a schema; None where it does not say that all have one."""
    if not isinstance(schema, Mapping) or "prefixItems" in schema:
        return None
    return schema.get("items")


def declared_types(schema: object) -> frozenset[str]:
    """The types that a schema allows, as far as it says; none if it does not."""
    if not isinstance(schema, Mapping):
        return frozenset()
    match schema.get("type"):
        case str() as name:
            return _known_types((name,))
        case list() as names:
            return _known_types(names)
    for key in ("enum", "anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list) and options:
            read = types_of if key == "enum" else declared_types
            found: list[frozenset[str]] = [read(option) for option in options]
            return frozenset().union(*found) if all(found) else frozenset()
    return types_of(schema["const"]) if "const" in schema else frozenset()
