"""Calls of a header and JSON arguments: DeepSeek, Kimi, newer Mistral."""

from __future__ import annotations

from headrace.answer_formats.call_syntax import HeadedCalls
from headrace.answer_formats.readers.call_reading import CallReading, NotACallError
from headrace.answer_formats.text_source import Step

_MAX_HEADER_CHARS = 512


def read_headed_section(reading: CallReading, syntax: HeadedCalls) -> Step[None]:
    """A section of calls, after its mark."""
    source = reading.source
    while True:
        header: list[str] = []
        mark = yield from source.until(("{", *syntax.ends), header.append, limit=_MAX_HEADER_CHARS)
        found = syntax.header.fullmatch("".join(header))
        if not mark or found is None:
            raise NotACallError
        groups = found.groupdict()
        if mark == "{":
            source.unread(1)
        reading.start(groups["name"], groups.get("id") or "")
        if mark == "{":
            if not (yield from reading.json_arguments()):
                return
            yield from source.skip_space()
            yield from source.at(("```",))
            yield from source.skip_space()
            yield from source.at(syntax.ends)
        else:
            reading.answer.arguments("{}")
            reading.answer.end_call()
        yield from source.skip_space()
        if (yield from source.at(syntax.section_ends)):
            return
        mark = yield from source.at(syntax.calls)
        if not mark:
            return
        source.hold(len(mark))
