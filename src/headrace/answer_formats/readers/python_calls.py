"""Calls as in Python: Llama 3.2 and 4, OLMo 3, LFM2. The arguments are passed on as JSON."""

from __future__ import annotations

import json
import re

from headrace.answer_formats.call_syntax import PythonCalls
from headrace.answer_formats.readers.call_reading import (
    CUT_OFF,
    MAX_NAME_CHARS,
    BrokenArgumentsError,
    CallReading,
    NotACallError,
    check_depth,
)
from headrace.answer_formats.text_source import Sink, Step

_FENCES = ("```python", "```")
_NAME = re.compile(r"[\w.\-]*")
_ATOM = re.compile(r"[\w.+\-]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+\-]?\d+)?", re.ASCII)
_LEADING_ZEROS = re.compile(r"(?<![\d.+eE])0+(?=\d)", re.ASCII)
_WORDS = {"true": "true", "false": "false", "none": "null", "null": "null"}
_PLAIN = re.compile(r"[^'\"\\]*")
_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0",
    "\\": "\\", "'": "'", '"': '"', "\n": "",
}  # fmt: skip
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_CLOSING = {"[": "]", "(": ")", "{": "}"}


def read_python_section(reading: CallReading, syntax: PythonCalls, *, bare: bool) -> Step[None]:
    """A section of calls, after its mark or at the bracket of their list."""
    source, before = reading.source, reading.answer.num_calls
    yield from source.skip_space()
    if (yield from source.at(_FENCES)):
        yield from source.skip_space()
    in_list = bool((yield from source.at(("[",))))
    while True:
        yield from source.skip_space()
        called = reading.answer.num_calls > before
        if called and in_list and (yield from source.at(("]",))):
            in_list = False
            continue
        if called and (yield from source.at(_FENCES[-1:])):
            continue
        if called and (yield from source.at(syntax.ends)):
            return
        if called and not in_list and (bare or not syntax.ends):
            return
        if called:
            source.hold()
            if (yield from source.at((",", ";"))):
                yield from source.skip_space()
        name: list[str] = []
        yield from source.run(_NAME, name.append)
        if (yield from source.peek()) != "(" or len("".join(name)) > MAX_NAME_CHARS:
            if not called:
                raise NotACallError
            source.rewind(0)
            return
        reading.start("".join(name), known=bare)
        try:
            yield from _arguments(reading)
        except BrokenArgumentsError as error:
            reading.answer.end_call(str(error))
            return
        reading.answer.end_call()


def _arguments(reading: CallReading) -> Step[None]:
    """Keyword arguments in parentheses, as a JSON object."""
    source, answer = reading.source, reading.answer
    yield from source.take(1)
    answer.arguments("{")
    separator = ""
    while True:
        yield from source.skip_space()
        if (yield from source.at((")",))):
            answer.arguments("}")
            return
        if separator:
            yield from _expect(reading, ",")
            if (yield from source.at((")",))):
                answer.arguments("}")
                return
        name: list[str] = []
        yield from source.run(_NAME, name.append)
        if not (yield from source.peek()):
            raise BrokenArgumentsError(CUT_OFF)
        if not name:
            raise BrokenArgumentsError("an argument without a name")
        yield from source.skip_space()
        yield from _expect(reading, "=")
        answer.arguments(f"{separator}{json.dumps(''.join(name), ensure_ascii=False)}: ")
        separator = ", "
        yield from _value(reading, 0)


def _expect(reading: CallReading, character: str) -> Step[None]:
    """Read a character and the space after it."""
    source = reading.source
    if not (yield from source.at((character,))):
        found = yield from source.peek()
        raise BrokenArgumentsError(
            f"{found!r} is where {character!r} belongs" if found else CUT_OFF
        )
    yield from source.skip_space()


def _value(reading: CallReading, depth: int) -> Step[None]:
    source, answer = reading.source, reading.answer
    start = yield from source.peek()
    if not start:
        raise BrokenArgumentsError(CUT_OFF)
    if start in "'\"":
        yield from _string(reading, answer.arguments)
    elif start in _CLOSING:
        check_depth(depth)
        yield from _container(reading, depth + 1)
    else:
        pieces: list[str] = []
        yield from source.run(_ATOM, pieces.append)
        atom = "".join(pieces)
        if not (yield from source.peek()):
            raise BrokenArgumentsError(CUT_OFF)
        number = _LEADING_ZEROS.sub("", atom)
        text = number if _NUMBER.fullmatch(number) else _WORDS.get(atom.lower())
        if text is None:
            raise BrokenArgumentsError(f"{atom or start!r} is not a literal")
        answer.arguments(text)
    yield from source.skip_space()


def _container(reading: CallReading, depth: int) -> Step[None]:
    """A list, a tuple, a dictionary or a set, which is told by what follows its first string."""
    source, answer = reading.source, reading.answer
    bracket = yield from source.take(1)
    closing = _CLOSING[bracket]
    keyed = bracket == "{"
    separator = ""
    if not keyed:
        answer.arguments("[")
    while True:
        yield from source.skip_space()
        if separator:
            if (yield from source.at((closing,))):
                break
            yield from _expect(reading, ",")
        if (yield from source.at((closing,))):
            if keyed and not separator:
                answer.arguments("{")
            break
        if bracket == "{":
            if (yield from source.peek()) not in ("'", '"'):
                raise BrokenArgumentsError(
                    "a key is not a string" if (yield from source.peek()) else CUT_OFF
                )
            pieces: list[str] = []
            yield from _string(reading, pieces.append)
            yield from source.skip_space()
            if not separator:
                keyed = (yield from source.peek()) not in (",", "}")
                answer.arguments("{" if keyed else "[")
            answer.arguments(separator + "".join(pieces))
            if keyed:
                yield from _expect(reading, ":")
                answer.arguments(": ")
        else:
            answer.arguments(separator)
        separator = ", "
        if keyed or bracket != "{":
            yield from _value(reading, depth)
    answer.arguments("}" if keyed else "]")


def _string(reading: CallReading, sink: Sink) -> Step[None]:
    """A string, passed to the sink as JSON.

    Models forget to escape quotes: one that nothing follows which may follow a string belongs to
    the string.
    """
    source = reading.source
    quote = yield from source.take(1)
    sink('"')
    while True:
        yield from source.run(_PLAIN, lambda text: sink(_inner(text)))
        character = yield from source.take(1)
        if not character:
            raise BrokenArgumentsError(CUT_OFF)
        if character == quote:
            source.hold()
            yield from source.skip_space()
            after = yield from source.peek()
            source.rewind(0)
            if not after or after in ",:)]}":
                sink('"')
                return
        sink(_inner((yield from _escape(reading)) if character == "\\" else character))


def _escape(reading: CallReading) -> Step[str]:
    """What an escape sequence stands for; as in Python, an unknown one stays as it is."""
    source = reading.source
    character = yield from source.take(1)
    if character in _HEX_DIGITS:
        digits = yield from source.take(_HEX_DIGITS[character])
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise BrokenArgumentsError(f"\\{character}{digits} is not a character") from None
    return _ESCAPES.get(character, "\\" + character)


def _inner(text: str) -> str:
    """The inside of a JSON string; what UTF-8 cannot carry is escaped."""
    quoted = json.dumps(text, ensure_ascii=False)[1:-1]
    return re.sub("[\ud800-\udfff]", lambda match: f"\\u{ord(match.group()):04x}", quoted)
