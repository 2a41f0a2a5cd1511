"""Calls as JSON objects: Hermes and Qwen, Llama 3, older Mistral, Granite, Phi-4 and others."""

from __future__ import annotations

import json
from dataclasses import dataclass

from headrace.answer_formats.answer_writer import json_object_fault
from headrace.answer_formats.call_syntax import JsonCalls
from headrace.answer_formats.readers.call_reading import MAX_NAME_CHARS, CallReading, NotACallError
from headrace.answer_formats.text_source import Step

_FENCES = ("```json", "```")


def read_json_section(reading: CallReading, syntax: JsonCalls, *, bare: bool) -> Step[bool]:
    """A section of calls, after its mark or at its first character; whether all calls are whole."""
    source, before = reading.source, reading.answer.num_calls
    yield from source.skip_space()
    fenced = yield from source.at(_FENCES)
    arrays = 0
    while True:
        yield from source.skip_space()
        called = reading.answer.num_calls > before
        if arrays == 0 and called and fenced and (yield from source.at(("```",))):
            fenced = ""
            continue
        if (yield from source.at(syntax.fillers)):
            continue
        if (yield from source.at(syntax.ends)):
            if not called:
                raise NotACallError
            return True
        character = yield from source.peek()
        if character == "{":
            if called:
                source.hold()
            call = _JsonCall(reading, syntax, bare)
            whole = yield from call.read_named() if syntax.name_is_key else call.read()
            if not whole:
                return False
        elif character == "[" and not called and not arrays:
            arrays += 1
            yield from source.take(1)
        elif arrays and (character == "]" or (character == "," and called)):
            arrays -= character == "]"
            yield from source.take(1)
            if not called and not arrays:
                raise NotACallError
        elif character == ";" and called and not arrays:
            source.hold()
            yield from source.take(1)
            yield from source.skip_space()
            if (yield from source.peek()) != "{":
                source.rewind(0)
                return True
        elif called:
            return True
        else:
            raise NotACallError


def _nowhere(text: str) -> None:
    """A sink for what means nothing."""


@dataclass(slots=True)
class _JsonCall:
    """One object that may be a call."""

    reading: CallReading
    syntax: JsonCalls
    bare: bool
    name: str = ""
    id: str = ""
    held: str = ""
    """Arguments that came before the name."""
    started: bool = False

    def read(self) -> Step[bool]:
        """Read it from its brace on; whether more calls may follow."""
        closed = yield from self._members()
        if not self.started:
            if self.bare or not self.name or not closed:
                raise NotACallError
            self._start("{}")
        return closed

    def read_named(self) -> Step[bool]:
        """Read an object whose one key is the name, from its brace on."""
        source = self.reading.source
        yield from source.take(1)
        yield from source.skip_space()
        self.name = yield from self.reading.held_string(limit=MAX_NAME_CHARS)
        yield from source.skip_space()
        if (yield from source.take(1)) != ":":
            raise NotACallError
        yield from source.skip_space()
        if not (yield from self._arguments()):
            return False
        return (yield from self._rest())

    def _members(self) -> Step[bool]:
        """The members up to the closing brace; False where the object breaks."""
        source = self.reading.source
        yield from source.take(1)
        while True:
            yield from source.skip_space()
            character = yield from source.peek()
            if character == "}" or character == ",":
                yield from source.take(1)
                if character == "}":
                    return True
            elif character == '"':
                if not (yield from self._member()):
                    return False
                if self.started:
                    return (yield from self._rest())
            else:
                raise NotACallError

    def _rest(self) -> Step[bool]:
        """What the object has after the arguments; a brace that is missing there is no fault."""
        source = self.reading.source
        while True:
            yield from source.skip_space()
            character = yield from source.peek()
            if character and character in "},:":
                yield from source.take(1)
                if character == "}":
                    return True
            elif not character or not (character in '"{[-' or character.isalnum()):
                return True
            elif (yield from self.reading.json_value(_nowhere)):
                return False

    def _member(self) -> Step[bool]:
        reading, syntax = self.reading, self.syntax
        source = reading.source
        key = yield from reading.held_string(limit=MAX_NAME_CHARS)
        yield from source.skip_space()
        if (yield from source.take(1)) != ":":
            raise NotACallError
        yield from source.skip_space()
        if key in syntax.argument_keys:
            return (yield from self._arguments())
        if key == "function" and (yield from source.peek()) == "{":
            return (yield from self._members())
        if key in syntax.wrapper_keys and (yield from source.peek()) in ("[", "{"):
            self.started = yield from read_json_section(reading, syntax, bare=self.bare)
            return self.started
        if key in syntax.name_keys and not self.name:
            self.name = yield from reading.held_string()
            if self.bare and self.name not in reading.tools:
                raise NotACallError
            if self.held:
                self._start(self.held)
        elif key in syntax.id_keys:
            self.id = yield from reading.held_scalar()
        elif self.bare and key not in syntax.other_keys:
            raise NotACallError
        else:
            yield from reading.held_json()
        return True

    def _arguments(self) -> Step[bool]:
        """The arguments: streamed if the name is known, held if not."""
        if self.bare and not self.name:
            raise NotACallError
        character = yield from self.reading.source.peek()
        if character == "{" and self.name:
            self.reading.start(self.name, self.id, known=self.bare)
            self.started = True
            return (yield from self.reading.json_arguments())
        text = yield from self.reading.held_json()
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise NotACallError from None
        text = "{}" if value is None else value if isinstance(value, str) else text
        if json_object_fault(text):
            raise NotACallError
        if self.name:
            self._start(text)
        else:
            self.held = text
        return True

    def _start(self, arguments: str) -> None:
        self.reading.start(self.name, self.id, known=self.bare)
        self.started = True
        self.reading.answer.arguments(arguments)
        self.reading.answer.end_call()
