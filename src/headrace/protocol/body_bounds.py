"""Bounds on the JSON in a body, checked before it is decoded.

A decoder makes an object of every value in one go, and nothing else of this process runs meanwhile:
arrays and objects take most (a body of 16 MiB may have eight million), names come next, then the
other values. Strings take little, however long. Marks are counted where they stand; only a body
that has too many is looked at again, without those in its strings, and in steps between which
other threads run.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.errors import RequestError

TOO_COMPLEX = "body_too_complex"

MAX_CONTAINERS = 2**16
"""Arrays and objects: far more than conversations and lists of prompts have."""

MAX_NAMES = 2**19
"""Names in objects: a bias for every token of the largest vocabularies is half of that."""

# Small enough that a step takes less than a millisecond.
_STEP_BYTES = 2**18
_UNCOUNTED_BYTES = 2**16


class BodyBounds(NamedTuple):
    """The most that a body may have of each kind; none is below 65,536."""

    containers: int = MAX_CONTAINERS
    """Arrays and objects."""
    names: int = MAX_NAMES
    """Names in objects."""
    values: int | None = None
    """Values in arrays and objects; None for as many as a body holds."""


DEFAULT_BOUNDS = BodyBounds()


class _Marks(NamedTuple):
    """Counts of containers, names and the commas between values."""

    containers: int = 0
    names: int = 0
    commas: int = 0

    @classmethod
    def of(cls, json: bytes) -> _Marks:
        """Those in a piece of a body."""
        return cls(json.count(b"[") + json.count(b"{"), json.count(b":"), json.count(b","))

    def plus(self, other: _Marks) -> _Marks:
        """The marks of two pieces."""
        return _Marks(*(mine + its for mine, its in zip(self, other, strict=True)))

    def excess(self, bounds: BodyBounds) -> str | None:
        """What there is too much of, in words, with the limit."""
        if self.containers > bounds.containers:
            return f"{bounds.containers} arrays and objects"
        if self.names > bounds.names:
            return f"{bounds.names} names"
        if bounds.values is not None and self.commas >= bounds.values:
            return f"{bounds.values} values"
        return None


def check_bounds(body: bytes | bytearray | memoryview, bounds: BodyBounds = DEFAULT_BOUNDS) -> None:
    """Raise RequestError, code body_too_complex, for a body of too many values."""
    if len(body) <= _UNCOUNTED_BYTES:
        return
    body = bytes(body)
    marks = _Marks()
    for at in range(0, len(body), _STEP_BYTES):
        marks = marks.plus(_Marks.of(body[at : at + _STEP_BYTES]))
    if marks.excess(bounds) is None:
        return
    if (excess := _excess_outside_strings(body, bounds)) is not None:
        raise RequestError(
            f"the body has more than {excess}; send several requests with fewer each",
            code=TOO_COMPLEX,
        )


def _excess_outside_strings(body: bytes, bounds: BodyBounds) -> str | None:
    marks = _Marks()
    at, in_string = 0, False
    while at < len(body):
        step = body[at : at + _STEP_BYTES]
        # No escape is cut in two: an odd backslash at the end takes the character it escapes along.
        if (len(step) - len(step.rstrip(b"\\"))) % 2:
            step = body[at : at + _STEP_BYTES + 1]
        at += len(step)
        pieces = step.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        marks = marks.plus(_Marks.of(b"".join(pieces[in_string::2])))
        if (excess := marks.excess(bounds)) is not None:
            return excess
        in_string ^= len(pieces) % 2 == 0
    return None


def check_utf8(body: bytes) -> None:
    """Raise RequestError for bytes that are not text: a reader that passes over values takes them
    for a string, and whoever is passed the body does not."""
    if body.isascii():
        return
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not valid UTF-8: {error}") from None
