"""A text fed to a parser in every way that could matter."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from headrace.answer_formats.deltas import (
    CallDelta,
    CallEnd,
    CallStart,
    ContentDelta,
    Delta,
    ParsedAnswer,
    ReasoningDelta,
    joined,
)
from headrace.answer_formats.formats import AnswerFormat
from headrace.answer_formats.parser import AnswerParser

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "options": {"type": "object"},
        "unit": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
}
Cut: TypeAlias = Callable[[str], Iterable[list[str]]]
"""Ways to cut a text into pieces."""
Tools: TypeAlias = Mapping[str, Mapping[str, Any]]
TOOLS: Tools = {
    "get_weather": WEATHER,
    "get_time": {"type": "object", "properties": {"zone": {"type": "string"}}},
    "refresh": {},
}


def run(
    format: AnswerFormat,
    pieces: Sequence[str],
    opened: bool = False,
    tools: Tools | None = TOOLS,
) -> list[Delta]:
    opened = opened or format.opens_reasoning("")
    parser = AnswerParser(format, tools=tools, reasoning_opened=opened)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    return deltas + parser.finish()


def merged(deltas: Sequence[Delta]) -> list[Delta]:
    """Deltas with neighbours of one kind joined, which is all that cuts may change."""
    result: list[Delta] = []
    for delta in deltas:
        match (result[-1] if result else None, delta):
            case (ContentDelta(before), ContentDelta(text)):
                result[-1] = ContentDelta(before + text)
            case (ReasoningDelta(before), ReasoningDelta(text)):
                result[-1] = ReasoningDelta(before + text)
            case (CallDelta(index, before), CallDelta(_, text)):
                result[-1] = CallDelta(index, before + text)
            case _:
                result.append(delta)
    return result


MOST_IN_TWO = 80
"""Places at which a text is cut in two, which takes quadratic time: all those of a short one."""


def cuts(text: str) -> Iterator[list[str]]:
    """Every way to cut a text in two, or of a long one many; into its characters, so that each
    place is a cut; and some into several pieces."""
    yield list(text)
    source = random.Random(len(text))
    for at in source.sample(range(len(text)), min(len(text), MOST_IN_TWO)):
        yield [text[:at], text[at:]]
    for _ in range(10):
        places = sorted(source.choices(range(len(text) + 1), k=source.randint(2, 12)))
        edges = [0, *places, len(text)]
        yield [text[start:end] for start, end in itertools.pairwise(edges)]


def some_cuts(text: str, count: int = 6) -> Iterator[list[str]]:
    """A text cut into its characters and, at some places, in two and in three."""
    yield list(text)
    source = random.Random(len(text))
    for _ in range(count):
        first, second = sorted(source.choices(range(len(text) + 1), k=2))
        yield [text[:first], text[first:]]
        yield [text[:first], text[first:second], text[second:]]


def parsed(
    format: AnswerFormat,
    text: str,
    opened: bool = False,
    tools: Tools | None = TOOLS,
    cut: Cut = cuts,
) -> ParsedAnswer:
    """The answer that a text is, after a check that it is the same at every cut."""
    expected = merged(run(format, [text], opened, tools))
    for pieces in cut(text):
        assert merged(run(format, pieces, opened, tools)) == expected, pieces
    starts = [delta.index for delta in expected if isinstance(delta, CallStart)]
    ends = [delta.index for delta in expected if isinstance(delta, CallEnd)]
    assert starts == ends == list(range(len(starts)))
    return joined(expected)
