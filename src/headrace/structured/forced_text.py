"""How much text an expression may leave no choice about.

Such text is written out when an answer comes to it, in one go and whatever else is in the step:
1 us a byte, and as much again for each step until it is written. It is not literals alone: a
repeated one, a list of constants that has to have some length, and required properties are as long.

    literal       fixed, its bytes
    a b           fixed if both are; otherwise the runs on both sides of what is not
    a | b         not fixed; the longer run. But fixed if one is what all begin with
    a?, a*        of an expression fixed, without bytes: what follows may be the same letters
    a{n,m}        as n of them

This is a heuristic, close in what is known to be written: the whole set of an expression's texts is
not looked at. Of "(ab|ac)(b|c)" more is counted than is forced, and expressions may be found of
which less is, where letters of several parts happen to agree behind a choice.
Parts of a structural tag are joined like those of an expression; rules in Lark force nothing, and
neither does what they stand in (`composition.UNFORCED`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

MAX_FORCED_BYTES = 1 << 14
"""Of one such text: 16 ms when an answer comes to it, which is about a step of the others."""

_TOKEN = re.compile(
    r"(?P<open>\((?:\?(?:P?<\w+>|[a-zA-Z-]*:))?)|(?P<close>\))|(?P<either>\|)"
    r"|(?P<times>[?*+]\??|\{(?P<least>\d+)(?P<more>,(?P<most>\d*))?\}\??)"
    r"|\[(?P<class>\\x[0-9a-fA-F]{2}|\\[^dDwWsSpPbBxuU]|[^\]\\^])(?:-?(?P=class))*\]"
    r"|(?P<many>\[\^?\]?(?:\\.|[^\]\\])*\]|\.|\\[dDwWsSpPbB](?:\{\^?\w+\})?)"
    r"|(?P<none>[\^$])|(?P<one>\\[xu]\{[0-9a-fA-F]+\}|\\x[0-9a-fA-F]{2}"
    r"|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\.|.)",
    re.DOTALL,
)
_CODE = re.compile(r"\\[xuU]\{?([0-9a-fA-F]+)\}?")


_MOST = 1 << 40
"""As much as is counted to: repeats of repeats would be numbers without end."""

_HEAD_BYTES = 256
"""Of a text that are compared with those of others; what agrees so far is taken to agree."""


class ForcedText(NamedTuple):
    """The text that a part of a grammar forces, in bytes."""

    fixed: int | None
    """That are in each of its texts, where these do not differ before; None where they do."""
    first: int
    """That are forced from its beginning on."""
    last: int
    """That are forced up to its end."""
    run: int
    """The most that are forced in one go within it."""
    head: bytes
    """What all of its texts begin with, as far as that is known."""


FREE = ForcedText(None, 0, 0, 0, b"")
"""Of what any text may be."""


def num_bytes(text: str) -> int:
    """Of a text as UTF-8; half a character counts as one byte."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def text_of(text: str | bytes) -> ForcedText:
    """One text."""
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return ForcedText(len(data), len(data), len(data), len(data), data[:_HEAD_BYTES])


def optional(part: ForcedText) -> ForcedText:
    """A part that may be missing, where what follows it begins in another way."""
    return part._replace(fixed=None, head=b"")


def joined(parts: Iterable[ForcedText]) -> ForcedText:
    """Parts one behind the other."""
    best = current = first = 0
    fixed: int | None = 0
    head = b""
    for part in parts:
        best = max(best, part.run, current + part.first)
        if fixed is not None:
            first = max(first, fixed + part.first)
            head = (head + part.head)[:_HEAD_BYTES]
        if part.fixed is None:
            fixed = None
            current = part.last
        else:
            fixed = None if fixed is None else min(_MOST, fixed + part.fixed)
            current = min(_MOST, max(current + part.fixed, part.last))
    return ForcedText(fixed, first, current, max(best, current), head)


def at_once(parts: Iterable[ForcedText]) -> ForcedText:
    """Parts that hold for one text."""
    listed = list(parts)
    if len(listed) == 1:
        return listed[0]
    only = next((part for part in listed if part.fixed is not None), None)
    if only is not None:
        return only
    first, last, run = (
        min(_MOST, sum(lengths))
        for lengths in zip(*((part.first, part.last, part.run) for part in listed), strict=True)
    )
    return ForcedText(None, first, last, run, max((part.head for part in listed), key=len))


def either(parts: Iterable[ForcedText]) -> ForcedText:
    """One of some parts."""
    listed = list(parts)
    if len(listed) < 2:
        return listed[0] if listed else FREE
    first, last, run = (
        max(lengths)
        for lengths in zip(*((part.first, part.last, part.run) for part in listed), strict=True)
    )
    head = _same_beginning([part.head for part in listed])
    same = len(head) if len(head) < _HEAD_BYTES else min(part.first for part in listed)
    fixed = same if any(part.fixed == same for part in listed) else None
    return ForcedText(fixed, first, last, run, head)


def _same_beginning(texts: list[bytes]) -> bytes:
    """Of all of them: that of the two which differ most."""
    first, last = min(texts), max(texts)
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return first[:length]


def repeated(part: ForcedText, least: int, most: int | None) -> ForcedText:
    """At least and at most so many; most: None for any number."""
    if most == 0:
        return text_of(b"")
    if part.fixed is None:
        return joined((part, part)) if most is None or most > 1 else part
    if not least:
        return part._replace(fixed=0, head=b"")
    # What has to be there once is counted like a fixed text: "a+" forces an "a" and goes on.
    more = min(_MOST, part.fixed * (least - 1))
    is_known = len(part.head) == part.fixed
    return ForcedText(
        part.fixed + more,
        part.first + more,
        part.last + more,
        part.run + more,
        (part.head * min(least, _HEAD_BYTES))[:_HEAD_BYTES] if is_known else part.head,
    )


class Alternatives:
    """Parts as they are read from left to right, in brackets and with what repeats them."""

    def __init__(self) -> None:
        self._open: list[list[list[ForcedText]]] = [[[]]]

    def add(self, part: ForcedText) -> None:
        """A part behind those before it."""
        self._open[-1][-1].append(part)

    def open(self) -> None:
        """A bracket."""
        self._open.append([[]])

    def close(self) -> None:
        """A bracket's end."""
        if len(self._open) > 1:
            self.add(either(map(joined, self._open.pop())))

    def other(self) -> None:
        """What stands between two alternatives."""
        self._open[-1].append([])

    def repeat(self, least: int, most: int | None) -> None:
        """What stands behind a part that is there several times."""
        if self._open[-1][-1]:
            self.add(repeated(self._open[-1][-1].pop(), least, most))

    def whole(self) -> ForcedText:
        """All of them, with brackets closed."""
        while len(self._open) > 1:
            self.close()
        return either(map(joined, self._open[0]))


def forced_by(pattern: str) -> ForcedText:
    """Of an expression; in time in proportion to its length. What is wrong in it is not judged."""
    read = Alternatives()
    for found in _TOKEN.finditer(pattern):
        if found["open"]:
            read.open()
        elif found["close"]:
            read.close()
        elif found["either"]:
            read.other()
        elif found["times"]:
            read.repeat(*_times(found))
        elif found["many"]:
            read.add(FREE)
        elif letter := found["one"] or found["class"]:
            read.add(text_of(_letter(letter)))
    return read.whole()


def _letter(written: str) -> str:
    """Of a letter or what stands for one."""
    code = _CODE.fullmatch(written)
    if code is not None:
        return chr(min(int(code[1], 16), 0x10FFFF))
    return written if len(written) == 1 else _ESCAPED.get(written[1:], written[1:])


_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}


def _times(found: re.Match[str]) -> tuple[int, int | None]:
    if found["least"] is None:
        return {"?": (0, 1), "*": (0, None), "+": (1, None)}[found["times"][0]]
    least = int(found["least"][:9])
    if found["more"] is None:
        return least, least
    return least, int(found["most"][:9]) if found["most"] else None
