"""A JSON object whose bytes are kept: read at its top level, edited without writing it anew.

A body that is forwarded in the dialect it came in loses nothing: white space, the order of names,
forms of numbers, escapes and unknown fields stay as they are. Only the values that are edited are
other bytes. What lies below the top level is passed over, never built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

import msgspec

from headrace.errors import RequestError, shown
from headrace.protocol.body_bounds import TOO_COMPLEX
from headrace.protocol.body_json import decode_object, lone_surrogate

MAX_FIELDS = 4096
"""Names at the top level. APIs have some fifty; the walk over them is in Python."""

MAX_NAME_BYTES = 4096

_SPACE = b" \t\n\r"
_QUOTE = 0x22
_BACKSLASH = 0x5C
_COMMA = 0x2C
_COLON = 0x3A
# White space is nearly always shorter; a longer run is passed in steps of this.
_SPACE_STEP_BYTES = 512

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)


class _Span(NamedTuple):
    """The place of a member in the body: its name's quote, its value and the byte after that."""

    name_at: int
    value_at: int
    end: int


class JsonObject:
    """A JSON object that is edited in place. Make one with `read`; the body is not copied until it
    is edited.

    with_capitals: names that are not only lower-case ASCII letters, as all names of APIs are.
    """

    __slots__ = ("_body", "_spans", "with_capitals")

    def __init__(
        self, body: bytes, spans: dict[str, _Span], with_capitals: tuple[str, ...]
    ) -> None:
        self._body = body
        self._spans = spans
        self.with_capitals = with_capitals

    @classmethod
    def read(cls, body: bytes) -> JsonObject:
        """Raises RequestError for what is no JSON object, is too deep or complex, or names twice.

        Of a name that is there twice, one reader takes the first value and another the last, so
        what was checked here might not be what a provider obeys. Readers in Go take names that
        differ in case alone for the same.
        """
        values = decode_object(body, _FIELDS.decode)
        if len(values) > MAX_FIELDS:
            raise RequestError(
                f"the body has {len(values)} fields; at most {MAX_FIELDS} are read",
                code=TOO_COMPLEX,
            )
        spans = _spans(body, values)
        joined = "".join(values)
        if joined.islower() and joined.isascii():
            return cls(body, spans, ())
        return cls(body, spans, _with_capitals(values))

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the order of the body."""
        return tuple(self._spans)

    @property
    def body(self) -> bytes:
        """The body as it came."""
        return self._body

    def __contains__(self, name: object) -> bool:
        return name in self._spans

    def present(self, names: Set[str]) -> Set[str]:
        """The subset of these names that it has."""
        return self._spans.keys() & names

    def value(self, name: str) -> bytes | None:
        """The value's bytes as they stand; None without such a field."""
        span = self._spans.get(name)
        return None if span is None else self._body[span.value_at : span.end]

    def beginning(self, name: str, most_bytes: int) -> bytes:
        """At most that many raw bytes of the value; none without such a field."""
        span = self._spans.get(name)
        if span is None:
            return b""
        return self._body[span.value_at : min(span.end, span.value_at + most_bytes)]

    def text(self, name: str) -> str | None:
        """A string, None where it is absent or null; raises RequestError for anything else."""
        value = self.value(name)
        if value is None or value == b"null":
            return None
        try:
            return _TEXT.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            start = shown(value[:80].decode(errors="replace"))
            problem = lone_surrogate(value) or f"must be a string, not {start}"
            raise RequestError(f"{name}: {problem}", param=name) from None

    def decoded(self, name: str) -> Any:
        """The value as plain objects; None where it is absent or null. Raises RequestError.

        Values are passed over when a body is read: only here, and in `text`, is all of one checked.
        """
        value = self.value(name)
        if value is None:
            return None
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problem = lone_surrogate(value) or error
            raise RequestError(f"{name}: cannot be read: {problem}", param=name) from None

    def edited(self, changes: Mapping[str, bytes | None]) -> bytes:
        """The body with other values: JSON for each name, or None to take the field out.

        New names come last, in the order of `changes`. A field that goes takes along the comma
        and the white space before it, or after it if it was the first one.
        """
        body = memoryview(self._body)
        pieces: list[bytes | memoryview] = []
        before = None
        prefix, end = self._edges()
        for name, span in self._spans.items():
            gap = body[prefix : span.name_at] if before is None else body[before : span.name_at]
            before = span.end
            if name not in changes:
                pieces += (gap if pieces else b"", body[span.name_at : span.end])
                continue
            value = changes[name]
            if value is not None:
                pieces += (gap if pieces else b"", body[span.name_at : span.value_at], value)
        for name, value in changes.items():
            if value is not None and name not in self._spans:
                comma = b"," if pieces else b""
                pieces += (comma, msgspec.json.encode(name), b":", value)
        return b"".join((body[:prefix], *pieces, body[end:]))

    def _edges(self) -> tuple[int, int]:
        """Where the first member begins and the last one ends; the closing brace if there is none.

        White space around the members belongs to the braces and stays.
        """
        if not self._spans:
            at = self._body.rindex(b"}")
            return at, at
        spans = list(self._spans.values())
        return spans[0].name_at, spans[-1].end


def _spans(body: bytes, values: dict[str, msgspec.Raw]) -> dict[str, _Span]:
    """Walks the top level; a value is as long as the decoder found it to be."""
    spans: dict[str, _Span] = {}
    at = _past_space(body, _past_space(body, 0) + 1)
    while body[at] == _QUOTE:
        name_end = _string_end(body, at)
        name = _TEXT.decode(body[at:name_end])
        colon = name_end if body[name_end] == _COLON else _past_space(body, name_end)
        value_at = _past_space(body, colon + 1)
        value = memoryview(values[name])
        end = value_at + len(value)
        # The decoder keeps the last value of a name: an earlier one differs from it here, or goes
        # on behind it (as numbers may), or the name comes again.
        fits = name not in spans and body.startswith(value, value_at)
        after = end if not fits or body[end] == _COMMA else _past_space(body, end)
        if not fits or body[after] not in b",}":
            raise RequestError(
                f"the body has the field {shown(name)} twice; send it once", param=name[:200]
            )
        spans[name] = _Span(at, value_at, end)
        at = _past_space(body, after + 1) if body[after] == _COMMA else after
    return spans


def _with_capitals(names: Iterable[str]) -> tuple[str, ...]:
    """Raises RequestError for names that are equal but for case."""
    by_folded: dict[str, str] = {}
    for name in names:
        first = by_folded.setdefault(name.casefold(), name)
        if first != name:
            raise RequestError(
                f"the body has the field {shown(first)} twice, the second time as {shown(name)}; "
                "send it once",
                param=name[:200],
            )
    return tuple(name for folded, name in by_folded.items() if folded != name)


def _past_space(body: bytes, at: int) -> int:
    while body[at] in _SPACE:
        step = body[at : at + _SPACE_STEP_BYTES]
        at += len(step) - len(step.lstrip(_SPACE))
    return at


def _string_end(body: bytes, at: int) -> int:
    """Behind the closing quote of the string that begins at `at`."""
    end = at
    while True:
        end = body.index(b'"', end + 1)
        if end - at > MAX_NAME_BYTES:
            raise RequestError(
                f"a field's name has more than {MAX_NAME_BYTES} bytes", code=TOO_COMPLEX
            )
        slash = end - 1
        while body[slash] == _BACKSLASH:
            slash -= 1
        if (end - slash) % 2:
            return end + 1
