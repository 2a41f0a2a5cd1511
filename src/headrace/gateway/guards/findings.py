"""The matches of a finder in texts, and the redacted texts.

Arguments of tool calls are checked as a provider reads them, without JSON's escapes, and stay JSON.
Adjacent parts of one message are checked one by one and joined.
"""

from __future__ import annotations

import itertools
import json
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

import msgspec

from headrace.gateway.guards.guard import Finder, Match
from headrace.gateway.guards.looking import Step, go_on
from headrace.gateway.guards.replace import by_parts, fitting, merged, replaced_text
from headrace.gateway.guards.text_span import TextSpan, number_text, readable

Marker = Callable[[str, str], str]
"""Makes the mark for an original from its replacement and the original."""

# A text that has no end goes to the end: else each quote in it would be looked behind once more.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+("?)|-?\d[\d.eE+-]*+', re.DOTALL)
_LOOSE = json.JSONDecoder(strict=False)
# What has parts of one message under it.
_OF_PARTS = ("content", "system", "instructions", "output")


class Findings(NamedTuple):
    """The matches of a finder in some texts."""

    matches: list[Match]
    """In no particular order."""
    texts: tuple[str, ...]
    """The redacted texts, one for each span."""


def findings(
    finder: Finder, passages: Sequence[TextSpan], marker: Marker | None, step: Step = go_on
) -> Findings:
    """marker: None leaves replacements as the finder says. Raises LeftError where step does."""
    every: list[Match] = []
    texts: list[str] = []
    alone = finder.find_each(
        (passage.text for passage in passages if passage.kind != "arguments"), step
    )
    for parts in _messages(passages):
        if parts[0].kind == "arguments":
            texts.append(_of_arguments(finder, parts[0].text, marker, every, step))
            continue
        each = [next(alone) for _ in parts]
        if len(parts) == 1 and not each[0]:
            texts.append(parts[0].text)
            continue
        joined = "".join(part.text for part in parts)
        bounds = list(itertools.accumulate((len(one.text) for one in parts), initial=0))
        found = [
            match._replace(start=match.start + base, end=match.end + base)
            for matches, base in zip(each, bounds, strict=False)
            for match in matches
        ]
        if len(parts) > 1:
            (across,) = finder.find_each((joined,), step)
            found += (one for one in across if _is_cut(one, bounds))
            found = merged(found)
        every += found
        marked = [_marked(one, joined, marker) for one in found]
        texts += (
            replaced_text(one.text, reaching, base)
            for one, (base, reaching) in zip(parts, by_parts(marked, bounds), strict=True)
        )
    return Findings(every, tuple(texts))


def _is_cut(match: Match, bounds: Sequence[int]) -> bool:
    """Whether a part ends within it."""
    return bounds[bisect_right(bounds, match.start)] < match.end


def _messages(passages: Iterable[TextSpan]) -> Iterator[list[TextSpan]]:
    parts: list[TextSpan] = []
    for passage in passages:
        if parts and not _follows(parts[-1], passage):
            yield parts
            parts = []
        parts.append(passage)
    if parts:
        yield parts


def _follows(before: TextSpan, after: TextSpan) -> bool:
    """Whether both are parts of one message."""
    one, two = before.path, after.path
    if len(one) != len(two) or before.kind != after.kind or after.kind == "arguments":
        return False
    differing = [at for at in range(len(one)) if one[at] != two[at]]
    if len(differing) != 1 or not isinstance(one[differing[0]], int):
        return False
    at = differing[0]
    # Items of an answer of the Responses API are messages.
    return at > 0 and one[at - 1] in _OF_PARTS and not (at == 1 and one[0] == "output")


def _of_arguments(
    finder: Finder, text: str, marker: Marker | None, every: list[Match], step: Step
) -> str:
    if not finder.may_find(text):
        return text
    (around,) = finder.find_each((text,), step)
    was_json = bool(around) and _is_json(text)
    edits: list[Match] = []
    tokens: list[tuple[int, int]] = []
    reading = _Reading(text)
    for found in finder.find_each(reading, step):
        token, said = reading.waiting.popleft()
        if around:
            tokens.append(token.span())
        if found:
            every += found
            new = replaced_text(said, [_marked(one, said, marker) for one in found])
            told = msgspec.json.encode(readable(new)).decode()
            edits.append(Match(*token.span(), told[:-1] if token[1] == "" else told, ""))
    around = [one for one in around if not (was_json and is_within(one, tokens))]
    every += around
    edits += fitting([_marked(one, text, marker) for one in around])
    new = replaced_text(text, merged(edits))
    # A match of more than one value may take JSON's own marks with it.
    return "{}" if around and was_json and not _is_json(new) else new


class _Reading:
    """The strings and numbers of JSON text as they are read. waiting: texts that are not processed
    yet, with their places; the consumer removes them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.waiting: deque[tuple[re.Match[str], str]] = deque()

    def __iter__(self) -> Iterator[str]:
        for token in _TOKEN.finditer(self._text):
            said = token_text(token[0] + '"' if token[1] == "" else token[0])
            self.waiting.append((token, said))
            yield said


def is_within(match: Match, spans: Sequence[tuple[int, int]]) -> bool:
    """Whether one of the spans, which stand in order and apart, holds all of it."""
    after = bisect_right(spans, match.start, key=itemgetter(0))
    return after > 0 and match.end <= spans[after - 1][1]


def token_text(token: str) -> str:
    """A text or a number of JSON as it reads; "" for what is damaged."""
    if token[0] == '"' and "\\" not in token:
        return readable(token[1:-1])
    try:
        value = _LOOSE.decode(token)
    except ValueError:
        return ""
    return readable(value) if isinstance(value, str) else number_text(value)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _marked(match: Match, text: str, marker: Marker | None) -> Match:
    if marker is None:
        return match
    original = text[match.start : match.end]
    return match._replace(replacement=marker(match.replacement, original))
