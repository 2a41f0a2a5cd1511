"""The syntaxes that calls in a text can have been written in, by what stands between their parts.

Each reader of a syntax offers what it would be if the text were of it; whether it is one shows when
the text is read with it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import Any

from headrace.answer_formats.answer_writer import SPACE
from headrace.answer_formats.call_syntax import (
    BareKeyCalls,
    CallSyntax,
    HeadedCalls,
    JsonCalls,
    PythonCalls,
    TaggedCalls,
)

CALLS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("probe_kestrel", {"lantern": "velvet harp", "anchor": 4711, "meadow": {"brook": [17, True]}}),
    ("probe_wombat", {"pebble": "copper moon", "thistle": "amber"}),
)
IDS = ("qzjkwvx01", "qzjkwvx02")
_NAME = r"(?P<name>[^\s<>\[\](){}:]+)"
_WORD = ascii_letters + digits + "_"
PIECES = re.compile(r"(?<=>)\s*(?=<)|\s*\n\s*")
"""Where one mark ends and another begins."""


@dataclass(frozen=True, slots=True)
class RenderedCalls:
    """The texts that a template writes for one call and for two."""

    one: str
    """The answer with the first call, from where answers begin to where their turn ends."""
    two: str
    """The answer with both; "" where the template refuses it or omits the second."""
    prompt: str
    """What the answer follows."""

    @property
    def texts(self) -> tuple[tuple[str, int], ...]:
        """The answers and how many calls are in them."""
        return ((self.one, 1), (self.two, 2)) if self.two else ((self.one, 1),)

    @property
    def ends(self) -> tuple[str, ...]:
        """The last mark of the answers, with which a turn that calls tools may end."""
        found = re.search(r"<[^<>\s]+>$", self.one.rstrip(SPACE))
        return (found.group(),) if found is not None and len(found.group()) > 2 else ()


def common_start(text: str, other: str) -> int:
    """How much of the beginning two texts share; what ends within a mark ends before it."""
    length = len(shared_start(text, other))
    opened = max(text.rfind("<", 0, length), text.rfind("[", 0, length))
    within = opened >= 0 and not any(character in text[opened:length] for character in ">]\n")
    return opened if within else length


def common_end(text: str, other: str) -> int:
    """How much of the end two texts share; what begins within a mark begins behind it."""
    shared = shared_end(text, other)
    start = len(text) - len(shared)
    opened = max(text.rfind("<", 0, start), text.rfind("[", 0, start))
    if opened >= 0 and not any(character in text[opened:start] for character in ">]\n"):
        return len(shared) - 1 - min((at for at in map(shared.find, ">]") if at >= 0), default=-1)
    return len(shared)


def shared_start(text: str, other: str) -> str:
    """The beginning that two texts share."""
    pairs = zip(text, other, strict=False)
    differs = (at for at, (left, right) in enumerate(pairs) if left != right)
    return text[: next(differs, min(len(text), len(other)))]


def shared_end(text: str, other: str) -> str:
    """The end that two texts share."""
    return shared_start(text[::-1], other[::-1])[::-1]


def _marks(*texts: str) -> tuple[str, ...]:
    """The texts that are not empty without the white space around them."""
    return tuple(dict.fromkeys(bare for text in texts if (bare := text.strip(SPACE))))


def _json_at(text: str, at: int) -> tuple[Any, int]:
    """The JSON value at a place, and where it ends; (None, at) where there is none."""
    try:
        return json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, at


def json_calls(written: RenderedCalls) -> Iterator[CallSyntax]:
    """Objects with the name and the arguments, in marks or bare."""
    one, (name, arguments) = written.one, CALLS[0]
    for found in re.finditer(r"[\[{]", one[: one.find(name)]):
        value, end = _json_at(one, found.start())
        keys = _keys_of(value, name, dict(arguments))
        if keys is None:
            continue
        begins, ends = _marks(one[: found.start()]), _marks(one[end:])
        fences = ("```json", "```")
        begins = _marks(*(mark.removesuffix("```").removesuffix("```json") for mark in begins))
        ends = _marks(*(mark.removeprefix("```") for mark in ends))
        del fences
        bare = () if begins else tuple(dict.fromkeys((found.group(), "{")))
        between = _between(written.two, end) if written.two else ""
        for fillers in ((), _marks(between)):
            yield JsonCalls(begins=begins, bare=bare, ends=ends, fillers=fillers, **keys)
        return


def _between(two: str, end: int) -> str:
    """What stands between the first call's object, which ends at a place, and the second's."""
    name = two.find(CALLS[1][0])
    return two[end : max(two.rfind("{", end, name), end)]


def _keys_of(value: Any, name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    """The keys of a call within a JSON value, as fields of JsonCalls; None where there is none."""
    match value:
        case [first, *_]:
            return _keys_of(first, name, arguments)
        case dict():
            if value == {name: arguments}:
                return {"name_is_key": True}
            name_key = next((key for key, text in value.items() if text == name), None)
            for key, inner in value.items():
                if name_key is not None and inner in (arguments, _quoted(arguments, inner)):
                    ids = tuple(known for known, text in value.items() if text in IDS)
                    others = tuple(set(value) - {name_key, key, *ids})
                    return {
                        "name_keys": (name_key,),
                        "argument_keys": (key,),
                        "id_keys": ids or ("id",),
                        "other_keys": ("type", *sorted(others)),
                    }
                if isinstance(inner, dict | list) and name_key is None:
                    keys = _keys_of(inner, name, arguments)
                    if keys is not None:
                        return keys if key == "function" else {**keys, "wrapper_keys": (key,)}
    return None


def _quoted(arguments: dict[str, Any], text: Any) -> Any:
    """A text that is the arguments as JSON, or the arguments."""
    return text if isinstance(text, str) and _json_at(text, 0)[0] == arguments else arguments


def python_calls(written: RenderedCalls) -> Iterator[CallSyntax]:
    """Calls with keyword arguments, in marks or in a bare list."""
    name, arguments = CALLS[0]
    before, found, after = written.one.partition(name + "(")
    if not found or not after.lstrip().startswith(f"{next(iter(arguments))}="):
        return
    listed = before.rstrip().endswith("[")
    before = before.rstrip().removesuffix("[").rstrip().removesuffix("```python")
    after = after.rpartition(")")[2].strip(SPACE).removeprefix("]" if listed else "")
    begins = _marks(before)
    ends = _marks(after.strip(SPACE).removeprefix("```"))
    yield PythonCalls(begins=begins, bare=() if begins else ("[",), ends=ends)


def bare_key_calls(written: RenderedCalls) -> Iterator[CallSyntax]:
    """Calls with braces, whose keys have no quotes."""
    name, arguments = CALLS[0]
    key, value = next(iter(arguments.items()))
    before, found, after = written.one.partition(name + "{")
    quote = re.search(rf"\b{key}:\s*(\S.*?){re.escape(value)}", after)
    if not found or quote is None:
        return
    mark = quote[1]
    closing = after.rpartition("}")[2]
    if written.two:
        between = written.two.partition(CALLS[1][0])[0].rpartition("}")[2]
        closing = between.removesuffix(before)
    number = re.search(rf"anchor:\s*{re.escape(mark)}4711{re.escape(mark)}", after)
    yield BareKeyCalls(
        begins=_marks(before),
        quote=mark,
        ends=_marks(closing),
        all_quoted=number is not None,
    )


def headed_calls(written: RenderedCalls) -> Iterator[CallSyntax]:
    """A header with the name, and a JSON object."""
    first = _head(written.one, 0, *CALLS[0])
    if first is None:
        return
    before, after, end = first
    tail = written.one[end:]
    opening, closing, between = "", "", None
    if written.two:
        between = _head(written.two, end, *CALLS[1])
    if between is not None:
        closing = tail[: common_start(tail, between[0])]
        shared = common_end(before, between[0][len(closing) :])
        opening = before[len(before) - shared :]
        if not before:
            opening = between[0][len(closing) :]
            before = opening
    else:
        opening = before
    section = before[: len(before) - len(opening)].strip(SPACE)
    mark = opening[: max((opening.rfind(c) for c in ">]|:`\n"), default=-1) + 1] or opening
    prefix, mark = opening[len(mark) :], mark.strip(SPACE)
    fence = "```" if after.rstrip().endswith(("```json", "```")) else ""
    ending = closing or tail
    ends = _marks(ending.strip(SPACE).removeprefix(fence))
    header = re.compile(
        rf"\s*(?:{re.escape(mark)})?\s*(?:{re.escape(prefix)})?{_NAME}{_pattern(after)}\s*"
    )
    if section and mark:
        yield HeadedCalls(
            begins=(section,),
            header=header,
            calls=(mark,),
            ends=ends,
            section_ends=_marks(tail[len(closing) :]),
        )
    elif mark:
        yield HeadedCalls(begins=(mark,), header=header, ends=ends)


def _head(
    text: str, at: int, name: str, arguments: Mapping[str, Any]
) -> tuple[str, str, int] | None:
    """What stands before a call's name, what between it and the arguments, and their end."""
    start = text.find(name, at)
    brace = text.find("{", start)
    value, end = _json_at(text, brace) if start >= 0 and brace >= 0 else (None, 0)
    return None if value != arguments else (text[at:start], text[start + len(name) : brace], end)


def _pattern(after: str) -> str:
    """What stands behind a name as a pattern: ids and numbers differ from call to call."""
    parts = re.split(rf"({'|'.join(IDS)}|\d+)", after.rstrip(SPACE))
    written = [
        r"(?P<id>[^\s<>\[\]{}]+)" if part in IDS else r"\d+" if number else re.escape(part)
        for number, part in ((index % 2, part) for index, part in enumerate(parts))
    ]
    return "".join(written)


def tagged_calls(written: RenderedCalls) -> Iterator[CallSyntax]:
    """Parameters in tags."""
    first, second = (tags_of(written, count) for count in (1, 2))
    if first is None:
        return
    keyed, valued, last = first.key_to_value, first.value_to_key, first.tail
    value_end = valued[: common_start(valued, last)]
    key_begin = valued[len(value_end) :].strip(SPACE)
    name_end = first.name_to_key.rstrip(SPACE).removesuffix(key_begin).strip(SPACE)
    own_lines = keyed.endswith("\n") and value_end.startswith("\n")
    attributes = None
    if first.other_key_to_value != keyed:
        keyed, attributes = _typed_keys(keyed, first.other_key_to_value)
    key_marks = [mark for mark in PIECES.split(keyed) if mark]
    if not key_marks or not key_begin or not value_end.strip(SPACE):
        return
    key = (key_begin, key_marks[0])
    value = ("".join(key_marks[1:]), value_end.strip(SPACE))
    begin, end = first.before, last[len(value_end) :]
    if second is not None:
        shared = common_end(begin, second.before)
        opening = begin[len(begin) - shared :]
        between = second.before[: len(second.before) - shared]
        closing = end[: common_start(end, between[len(value_end) :])]
    else:
        opening, closing = begin, end
    opened = [mark for mark in PIECES.split(opening) if mark]
    closed = [mark for mark in PIECES.split(closing) if mark]
    if not opened or not closed:
        return
    section = begin[: len(begin) - len(opening)]
    begins = _marks(section) or _marks("".join(opened[:-1]))
    yield TaggedCalls(
        begins=begins,
        bare=() if begins else (opened[-1],),
        name=(opened[-1], name_end),
        key=key,
        value=value,
        end=closed[0],
        section_ends=_marks("".join(closed[1:]), end[len(closing) :]),
        own_lines=own_lines,
        attributes=attributes,
        fillers=_marks(*opened[:-1]) if _marks(section) else (),
    )


def _typed_keys(text: str, number: str) -> tuple[str, re.Pattern[str]]:
    """The end of a key that says whether a text or a number follows: its last part, and all of it
    as a pattern."""
    before = shared_start(text, number)
    after = text[len(text) - len(shared_end(text, number)) :]
    before, after = before.rstrip(_WORD), after.lstrip(_WORD)
    return after, re.compile(rf"(?P<name>.*?){re.escape(before)}(?P<type>\w+)")


@dataclass(frozen=True, slots=True)
class Tags:
    """The texts around and between the names, keys and values of a call."""

    before: str
    """Before the name: from the answer's begin, or from the last value of the call before."""
    name_to_key: str
    key_to_value: str
    value_to_key: str
    other_key_to_value: str
    """For a number, as key_to_value is for a text."""
    tail: str
    """After the last value."""


def tags_of(written: RenderedCalls, count: int) -> Tags | None:
    """The marks of the first call, or those of the second one."""
    text = written.one if count == 1 else written.two
    at = 0
    spans: list[tuple[int, int]] = []
    for name, arguments in CALLS[:count]:
        texts = [name]
        for key, value in arguments.items():
            texts += [key, value if isinstance(value, str) else json.dumps(value)]
        spans = spans[-1:]
        for part in texts:
            start = text.find(part, at)
            if start < 0 and part.startswith("{"):
                part = str(json.loads(part))
                start = text.find(part, at)
            if start < 0:
                return None
            at = start + len(part)
            spans.append((start, at))
    spans = spans if count == 2 else [(0, 0), *spans]
    gaps = [text[left[1] : right[0]] for left, right in itertools.pairwise(spans)]
    before, name_to_key, key_to_value, value_to_key, other = (*gaps, "")[:5]
    return Tags(before, name_to_key, key_to_value, value_to_key, other, text[at:])


CANDIDATES: tuple[Callable[[RenderedCalls], Iterator[CallSyntax]], ...] = (
    json_calls,
    python_calls,
    bare_key_calls,
    headed_calls,
    tagged_calls,
)
"""In the order in which they are tried."""
