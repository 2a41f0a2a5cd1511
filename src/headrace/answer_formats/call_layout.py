"""How models write calls, character by character, as values: what a grammar makes them write.

A format's declaration (call_syntax.py) says what is read, which is more than what is written. These
are the forms in which published templates render calls, white space included; of a format that is
not listed here, the form follows from its marks. A format with several forms lets the model choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from headrace.answer_formats.call_syntax import (
    CallFormat,
    CallSyntax,
    HarmonyCalls,
    JsonCalls,
    PythonCalls,
    TaggedCalls,
)


@dataclass(frozen=True, slots=True)
class Expression:
    """A text that the model chooses within an expression, such as a call's id."""

    pattern: str
    """In the syntax of Rust's regex crate."""


Piece: TypeAlias = str | Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The texts around the calls of a section and between them."""

    opening: tuple[Piece, ...] = ()
    """Before the first call."""
    between: tuple[Piece, ...] = ()
    """Between two calls."""
    closing: tuple[Piece, ...] = ()
    """After the last call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLayout(Section):
    """Calls whose arguments are a JSON object."""

    before_name: tuple[Piece, ...]
    """From the call's beginning to the function's name."""
    before_arguments: tuple[Piece, ...]
    """From the name to the arguments."""
    after_arguments: tuple[Piece, ...] = ()
    """From the arguments to the call's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedLayout(Section):
    """Calls whose parameters are tags."""

    before_name: tuple[Piece, ...]
    """From the call's beginning to the function's name."""
    after_name: tuple[Piece, ...]
    """From the name to the first parameter or the call's end."""
    before_key: str
    """From there to a parameter's name."""
    before_value: str
    """From the parameter's name to its value."""
    value_end: str
    """The mark that ends a value, which no text has."""
    after_value: str = ""
    """From that mark to the next parameter or the call's end."""
    padding: str = ""
    """Between a value and its marks, at both sides."""
    after_parameters: tuple[Piece, ...] = ()
    """The call's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonLayout(Section):
    """Calls as in Python."""


Layout: TypeAlias = JsonLayout | TaggedLayout | PythonLayout

_INDEX = Expression("[0-9]{1,4}")
_ID_OF_9 = Expression("[a-zA-Z0-9]{9}")


NOT_KNOWN = frozenset(
    {
        "apertus", "dots", "dsml", "functionary_v3_1", "functionary_v3_2", "functiongemma",
        "gemma4", "k2_horizon", "kimi_k3", "minicpm5", "minimax_m3", "plamo3", "step3",
    }
)  # fmt: skip
"""Formats of which the form does not follow from the marks."""


def layouts_of(format: CallFormat, special: Mapping[str, int]) -> tuple[Layout, ...]:
    """The forms of a format.

    special: the texts of the model's control tokens: of several marks that a section may begin
    with, such a one is what the model was trained with. ValueError for a format whose
    form is not known.
    """
    if format.name in _LISTED:
        return _LISTED[format.name]
    assert not isinstance(format.syntax, HarmonyCalls)
    if format.name in NOT_KNOWN:
        raise ValueError(f"how calls of {format.name} are written is not known")
    return (_derived(format.name, format.syntax[0], special),)


def _derived(
    name: str,
    syntax: CallSyntax,
    special: Mapping[str, int],
) -> Layout:
    match syntax:
        case JsonCalls():
            begin = _first(syntax.begins, special)
            return _array(syntax, (begin,) if begin else (), syntax.ends[:1])
        case TaggedCalls(attributes=None):
            return _tagged(syntax)
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


def _tagged(syntax: TaggedCalls) -> TaggedLayout:
    begin, end = syntax.begins[:1], syntax.section_ends[:1]
    return TaggedLayout(
        opening=(*begin, "\n") if begin else (),
        before_name=(syntax.name[0],),
        after_name=(f"{syntax.name[1]}\n",),
        before_key=syntax.key[0],
        before_value=f"{syntax.key[1]}{syntax.value[0]}",
        value_end=syntax.value[1],
        after_value="\n",
        after_parameters=(syntax.end,),
        between=("\n",),
        closing=("\n", *end) if end else (),
    )


_NAMED = JsonLayout(
    before_name=('{"name": "',),
    before_arguments=('", "arguments": ',),
    after_arguments=("}",),
)
_HERMES = replace(
    _NAMED,
    before_name=('<tool_call>\n{"name": "',),
    after_arguments=("}\n</tool_call>",),
    between=("\n",),
)
_FUNCTION = TaggedLayout(
    before_name=("<function=",),
    after_name=(">\n",),
    before_key="<parameter=",
    before_value=">",
    value_end="</parameter>",
    after_value="\n",
    after_parameters=("</function>\n",),
)
_DEEPSEEK_BEGIN = "<｜tool▁call▁begin｜>"
_DEEPSEEK_SECTION = {
    "opening": ("<｜tool▁calls▁begin｜>",),
    "closing": ("<｜tool▁calls▁end｜>",),
}

_LISTED: dict[str, tuple[Layout, ...]] = {
    "hermes": (_HERMES,),
    "harmony": (
        JsonLayout(
            before_name=("<|channel|>commentary to=functions.",),
            before_arguments=(" <|constrain|>json<|message|>",),
        ),
        JsonLayout(
            before_name=(" to=functions.",),
            before_arguments=("<|channel|>commentary json<|message|>",),
        ),
    ),
    "kimi_k2": (
        JsonLayout(
            opening=("<|tool_calls_section_begin|>",),
            before_name=("<|tool_call_begin|>functions.",),
            before_arguments=(":", _INDEX, "<|tool_call_argument_begin|>"),
            after_arguments=("<|tool_call_end|>",),
            closing=("<|tool_calls_section_end|>",),
        ),
    ),
    "deepseek": (
        JsonLayout(
            before_name=(_DEEPSEEK_BEGIN,),
            before_arguments=("<｜tool▁sep｜>",),
            after_arguments=("<｜tool▁call▁end｜>",),
            **_DEEPSEEK_SECTION,
        ),
        JsonLayout(
            before_name=(f"{_DEEPSEEK_BEGIN}function<｜tool▁sep｜>",),
            before_arguments=("\n```json\n",),
            after_arguments=("\n```<｜tool▁call▁end｜>",),
            between=("\n",),
            **_DEEPSEEK_SECTION,
        ),
    ),
    "mistral": (
        JsonLayout(
            before_name=("[TOOL_CALLS]",),
            before_arguments=("[ARGS]",),
        ),
        JsonLayout(
            before_name=("[TOOL_CALLS]",),
            before_arguments=("[CALL_ID]", _ID_OF_9, "[ARGS]"),
        ),
        replace(
            _NAMED,
            opening=("[TOOL_CALLS]", Expression(" ?"), "["),
            after_arguments=(', "id": "', _ID_OF_9, '"}'),
            between=(", ",),
            closing=("]",),
        ),
    ),
    "command_r7b": (
        JsonLayout(
            opening=("<|START_ACTION|>[\n    ",),
            before_name=('{"tool_call_id": "', _INDEX, '", "tool_name": "'),
            before_arguments=('", "parameters": ',),
            after_arguments=("}",),
            between=(",\n    ",),
            closing=("\n]<|END_ACTION|>",),
        ),
    ),
    "command_r": (
        JsonLayout(
            opening=("Action:", Expression(r"[ \n]?"), "```json\n[\n"),
            before_name=('    {\n        "tool_name": "',),
            before_arguments=('",\n        "parameters": ',),
            after_arguments=("\n    }",),
            between=(",\n",),
            closing=("\n]", Expression(r"\n?"), "```"),
        ),
    ),
    "llama3_json": (
        replace(_NAMED, before_arguments=('", "parameters": ',), between=("; ",)),
    ),
    "minimax": (
        replace(_NAMED, opening=("<tool_calls>[",), between=(", ",), closing=("]</tool_calls>",)),
        replace(_NAMED, opening=("<tool_calls>\n",), between=("\n",), closing=("\n</tool_calls>",)),
    ),
    "granite": (
        replace(_NAMED, opening=("<|tool_call|>[",), between=(", ",), closing=("]",)),
        _HERMES,
    ),
    "phi4": (
        replace(_NAMED, opening=("functools[",), between=(", ",), closing=("]",)),
        replace(
            _NAMED, opening=("<|tool_call|>[",), between=(", ",), closing=("]<|/tool_call|>",)
        ),
    ),
    "generic_json": (replace(_NAMED, between=("\n",)),),
    "qwen3_coder": (
        replace(
            _FUNCTION,
            before_name=("<tool_call>\n<function=",),
            padding="\n",
            after_parameters=("</function>\n</tool_call>",),
            between=("\n",),
        ),
    ),
    "seed_oss": (
        replace(
            _FUNCTION,
            before_name=("<seed:tool_call>\n<function=",),
            after_parameters=("</function>\n</seed:tool_call>",),
            between=("\n",),
        ),
    ),
    "minimax_m2": (
        TaggedLayout(
            opening=("<minimax:tool_call>\n",),
            before_name=('<invoke name="',),
            after_name=('">\n',),
            before_key='<parameter name="',
            before_value='">',
            value_end="</parameter>",
            after_value="\n",
            after_parameters=("</invoke>",),
            between=("\n",),
            closing=("\n</minimax:tool_call>",),
        ),
    ),
    "glm": (
        TaggedLayout(
            before_name=("<tool_call>",),
            after_name=("\n",),
            before_key="<arg_key>",
            before_value="</arg_key>\n<arg_value>",
            value_end="</arg_value>",
            after_value="\n",
            after_parameters=("</tool_call>",),
            between=("\n",),
        ),
    ),
    "olmo3": (
        PythonLayout(
            opening=("<function_calls>",), between=("\n",), closing=("</function_calls>",)
        ),
    ),
}  # fmt: skip
