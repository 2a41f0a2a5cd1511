"""How tool calls and reasoning are written, as values: what a format declares.

Of a section's marks, `begins` are read and belong to the format, while `bare` ones belong to the
call itself: "{" is the first character of a call that nothing announces. Such a call in JSON or
Python has to name a tool that the request has, since an answer may well contain other JSON.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from headrace.answer_formats.layouts.call_layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonCalls:
    """Calls as JSON objects, alone, in arrays or one after another."""

    begins: tuple[str, ...] = ()
    """Marks of a section of calls."""
    bare: tuple[str, ...] = ()
    """First characters of a call that nothing announces."""
    ends: tuple[str, ...] = ()
    """Marks of a section's end; a section may end without."""
    name_keys: tuple[str, ...] = ("name",)
    """Keys of the function's name."""
    argument_keys: tuple[str, ...] = ("arguments", "parameters")
    """Keys of the arguments."""
    id_keys: tuple[str, ...] = ("id",)
    """Keys of the call's id."""
    wrapper_keys: tuple[str, ...] = ()
    """Keys of an object around the calls."""
    other_keys: tuple[str, ...] = ("type",)
    """Further keys that a call may have; another one makes a bare object something else."""
    fillers: tuple[str, ...] = ()
    """Marks around each call of a section."""
    name_is_key: bool = False
    """Whether a call is an object with one member: the name, and the arguments as its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadedCalls:
    """Calls of a header with the name and of arguments as a JSON object."""

    begins: tuple[str, ...]
    """Marks of a section of calls, or of a call where there are no sections."""
    header: re.Pattern[str]
    """All that may stand between a section's mark, or the call before, and the arguments; its
    group "name" is the function's, a group "id" the call's."""
    ends: tuple[str, ...] = ()
    """Marks of a call's end."""
    section_ends: tuple[str, ...] = ()
    """Marks of a section's end; a section may end without."""
    calls: tuple[str, ...] = ()
    """Marks that a further call of the section begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedCalls:
    """Calls whose parameters are tags, each with a text or with JSON."""

    begins: tuple[str, ...] = ()
    """Marks of a section of calls."""
    bare: tuple[str, ...] = ()
    """Marks of a call that may come without a section."""
    name: tuple[str, str]
    """Marks before and after the function's name; without a second one the name ends where the
    first parameter or the end of the call begins."""
    key: tuple[str, str]
    """Marks before and after the name of a parameter."""
    value: tuple[str, str]
    """Marks before and after its value; the first may be empty."""
    end: str
    """Mark of a call's end."""
    section_ends: tuple[str, ...] = ()
    """Marks of a section's end; a section may end without."""
    attributes: re.Pattern[str] | None = None
    """What stands between the marks of a name and of a parameter's name, where that is more than a
    name in quotes or without: its group "name" is the name, and a group "type" of a parameter says
    that the value is a text ("string", "true") or JSON (all else)."""
    own_lines: bool = False
    """Whether a value that begins with a newline stands on lines of its own: one newline at each
    side is not part of it."""
    quotes: tuple[str, str] | None = None
    """Marks around a text within a value that may be there."""
    fillers: tuple[str, ...] = ()
    """Marks between calls that mean nothing."""
    json_arguments: bool = False
    """Whether all arguments may be written as one JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCalls:
    """Calls as in Python, with keyword arguments of literals, in a list or one after another."""

    begins: tuple[str, ...] = ()
    """Marks of a section of calls."""
    bare: tuple[str, ...] = ()
    """First characters of a list of calls that nothing announces."""
    ends: tuple[str, ...] = ()
    """Marks of a section's end; a section may end without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BareKeyCalls:
    """Calls of a name and of arguments in braces whose keys and strings have no quotes of JSON."""

    begins: tuple[str, ...]
    """Marks of a call; what stands between them and the name is part of them."""
    quote: str
    """The mark on both sides of a string."""
    ends: tuple[str, ...]
    """Marks of a call's end; a call may end without."""
    all_quoted: bool = False
    """Whether numbers and objects stand between the marks of a string too, and the parameter's
    schema decides what is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedCalls:
    """Calls whose parameters are elements named after them, nested where a value has members."""

    begins: tuple[str, ...]
    """Marks of a section of calls."""
    prefix: str
    """What every tag begins with."""
    name: tuple[str, str]
    """Marks before and after the function's name."""
    end: str
    """Mark of a call's end."""
    section_ends: tuple[str, ...]
    """Marks of a section's end; a section may end without."""
    item: str
    """The element of a list."""


@dataclass(frozen=True, slots=True)
class HarmonyCalls:
    """Calls as messages of harmony's commentary channel; it has the reasoning as well."""


CallSyntax: TypeAlias = (
    JsonCalls | HeadedCalls | TaggedCalls | PythonCalls | BareKeyCalls | NestedCalls
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkTags:
    """Reasoning before the content, between two marks."""

    begin: str
    """The first mark; a template may have written it at the end of the prompt."""
    end: str
    """The second mark."""
    other_begins: tuple[str, ...] = ()
    """Further ways to write the first mark."""
    other_ends: tuple[str, ...] = ()
    """Further ways to write the second mark."""
    also_ended_by: tuple[str, ...] = ()
    """Marks that end reasoning and belong to what follows."""
    assumed: bool = False
    """Whether an answer begins within reasoning although neither it nor the prompt has the mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFormat:
    """A named way to write tool calls."""

    name: str
    """What it is chosen by."""
    syntax: tuple[CallSyntax, ...] | HarmonyCalls
    """The syntax of its sections; several, where models mix them."""
    traits: tuple[tuple[str, ...], ...] = ()
    """A template that contains all texts of one of these is of this format."""
    dropped: tuple[str, ...] = ()
    """Marks around the content, which are not part of it."""
    opened_by: str = ""
    """The mark at the end of the prompt, which answers begin behind."""
    ends_reasoning: tuple[str, ...] = ()
    """Marks of a section that ends reasoning too, where a call of one of the request's tools
    follows (call_heads.py): models omit the closing mark. Elsewhere in reasoning they mean nothing.
    """
    id_chars: int | None = None
    """The only length that the template takes an id of a call in; None for any."""
    layouts: tuple[Layout, ...] = ()
    """How calls were seen to be written, of a format that no list has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningFormat:
    """A named way to write reasoning."""

    name: str
    """What it is chosen by."""
    tags: ThinkTags | HarmonyCalls
    """Its marks."""
    wraps: tuple[tuple[str, str], ...] = ()
    """Pairs of marks around the content, which are not part of it."""
    dropped: tuple[str, ...] = ()
    """Further marks that are not part of the content."""
    traits: tuple[tuple[str, ...], ...] = ()
    """As in CallFormat."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The pair of formats in which a model writes tool calls and reasoning."""

    calls: CallFormat | None = None
    """None for a model that does not call tools."""
    reasoning: ReasoningFormat | None = None
    """None for a model without reasoning."""

    def opens_reasoning(self, prompt: str) -> bool:
        """Whether what follows a prompt is reasoning: it ends with the mark that begins some, as
        many templates write it, or the format assumes so of prompts that do not end it."""
        tags = None if self.reasoning is None else self.reasoning.tags
        if not isinstance(tags, ThinkTags):
            return False
        begins = (tags.begin, *tags.other_begins)
        prompt = prompt.rstrip()
        if tags.assumed and not prompt.endswith((tags.end, *tags.other_ends)):
            return True
        return prompt.endswith(tuple(begin.rstrip() for begin in begins))


NO_FORMAT = AnswerFormat()
"""Of a model that writes neither reasoning nor calls."""
