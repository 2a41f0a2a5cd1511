"""How much text an expression may leave no choice about, at most.

Such text is written out when an answer comes to it, in one go and whatever else is in the step:
1 us a byte, and as much again for each step until it is written. It is not literals alone: a
repeated one, a list of constants that has to have some length, and required properties are as long.

    literal       fixed, its bytes
    a b           fixed if both are; otherwise the runs on both sides of what is not
    a | b, a?     not fixed; the longer run
    a{n,m}        as n of them

Alternatives are taken to begin differently: of "(a|aa){9}" less is counted than is forced.
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
    r"|(?P<many>\[\^?\]?(?:\\.|[^\]\\])*\]|\.|\\[dDwWsSpPbB](?:\{\^?\w+\})?)"
    r"|(?P<none>[\^$])|(?P<one>\\x\{[0-9a-fA-F]+\}|\\u\{[0-9a-fA-F]+\}|\\x[0-9a-fA-F]{2}"
    r"|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\.|.)",
    re.DOTALL,
)


_MOST = 1 << 40
"""As much as is counted to: repeats of repeats would be numbers without end."""


class ForcedText(NamedTuple):
    """The text that a part of a grammar forces, in bytes."""

    fixed: int | None
    """Of its only text; None where it has several."""
    first: int
    """That are forced from its beginning on."""
    last: int
    """That are forced up to its end."""
    run: int
    """The most that are forced in one go within it."""


FREE = ForcedText(None, 0, 0, 0)
"""Of what any text may be."""


def num_bytes(text: str) -> int:
    """Of a text as UTF-8; half a character counts as one byte."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def text_of(length: int) -> ForcedText:
    """One text of so many bytes."""
    return ForcedText(length, length, length, length)


def optional(part: ForcedText) -> ForcedText:
    """A part that may be missing."""
    return part._replace(fixed=None)


def joined(parts: Iterable[ForcedText]) -> ForcedText:
    """Parts one behind the other."""
    best = current = 0
    first: int | None = None
    for part in parts:
        if part.fixed is not None:
            current = min(_MOST, current + part.fixed)
            continue
        best = max(best, part.run, current + part.first)
        first = current + part.first if first is None else first
        current = part.last
    if first is None:
        return text_of(current)
    return ForcedText(None, first, current, max(best, current))


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
    return ForcedText(None, first, last, run)


def either(parts: Iterable[ForcedText]) -> ForcedText:
    """One of some parts."""
    listed = list(parts)
    if len(listed) == 1:
        return listed[0]
    return ForcedText(
        None,
        max((part.first for part in listed), default=0),
        max((part.last for part in listed), default=0),
        max((part.run for part in listed), default=0),
    )


def repeated(part: ForcedText, least: int, most: int | None) -> ForcedText:
    """At least and at most so many; most: None for any number."""
    if part.fixed is None:
        return joined((part, part)) if most is None or most > 1 else part
    run = min(_MOST, part.fixed * max(least, int(most != 0)))
    # What has to be there once is counted like a fixed text: "a+" forces an "a" and goes on.
    return text_of(run) if least or most == 0 else optional(text_of(run))


def forced_by(pattern: str) -> ForcedText:
    """Of an expression; in time in proportion to its length. What is wrong in it is not judged."""
    ways: list[list[list[ForcedText]]] = [[[]]]
    for found in _TOKEN.finditer(pattern):
        if found["open"]:
            ways.append([[]])
        elif found["close"]:
            if len(ways) > 1:
                inner = either(map(joined, ways.pop()))
                ways[-1][-1].append(inner)
        elif found["either"]:
            ways[-1].append([])
        elif found["times"]:
            if ways[-1][-1]:
                ways[-1][-1].append(repeated(ways[-1][-1].pop(), *_times(found)))
        elif found["many"]:
            ways[-1][-1].append(FREE)
        elif found["one"]:
            one = found["one"]
            ways[-1][-1].append(text_of(num_bytes(one) if len(one) == 1 else 1))
    while len(ways) > 1:
        inner = either(map(joined, ways.pop()))
        ways[-1][-1].append(inner)
    return either(map(joined, ways[0]))


def _times(found: re.Match[str]) -> tuple[int, int | None]:
    if found["least"] is None:
        return {"?": (0, 1), "*": (0, None), "+": (1, None)}[found["times"][0]]
    least = int(found["least"][:9])
    if found["more"] is None:
        return least, least
    return least, int(found["most"][:9]) if found["most"] else None
