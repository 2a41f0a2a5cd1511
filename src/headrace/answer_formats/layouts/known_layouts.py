"""The forms in which a format writes calls, white space included.

Of a format that is not in the table, the form follows from its marks, or from what its template was
seen to write (derivation/). A format with several forms lets the model choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.answer_formats.call_syntax import (
    CallFormat,
    CallSyntax,
    HarmonyCalls,
    JsonCalls,
    PythonCalls,
)
from headrace.answer_formats.layouts.call_layout import (
    JsonLayout,
    Layout,
    Piece,
    PythonLayout,
)
from headrace.answer_formats.layouts.layout_table import LAYOUTS

DERIVED = "derived"
"""The name of every format that was derived from a template."""


def layouts_of(format: CallFormat, special: Mapping[str, int]) -> tuple[Layout, ...]:
    """The forms of a format.

    special: the texts of the model's control tokens: of several marks that a section may begin
    with, such a one is what the model was trained with. ValueError for a format whose
    form is not known.
    """
    if format.layouts:
        return format.layouts
    if format.name in LAYOUTS:
        return LAYOUTS[format.name]
    assert not isinstance(format.syntax, HarmonyCalls)
    if format.name == DERIVED:
        raise ValueError(f"how calls of {format.name} are written is not known")
    return (_derived(format.name, format.syntax[0], special),)


def never_within_text(format: CallFormat) -> bool:
    """Whether an answer that is text as well cannot be held to the format: no mark announces its
    first call, as the prompt ends with it."""
    return bool(format.opened_by)


def _derived(
    name: str,
    syntax: CallSyntax,
    special: Mapping[str, int],
) -> Layout:
    match syntax:
        case JsonCalls():
            begin = _first(syntax.begins, special)
            return _array(syntax, (begin,) if begin else (), syntax.ends[:1])
        case PythonCalls():
            begin = "" if syntax.bare else _first(syntax.begins, special)
            end = syntax.ends[:1] if begin else ()
            return PythonLayout(opening=(begin, "["), between=(", ",), closing=("]", *end))
        case _:
            raise ValueError(f"how calls of {name} are written is not known")


def _first(marks: tuple[str, ...], special: Mapping[str, int]) -> str:
    return next((mark for mark in marks if mark in special), marks[0] if marks else "")


def _keys(syntax: JsonCalls) -> JsonLayout:
    """One call as an object."""
    name, arguments = syntax.name_keys[0], syntax.argument_keys[0]
    return JsonLayout(
        before_name=(f'{{"{name}": "',),
        before_arguments=(f'", "{arguments}": ',),
        after_arguments=("}",),
    )


def _array(syntax: JsonCalls, begin: tuple[Piece, ...], end: tuple[Piece, ...]) -> JsonLayout:
    """Calls in an array between marks."""
    return replace(_keys(syntax), opening=(*begin, "["), between=(", ",), closing=("]", *end))
