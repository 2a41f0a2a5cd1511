"""How models write calls, character by character, as values: what a grammar makes them write.

A format's declaration (call_syntax.py) says what is read, which is more than what is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
"""Of JSON Schema."""


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
class NamedCalls(Section):
    """Calls that a text announces before the function's name."""

    before_name: tuple[Piece, ...]
    """From the call's beginning to the function's name."""
    after_arguments: tuple[Piece, ...] = ()
    """From the arguments to the call's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCalls(NamedCalls):
    """Calls whose parameters are written one by one."""

    after_name: tuple[Piece, ...]
    """From the name to the first parameter or the call's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLayout(NamedCalls):
    """Calls whose arguments are a JSON object."""

    before_arguments: tuple[Piece, ...]
    """From the name to the arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedLayout(ParameterCalls):
    """Calls whose parameters are tags."""

    before_key: str
    """From there to a parameter's name."""
    before_value: str
    """From the parameter's name to its value, or to what says of which type the value is."""
    types: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What is written there for a value of each type of JSON Schema; none for no such thing."""
    value_end: str
    """The mark that ends a value, which no text has."""
    after_value: str = ""
    """From that mark to the next parameter or the call's end."""
    padding: str = ""
    """Between a value and its marks, at both sides."""
    not_first: str = ""
    """Characters that no text of a value begins with, since its reader takes them for a mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonLayout(Section):
    """Calls as in Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BareKeyLayout(NamedCalls):
    """Calls of arguments in braces, right behind the name, whose keys and strings have no quotes of
    JSON."""

    quote: str
    """The mark on both sides of a string, which no string has."""
    quoted_json: bool = False
    """Whether a reader takes a string for JSON where that is of a type that its schema allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedLayout(ParameterCalls):
    """Calls whose parameters are elements named after them, nested where a value has members."""

    prefix: str
    """What every tag begins with; no text has it before "<"."""
    item: str
    """The element of a list."""


NamedLayout: TypeAlias = JsonLayout | TaggedLayout | BareKeyLayout | NestedLayout
Layout: TypeAlias = NamedLayout | PythonLayout
