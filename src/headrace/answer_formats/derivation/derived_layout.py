"""How a template writes calls, as a layout: what stands in its text around what differs by call.

A layout says the same as the template did: one call and two of them, as it wrote them, are texts
of the layout. Where the template writes arguments in a way that no layout has, there is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.answer_formats.answer_writer import SPACE
from headrace.answer_formats.call_syntax import (
    CallFormat,
    HeadedCalls,
    JsonCalls,
    PythonCalls,
    TaggedCalls,
)
from headrace.answer_formats.derivation.derived_syntax import (
    CALLS,
    IDS,
    RenderedCalls,
    shared_end,
    tags_of,
)
from headrace.answer_formats.layouts.call_layout import (
    Expression,
    JsonLayout,
    Layout,
    Piece,
    PythonLayout,
    TaggedLayout,
)

_ID = Expression(f"[a-zA-Z0-9]{{{len(IDS[0])}}}")
_COUNTED = Expression("[0-9]{1,4}")
_NUMBER = re.compile(r"[0-9]+")
_LAST_NUMBER = re.compile(r"(?s:.*?)([0-9]+)[^0-9]*")


@dataclass(frozen=True, slots=True)
class _Call:
    """The place of a call in a text."""

    start: int
    """Where its name begins."""
    arguments: int
    """Where its arguments begin."""
    end: int
    """Where they end."""


def layouts_as_written(format: CallFormat, written: RenderedCalls) -> tuple[Layout, ...]:
    """The layout in which a template wrote calls, of a format that reads them; () for none."""
    assert isinstance(format.syntax, tuple)
    ends = format.dropped
    one, two = (_without_end(text, ends) for text in (written.one, written.two))
    match format.syntax[0]:
        case TaggedCalls() as syntax if syntax.attributes is None and syntax.quotes is None:
            found = _tagged(syntax, replace(written, one=one, two=two))
        case JsonCalls(name_is_key=False) | HeadedCalls():
            found = _json(one, two)
        case PythonCalls():
            found = _python(one, two)
        case _:
            found = None
    return () if found is None else (found,)


def _without_end(text: str, ends: Sequence[str]) -> str:
    """A text without the mark that ends the turn."""
    text = text.rstrip(SPACE)
    end = next((end for end in ends if text.endswith(end)), "")
    return text.removesuffix(end).rstrip(SPACE) if end else text


def _calls(text: str, count: int, *, python: bool = False) -> list[_Call] | None:
    """The places of calls whose arguments stand behind their names; None where they do not."""
    calls: list[_Call] = []
    at = 0
    for name, arguments in CALLS[:count]:
        start = text.find(name, at)
        if start < 0:
            return None
        begin = text.find("(" if python else "{", start)
        end = _end_of(text, begin, name, arguments, python) if begin >= 0 else -1
        if end < 0:
            return None
        calls.append(_Call(start, begin, end))
        at = end
    return calls


def _end_of(text: str, at: int, name: str, arguments: Mapping[str, Any], python: bool) -> int:
    """Where the arguments that begin at a place end; -1 where others stand there."""
    if python:
        members = ", ".join(f"{key}={_literal(value)}" for key, value in arguments.items())
        return at + len(members) + 2 if text.startswith(f"({members})", at) else -1
    try:
        value, end = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        return -1
    return end if value == arguments else -1


def _literal(value: object) -> str:
    """A value in Python, with the quotes of JSON."""
    return json.dumps(value) if isinstance(value, str) else repr(value).replace("'", '"')


@dataclass(frozen=True, slots=True)
class _Around:
    """The texts around and between calls."""

    before: tuple[Piece, ...]
    """Before the name of the first call."""
    inner: tuple[Piece, ...]
    """Between a name and its arguments."""
    between: tuple[Piece, ...]
    """Between the arguments of a call and the name of the next one."""
    after: tuple[Piece, ...]
    """Behind the arguments of the last call."""


def _around(one: str, two: str, python: bool) -> _Around | None:
    """What stands around the calls of two texts; None where the second is not like the first."""
    name, calls = len(CALLS[0][0]), _calls(one, 1, python=python)
    if calls is None:
        return None
    call = calls[0]
    before, inner, after = (
        one[: call.start],
        one[call.start + name : call.arguments],
        one[call.end :],
    )
    if not two:
        return _Around(_pieces(before), _pieces(inner), (), _pieces(after))
    calls = _calls(two, 2, python=python)
    if (
        calls is None
        or not two.startswith(one[: call.end])
        or _pieces(two[calls[1].end :]) != _pieces(after)
    ):
        return None
    second = calls[1]
    between = two[call.end : second.start]
    other = two[second.start + len(CALLS[1][0]) : second.arguments]
    if not inner.startswith("(") and _pieces(inner, counted=True) != _pieces(other, counted=True):
        return None
    counted = _number_of(before) != _number_of(between)
    return _Around(
        _pieces(before, counted=counted),
        _pieces(inner, counted=_NUMBER.findall(inner) != _NUMBER.findall(other)),
        _pieces(between, counted=counted),
        _pieces(after),
    )


def _number_of(text: str) -> str:
    """The last number in a text."""
    return next(reversed(_NUMBER.findall(_without_ids(text))), "")


def _without_ids(text: str) -> str:
    for id in IDS:
        text = text.replace(id, "")
    return text


def _json(one: str, two: str) -> Layout | None:
    around = _around(one, two, python=False)
    if around is None:
        return None
    # What is between two calls ends with the beginning of the second; as one text it says no less.
    return JsonLayout(
        opening=around.before,
        before_name=(),
        before_arguments=around.inner,
        between=around.between,
        closing=around.after,
    )


def _python(one: str, two: str) -> Layout | None:
    around = _around(one, two, python=True)
    if around is None or around.inner:
        return None
    return PythonLayout(opening=around.before, between=around.between, closing=around.after)


def _tagged(syntax: TaggedCalls, written: RenderedCalls) -> Layout | None:
    first, second = tags_of(written, 1), tags_of(written, 2) if written.two else None
    end = syntax.value[1]
    if first is None or first.key_to_value != first.other_key_to_value:
        return None
    padding, found, rest = first.value_to_key.partition(end)
    if not found or padding not in ("", "\n") or not first.key_to_value.endswith(padding):
        return None
    before_key = shared_end(first.name_to_key, rest)
    after_value = rest.removesuffix(before_key)
    ended = f"{padding}{end}{after_value}"
    tails = [first.tail] if second is None else [first.tail, second.before]
    if not all(tail.startswith(ended) for tail in tails):
        return None
    if second is not None and (second.tail, second.key_to_value) != (
        first.tail,
        first.key_to_value,
    ):
        return None
    closing, *between = (tail.removeprefix(ended) for tail in tails)
    return TaggedLayout(
        opening=_pieces(first.before),
        before_name=(),
        after_name=_pieces(first.name_to_key.removesuffix(before_key)),
        before_key=before_key,
        before_value=first.key_to_value.removesuffix(padding),
        value_end=end,
        after_value=after_value,
        padding=padding,
        between=tuple(piece for text in between for piece in _pieces(text)),
        closing=_pieces(closing),
    )


def _pieces(text: str, *, counted: bool = False) -> tuple[Piece, ...]:
    """A text as pieces: ids differ from call to call, and so does the last number if it counts."""
    pieces: list[Piece] = []
    for index, part in enumerate(re.split("|".join(IDS), text)):
        pieces += (_ID, part) if index else (part,)
    if counted:
        for index, piece in reversed([*enumerate(pieces)]):
            found = None if isinstance(piece, Expression) else _LAST_NUMBER.fullmatch(piece)
            if found is not None and isinstance(piece, str):
                before, after = piece[: found.start(1)], piece[found.end(1) :]
                pieces[index : index + 1] = (before, _COUNTED, after)
                break
    return tuple(piece for piece in pieces if piece)
