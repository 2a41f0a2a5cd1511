"""What changes in the part of a prompt that an application sends each time."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from headrace.gateway.prompt_cache.prompt import Prompt, Segment, tokens_of

Moving = Literal[
    "timestamp", "time", "date", "uuid", "request id", "counter", "name", "number",
    "order of tools", "order of JSON keys", "white space", "tools", "text",
]  # fmt: skip

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = (
    r"(?:\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}"
    rf"|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}|\d{{1,2}}\.? {_MONTH},? \d{{4}})"
)
_TIME = r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?:\s?[ap]m\b)?"
_ID = r"(?:[a-z]{2,8}[-_])?(?=[0-9a-z]*\d)(?=[0-9a-z]*[a-z])[0-9a-z]{10,64}"
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_KINDS: tuple[tuple[Moving, re.Pattern[str]], ...] = (
    ("timestamp", re.compile(rf"{_DATE}(?:T|,? (?:at )?){_TIME}(?:Z|[+-]\d\d:?\d\d)?", re.I)),
    # Seconds or milliseconds since 1970, from 2001 to 2286.
    ("timestamp", re.compile(r"(?<!\d)[1-9]\d{9}(?:\d{3}|\.\d+)?(?!\d)")),
    ("date", re.compile(rf"{_DATE}|(?:mon|tues|wednes|thurs|fri|satur|sun)day", re.I)),
    ("time", re.compile(rf"(?<!\d){_TIME}(?![\d:])", re.I)),
    ("uuid", re.compile(_UUID, re.I)),
    ("request id", re.compile(_ID, re.I)),
)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NAMED = re.compile(
    r"(?:\b(?:user|customer|name|named|called|assistant of|talking to|speaking (?:to|with)|hello|"
    r"dear|hi)\b[^\n]{0,20}|e-?mail[^\n]{0,20})$",
    re.I,
)
_WORD_CHARS = re.compile(r"[\w@.+'-]")
# How far around a difference to look for the date or id it is part of.
_AROUND_CHARS = 64


class Difference(NamedTuple):
    """The first difference between requests of one application before their first turn."""

    path: str
    """The path of the segment."""
    what: Moving
    """What changes."""
    one: str
    """The changing part in one request."""
    other: str
    """The changing part in another request."""
    prefix_tokens: int
    """Tokens before it."""
    behind_tokens: int
    """Tokens after it that are the same each time, so that they could be read from the cache if the
    changing part were at the end; includes turns that a request shares with an earlier one."""


def difference_of(prompts: Sequence[Prompt]) -> Difference | None:
    """The first difference; None if there is none, or only one prompt has a fixed part."""
    fixed = [prompt.fixed for prompt in prompts]
    if len(fixed) < 2 or not all(fixed):
        return None
    shortest = min(len(segments) for segments in fixed)
    first = fixed[0]
    before = 0
    for at in range(shortest):
        other = next((segments for segments in fixed if segments[at].text != first[at].text), None)
        if other is None:
            before += len(first[at].text)
            continue
        return _at(fixed, at, other, before)
    if any(len(segments) != shortest for segments in fixed):
        longer = next(segments for segments in fixed if len(segments) > shortest)
        added = longer[shortest]
        return Difference(added.path, _structure(fixed) or "text", "", _short(added.text),
                          tokens_of(before), 0)  # fmt: skip
    return None


def _at(
    fixed: list[tuple[Segment, ...]], at: int, other: tuple[Segment, ...], before: int
) -> Difference:
    first = fixed[0]
    texts = [segments[at].text for segments in fixed]
    begin = _common(texts)
    end = _common([text[begin:][::-1] for text in texts])
    what = _structure(fixed) if any(segments[at].kind == "tool" for segments in fixed) else None
    shown = (_short(first[at].text), _short(other[at].text))
    if what is None:
        what, *shown_list = _classified(first[at].text, other[at].text, begin, end)
        shown = (shown_list[0], shown_list[1])
    behind = end
    if what == "order of tools":
        names = [sorted(seg.text for seg in segments if seg.kind == "tool") for segments in fixed]
        behind = sum(map(len, names[0])) - before
        behind += _same_after(fixed, sum(seg.kind == "tool" for seg in first))
    else:
        if what == "order of JSON keys":
            behind = min(map(len, texts)) - begin
        behind += _same_after(fixed, at + 1)
    return Difference(
        first[at].path, what, *shown, tokens_of(before + begin), tokens_of(max(0, behind))
    )


def shared_turns_tokens(prompts: Sequence[Prompt]) -> int:
    """Tokens of turns that an earlier request of the conversation had too, per request."""
    earlier: dict[str, list[str]] = {}
    shared = 0
    for prompt in prompts:
        turns = [segment.text for segment in prompt.segments if segment.kind == "turn"]
        before = earlier.get(turns[0], []) if turns else []
        for turn, earlier_turn in zip(turns, before, strict=False):
            if turn != earlier_turn:
                break
            shared += len(turn)
        if turns:
            earlier[turns[0]] = turns
    return tokens_of(shared // len(prompts)) if prompts else 0


def _same_after(fixed: list[tuple[Segment, ...]], begin: int) -> int:
    """Characters of the segments from `begin` on that are the same in all."""
    chars = 0
    for column in zip(*(segments[begin:] for segments in fixed), strict=False):
        if all(segment.text == column[0].text for segment in column):
            chars += len(column[0].text)
    return chars


def _structure(fixed: list[tuple[Segment, ...]]) -> Moving | None:
    """How the sets of tools differ; None if they do not, or only by the text of one."""
    tools = [[seg.text for seg in segments if seg.kind == "tool"] for segments in fixed]
    if all(texts == tools[0] for texts in tools):
        return None
    if all(sorted(texts) == sorted(tools[0]) for texts in tools):
        return "order of tools"
    if all(
        [_sorted(text) for text in texts] == [_sorted(text) for text in tools[0]] for texts in tools
    ):
        return "order of JSON keys"
    return "tools" if any(len(texts) != len(tools[0]) for texts in tools) else None


def _classified(one: str, other: str, begin: int, end: int) -> tuple[Moving, str, str]:
    """The kind of difference between the texts, and the differing piece of each."""
    if one.split() == other.split():
        return "white space", _short(one[begin:]), _short(other[begin:])
    for what, pattern in _KINDS:
        first, second = _around(pattern, one, begin), _around(pattern, other, begin)
        if first is not None and second is not None and first != second:
            return what, first, second
    pieces = _word(one, begin, end), _word(other, begin, end)
    if all(_NUMBER.fullmatch(piece) for piece in pieces):
        whole = all("." not in piece and "," not in piece for piece in pieces)
        return ("counter" if whole else "number"), *pieces
    left = _word_begin(one, begin)
    if _NAMED.search(one[max(0, left - 60) : left]) or all("@" in piece for piece in pieces):
        return "name", *pieces
    return "text", *pieces


def _around(pattern: re.Pattern[str], text: str, at: int) -> str | None:
    """The match around a position, or ending there."""
    begin = max(0, at - _AROUND_CHARS)
    for match in pattern.finditer(text, begin, at + 2 * _AROUND_CHARS):
        if match.start() <= at <= match.end():
            return match[0]
    return None


def _word(text: str, begin: int, end: int) -> str:
    """The text from the first difference to the last, extended to whole words."""
    left, right = _word_begin(text, begin), max(begin, len(text) - end)
    while right < len(text) and _WORD_CHARS.match(text[right]):
        right += 1
    return _short(text[left:right].strip(".,'+-"))


def _word_begin(text: str, begin: int) -> int:
    while begin > 0 and _WORD_CHARS.match(text[begin - 1]):
        begin -= 1
    return begin


def _common(texts: Sequence[str]) -> int:
    """The length of the common beginning."""
    low, high = min(texts), max(texts)
    pairs = enumerate(zip(low, high, strict=False))
    return next(
        (at for at, (lowest, highest) in pairs if lowest != highest), min(len(low), len(high))
    )


def _sorted(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
