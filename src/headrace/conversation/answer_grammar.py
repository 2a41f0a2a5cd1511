"""The grammar of an answer to a conversation: of its form, of the calls in it, or of both.

It holds what follows the model's reasoning; reasoning is free. An answer without form or rules for
its calls has no grammar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from headrace.answer_formats.formats import AnswerFormat
from headrace.errors import RequestError
from headrace.protocol.openai.tools import ToolChoice, ToolDefinition
from headrace.structured.grammar import Grammar
from headrace.structured.grammar_checks import GrammarChecks
from headrace.structured.reasoning import after_reasoning
from headrace.structured.tools.call_grammar import CallableTool, either_grammar, tool_call_grammar


class ToolRules(Protocol):
    """The tools of a conversation, and how they may be called."""

    @property
    def tools(self) -> Sequence[ToolDefinition]:
        """All of them."""

    @property
    def parallel_tool_calls(self) -> bool:
        """Whether an answer may have several calls."""


def held_to(
    formed: tuple[Grammar, str] | None,
    rules: ToolRules,
    format: AnswerFormat,
    *,
    choice: ToolChoice,
    opened: bool,
    special: Mapping[str, int],
    checks: GrammarChecks,
) -> tuple[Grammar, str] | None:
    """The grammar of answers with a form, calls, or both, and the field that is named if it does
    not compile; None where they are held to nothing.

    formed: the form and its field; None for none. rules: the tools, of which choice may be called.
    format: as the model writes. opened: the prompt ended within reasoning. special: the texts of
    the model's special tokens and their ids. checks: what is known of schemas that were compiled
    before. Raises RequestError naming the field at fault.
    """
    form, param = (None, "") if formed is None else formed
    needed = calls_need_grammar(rules, choice, with_form=form is not None)
    if form is not None:
        called = () if not needed or format.calls is None else format.calls.ends_reasoning
        try:
            form = after_reasoning(
                form, format.reasoning, opened=opened, special=special, calls=called
            )
        except ValueError as error:
            raise RequestError(
                f"{param}: an answer of this model cannot be held to a form after its reasoning: "
                f"{error}; omit {param}",
                param=param,
            ) from None
    if not needed:
        return None if form is None else (form, param)
    if format.calls is None:
        raise RequestError(
            "tool_choice: this model's chat template shows no format of tool calls, so none can be "
            "required; omit tool_choice and strict, or name the format: --tool-call-parser of "
            "`headrace serve`, LLM(tool_call_parser=...)",
            param="tool_choice",
            code="unsupported",
        )
    required = choice.kind == "required"
    calls = tool_call_grammar(
        format,
        _callable_tools(rules, choice),
        choice="required" if required or form is not None else "auto",
        parallel=rules.parallel_tool_calls and not choice.is_named,
        opened=opened,
        special=special,
        checks=checks,
    )
    if required or form is None:
        return calls, "tools"
    return either_grammar(calls, form, special=special), param


def calls_need_grammar(rules: ToolRules, choice: ToolChoice, *, with_form: bool = False) -> bool:
    """Whether a choice of tools needs a grammar: calls are required, some must not be made, only
    one may be, arguments have to be of their schemas, or the answer has a form unless it is a call.
    """
    return choice.may_call and (
        choice.kind == "required"
        or choice.names is not None
        or not rules.parallel_tool_calls
        or with_form
        or any(tool.function.strict for tool in rules.tools)
    )


def _callable_tools(rules: ToolRules, choice: ToolChoice) -> list[CallableTool]:
    """The tools that may be called, with their arguments held to the schema: of one that
    is not strict, if the model's format can."""
    return [
        CallableTool(
            name=tool.function.name,
            parameters=tool.function.parameters,
            if_held=not tool.function.strict,
            param=f"tools[{index}].function",
        )
        for index, tool in enumerate(rules.tools)
        if choice.names is None or tool.function.name in choice.names
    ]
