"""Grammars of answers that call tools, in a model's own format.

What such a grammar lets pass is read by `AnswerParser` as calls of the tools that may be called,
without a fault, with arguments that their schemas accept.

    grammar = tool_call_grammar(
        format, tools, choice="required", parallel=False, opened=False, special={}
    )
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from headrace.answer_formats.call_syntax import (
    CallFormat,
    HarmonyCalls,
    JsonCalls,
    PythonCalls,
    TaggedCalls,
    ThinkTags,
)
from headrace.answer_formats.formats import AnswerFormat
from headrace.answer_formats.harmony_marks import FINAL, message_on
from headrace.answer_formats.layouts.call_layout import (
    BareKeyLayout,
    Expression,
    JsonLayout,
    Layout,
    NamedLayout,
    NestedLayout,
    Piece,
    PythonLayout,
    TaggedLayout,
)
from headrace.answer_formats.layouts.known_layouts import layouts_of, never_within_text
from headrace.errors import RequestError, shown
from headrace.structured.composition import Composition, slashed
from headrace.structured.free_text import SPACE, free_text
from headrace.structured.grammar import Grammar
from headrace.structured.grammar_checks import GrammarChecks
from headrace.structured.json_schema.fault import may_be_unheld
from headrace.structured.json_schema.grammar import SPACED, of_schema
from headrace.structured.json_schema.walk import INVALID_SCHEMA, UNSUPPORTED_SCHEMA
from headrace.structured.limits import INVALID_GRAMMAR
from headrace.structured.reasoning import Straight, around, harmony_messages, reasoned
from headrace.structured.tools.bare_values import bare_arguments
from headrace.structured.tools.nested_values import nested_elements
from headrace.structured.tools.python_arguments import python_arguments
from headrace.structured.tools.tagged_parameters import tagged_parameters

UNSUPPORTED_TOOL = "unsupported_tool"
INVALID_TOOL = "invalid_tool"

MAX_TOOLS = 1024

_NAME = re.compile(r"[A-Za-z_][\w.\-:/]{0,255}", re.ASCII)
"""Names of functions that every format can write and that `AnswerParser` reads."""

_UNHELD = frozenset({UNSUPPORTED_SCHEMA, INVALID_SCHEMA, INVALID_GRAMMAR})
"""Codes of schemas that are malformed, cannot be held, or have no value; a tool that is not strict
then takes any arguments."""

Choice = Literal["required", "auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallableTool:
    """A function that a model may call."""

    name: str
    """The function's name."""
    parameters: Mapping[str, Any] | None = None
    """The JSON schema of its arguments; None for any object."""
    strict: bool = True
    """Whether arguments are held to the schema; any object if not."""
    if_held: bool = False
    """Whether any object will do where the model's format cannot hold arguments to the schema."""
    param: str = "tools"
    """Where the request has the function, as "tools[3].function"."""

    def held_schema(self) -> Mapping[str, Any] | None:
        """The schema that arguments are held to; None for any object."""
        return self.parameters if self.strict else None

    def named_schema(self) -> Mapping[str, Any]:
        """As `held_schema`, for a format that can write arguments of known names alone: any values
        for those of a tool whose arguments are not held."""
        held = self.held_schema()
        if held is not None:
            return held
        named = (self.parameters or {}).get("properties")
        return {"properties": {key: {} for key in named} if isinstance(named, Mapping) else {}}


def tool_call_grammar(
    format: AnswerFormat,
    tools: Sequence[CallableTool],
    *,
    choice: Choice,
    parallel: bool,
    opened: bool,
    special: Mapping[str, int],
    checks: GrammarChecks | None = None,
) -> Grammar:
    """The grammar of an answer that may call these tools and no others.

    choice: "required": the answer is a call. "auto": it is text, in which what begins a call is
    a call. parallel: there may be several calls. opened: the prompt ends with the mark that begins
    reasoning. special: the texts of the model's control tokens and their ids. checks: what is known
    of schemas that were compiled before; None for nothing.
    Raises RequestError for a tool whose name or schema cannot be written so.
    """
    assert format.calls is not None
    rules = Composition(special)
    checks = GrammarChecks() if checks is None else checks
    compiled = [_as_compiled(tool, checks) for tool in _checked(tools)]
    calls = _Calls(rules, compiled, harmony=isinstance(format.calls.syntax, HarmonyCalls))
    layouts = _layouts(format.calls, special)
    if calls.harmony:
        body = " | ".join(calls.section(layout, parallel=False) for layout in layouts)
        if choice == "auto":
            final = rules.text(message_on(FINAL))
            body += f" | {final} {free_text(rules, ())}"
        return rules.grammar(f"{harmony_messages(rules)} ({body})")
    within = None if choice == "required" else _within_text(rules, calls, format, layouts, parallel)
    if within is None:
        sections = " | ".join(calls.section(layout, parallel) for layout in layouts)
        body = f"{SPACE} ({sections})"
    else:
        body = within
    if within is None or not parallel:
        within = ""
    straight = _straight(calls, format, layouts, parallel, within)
    return rules.grammar(reasoned(rules, format.reasoning, opened, rules.rule(body), straight))


def _straight(
    calls: _Calls,
    format: AnswerFormat,
    layouts: Sequence[Layout],
    parallel: bool,
    after: str,
) -> Straight | None:
    """Calls that begin with a mark that ends reasoning, and what may come after them."""
    if format.reasoning is None or not isinstance(format.reasoning.tags, ThinkTags):
        return None
    assert format.calls is not None
    ending = (*format.reasoning.tags.also_ended_by, *format.calls.ends_reasoning)
    ended = {layout: _mark_of(layout, ending) for layout in layouts}
    sections = [calls.section(layout, parallel) for layout in layouts if ended[layout]]
    marks = tuple(dict.fromkeys(mark for mark in ended.values() if mark))
    return Straight(f"({' | '.join(sections)}) {after}", marks) if sections else None


def _mark_of(layout: Layout, marks: Sequence[str]) -> str:
    """With which of some marks calls begin; "" for none of them."""
    before = () if isinstance(layout, PythonLayout) else layout.before_name
    first = next((piece for piece in (*layout.opening, *before) if piece), "")
    return next((mark for mark in marks if isinstance(first, str) and first.startswith(mark)), "")


def _checked(tools: Sequence[CallableTool]) -> Sequence[CallableTool]:
    if not tools:
        raise RequestError("tools is empty; give one", param="tools", code=INVALID_TOOL)
    if len(tools) > MAX_TOOLS:
        raise RequestError(
            f"tools has {len(tools)} tools; at most {MAX_TOOLS} are accepted",
            param="tools",
            code=INVALID_TOOL,
        )
    for tool in tools:
        if not _NAME.fullmatch(tool.name):
            raise RequestError(
                f"{tool.param}.name is {shown(tool.name)}; a name has letters, digits, _, -, ., : "
                "and /, begins with a letter or _, and has at most 256 characters",
                param=f"{tool.param}.name",
                code=INVALID_TOOL,
            )
    return tools


def _layouts(format: CallFormat, special: Mapping[str, int]) -> tuple[Layout, ...]:
    try:
        return layouts_of(format, special)
    except ValueError as error:
        raise _unsupported(error) from None


def _unsupported(error: ValueError) -> RequestError:
    return RequestError(
        f"tool_choice: an answer cannot be held to calls of this model's format: {error}; "
        "omit tool_choice and strict",
        param="tool_choice",
        code=UNSUPPORTED_TOOL,
    )


def _within_text(
    rules: Composition,
    calls: _Calls,
    format: AnswerFormat,
    layouts: Sequence[Layout],
    parallel: bool,
) -> str:
    """A rule's body for text with calls in it."""
    assert format.calls is not None
    assert not isinstance(format.calls.syntax, HarmonyCalls)
    if never_within_text(format.calls):
        name = format.calls.name
        raise _unsupported(ValueError(f"no mark of {name} tells a first call from text"))
    marks = {mark for syntax in format.calls.syntax for mark in syntax.begins}
    for syntax in format.calls.syntax:
        if isinstance(syntax, TaggedCalls):
            marks |= {*syntax.bare}
        elif isinstance(syntax, (JsonCalls, PythonCalls)) and syntax.bare:
            marks |= {start for layout in layouts for start in calls.starts(layout)}
    # A mark that is read as a call and that none of these begins with would be one held to nothing.
    starts = [start for layout in layouts for start in (*calls.starts(layout), *layout.opening)]
    written = {
        mark for mark in marks
        if any(isinstance(start, str) and start.startswith(mark) for start in starts)
    }  # fmt: skip
    try:
        text = free_text(rules, sorted(written), sorted(marks - written))
    except ValueError as error:
        raise _unsupported(error) from None
    if format.reasoning is not None:
        marked = (begin for begin, _ in format.reasoning.wraps)
        if any(rules.before_special(begin) is not None for begin in marked):
            text = rules.rule(around(rules, format.reasoning, text))
    # A call that is a section of its own is followed by text or by a further section.
    sections = " | ".join(
        calls.section(layout, parallel and bool(layout.opening)) for layout in layouts
    )
    if not parallel:
        return f"{text} ({sections})?"
    return rules.rule(f"{text} (({sections}) {text})*")


class _Calls:
    """The calls of some tools, as rules."""

    def __init__(self, rules: Composition, tools: Sequence[CallableTool], *, harmony: bool) -> None:
        self.harmony = harmony
        self._rules = rules
        self._tools = tools

    def section(self, layout: Layout, parallel: bool) -> str:
        """A rule for a call, or for several, and what stands around them."""
        if isinstance(layout, PythonLayout):
            return self._python_section(layout, parallel)
        before, call = layout.before_name, self._calls(layout)
        # What is between two calls is one text with the beginning of the second, so that what ends
        # the section may begin alike.
        first = self._pieces((*layout.opening, *before))
        more = f"({self._pieces((*layout.between, *before))} {call})*" if parallel else ""
        return self._rules.rule(f"{first} {call} {more} {self._pieces(layout.closing)}")

    def starts(self, layout: Layout) -> list[str]:
        """Texts with which a call that no mark announces begins."""
        if isinstance(layout, PythonLayout):
            return [f"[{tool.name}(" for tool in self._tools]
        first = next((piece for piece in (*layout.opening, *layout.before_name) if piece), "")
        return [first] if isinstance(first, str) and first else []

    def _calls(self, layout: NamedLayout) -> str:
        """A rule for a call of any tool, from the name to the call's end."""
        calls = " | ".join(
            self._as_held(tool, lambda tool: self._call(layout, tool)) for tool in self._tools
        )
        return self._rules.rule(f"({calls}) {self._pieces(layout.after_arguments)}")

    def _as_held(self, tool: CallableTool, written: Callable[[CallableTool], str]) -> str:
        """A tool as written, with any arguments where its schema cannot be held and need not be."""
        if not (tool.strict and tool.if_held):
            return written(tool)
        before = self._rules.extent()
        try:
            return written(tool)
        except RequestError as error:
            if error.code not in _UNHELD:
                raise
        self._rules.cut(before)
        return written(replace(tool, strict=False))

    def _call(self, layout: NamedLayout, tool: CallableTool) -> str:
        """A tool's name and its arguments."""
        rules, param = self._rules, f"{tool.param}.parameters"
        match layout:
            case JsonLayout():
                after, inner = layout.before_arguments, self._arguments(tool)
            case TaggedLayout():
                schema = tool.held_schema()
                after, inner = (
                    layout.after_name,
                    tagged_parameters(rules, layout, schema, tool.param),
                )
            case NestedLayout():
                schema = tool.named_schema()
                elements = nested_elements(
                    rules, layout, schema, param, held=tool.held_schema() is not None
                )
                after, inner = layout.after_name, elements
            case BareKeyLayout():
                after, inner = (), bare_arguments(rules, layout, tool.held_schema(), param)
        return f"{self._pieces((tool.name, *after))} {inner}"

    def _python_section(self, layout: PythonLayout, parallel: bool) -> str:
        """Of a call that nothing announces, the bracket and the name are one text, its mark."""
        arguments = [
            self._as_held(
                tool,
                lambda tool: python_arguments(
                    self._rules, tool.held_schema(), f"{tool.param}.parameters"
                ),
            )
            for tool in self._tools
        ]

        def calls(before: Sequence[Piece]) -> str:
            return " | ".join(
                f"{self._pieces((*before, tool.name + '('))} {inner} {self._rules.text(')')}"
                for tool, inner in zip(self._tools, arguments, strict=True)
            )

        more = f"({calls(layout.between)})*" if parallel else ""
        first = f"({calls(layout.opening)})"
        return self._rules.rule(f"{first} {more} {self._pieces(layout.closing)}")

    def _arguments(self, tool: CallableTool) -> str:
        """A part: the arguments as a JSON object."""
        schema, param = tool.held_schema() or {}, f"{tool.param}.parameters"
        kinds = schema.get("type", "object")
        if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
            raise RequestError(
                f"{param}: the keyword 'type' at #/type is {shown(kinds)}; the arguments of a call "
                "are an object",
                param=param,
                code=UNSUPPORTED_SCHEMA,
            )
        return self._rules.part(of_schema({**schema, "type": "object"}, param, SPACED))

    def _pieces(self, pieces: Sequence[Piece]) -> str:
        """Pieces as Lark; texts side by side are one."""
        out: list[str] = []
        text = ""
        for piece in pieces:
            if isinstance(piece, Expression):
                out += (self._rules.text(text), slashed(piece.pattern))
                text = ""
            else:
                text += piece
        return " ".join(filter(None, (*out, self._rules.text(text))))


def _as_compiled(tool: CallableTool, checks: GrammarChecks) -> CallableTool:
    """A tool with any arguments where compiling shows that its schema cannot be held and need not
    be. Where it has to be, RequestError: also in formats that would write its parts, of which each
    can be held (alternatives of `oneOf` that overlap)."""
    schema = tool.held_schema()
    if schema is None or not may_be_unheld(schema):
        return tool
    param = f"{tool.param}.parameters"
    codes = _UNHELD if tool.if_held else ()
    try:
        grammar = of_schema({**schema, "type": "object"}, param)
    except RequestError as error:
        if error.code not in codes:
            raise
        return replace(tool, strict=False)
    return tool if checks.compiles(grammar, param, codes) else replace(tool, strict=False)


def either_grammar(calls: Grammar, form: Grammar, *, special: Mapping[str, int]) -> Grammar:
    """The grammar of answers that are calls, or of a form that calls do not have."""
    rules = Composition(special)
    return rules.grammar(f"{rules.part(calls)} | {rules.part(form)}")
