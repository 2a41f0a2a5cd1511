"""A conversation in Python: its prompt, and its answer read into content, reasoning and calls.

The format, the reading and what tools mean are those of the server, so that the same conversation
gives the same tokens and the same answer there.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import msgspec

from headrace.answer_formats.deltas import CallDelta, CallEnd, CallStart, ContentDelta
from headrace.conversation.answer_rules import AnswerRules
from headrace.conversation.format_marks import FormatMarks
from headrace.conversation.reading import AnswerReading, ReadChoice
from headrace.conversation.request import template_variables
from headrace.engine.params import SamplingParams
from headrace.errors import RequestError
from headrace.offline import values
from headrace.offline.params import SamplingParams as SamplingParamsOfCaller
from headrace.offline.results import AnswerEnd, GenerationDelta, ToolCall
from headrace.offline.thinking import bounded
from headrace.offline.values import items, unexpected
from headrace.protocol.openai.tools import (
    ToolChoice,
    ToolDefinition,
    check_tool_shape,
    check_tools,
    tool_choice_of,
)
from headrace.structured.grammar_checks import GrammarChecks

_FORM = 'SamplingParams(structured_outputs={"json": ...})'
_NOT_VARIABLES = {
    name: f"give SamplingParams({name}=...)"
    for name in SamplingParamsOfCaller.__struct_fields__
    if name != "thinking"  # of the templates of DeepSeek and Granite too
} | {
    "response_format": f"give {_FORM}",
    "json_schema": f"give {_FORM}",
    "guided_json": f"give {_FORM}",
    "guided_regex": f"give {_FORM.replace('json', 'regex')}",
    "guided_choice": f"give {_FORM.replace('json', 'choice')}",
    "guided_grammar": f"give {_FORM.replace('json', 'grammar')}",
    "max_completion_tokens": "give SamplingParams(max_tokens=...)",
    "top_logprobs": "give SamplingParams(logprobs=...)",
    "reasoning": "give reasoning_effort=... or SamplingParams(thinking_token_budget=...)",
    "functions": "give tools=[...]",
    "function_call": "give tool_choice=...",
    "stream": "stream_chat gives an answer piece by piece",
}
"""Names of requests that a caller might take for arguments: templates would ignore them unseen."""


class ChatPrompt(NamedTuple):
    """A conversation as the model reads it."""

    token_ids: list[int]
    reading: AnswerReading | None
    """How its answers are read; None where they are content as they stand."""
    marks: FormatMarks
    """How the model writes reasoning and calls."""
    special: Mapping[str, int]
    """The texts of the model's special tokens and their ids."""

    def held(
        self,
        params: SamplingParams,
        options: ChatOptions,
        checks: GrammarChecks,
        *,
        max_reasoning_tokens: int | None = None,
    ) -> SamplingParams:
        """The parameters with all that holds answers to it: their form after reasoning, the calls
        they may have, and the bound of their reasoning, where there is one.

        Raises RequestError for a form or tools without a grammar, or with one that does not
        compile.
        """
        form = None if params.grammar is None else (params.grammar, "params.grammar")
        rules = AnswerRules(
            options,
            options.choice_of_tools,
            has_form=form is not None,
            shows_tools=bool(options.tools),
            marks=self.marks,
            reading=self.reading,
            variables=options.variables,
        )
        if rules.is_held:
            found = rules.grammar(form, self.special, checks)
            assert found is not None
            checks.check(*found)
            params = msgspec.structs.replace(params, grammar=found[0])
        if banned := rules.banned_ids:
            words = (*params.bad_words_token_ids, *banned)
            params = msgspec.structs.replace(params, bad_words_token_ids=words)
        if max_reasoning_tokens is None:
            return params
        start = rules.reasoning_start()
        return bounded(params, max_reasoning_tokens, start)


class ChatOptions(NamedTuple):
    """The options of a conversation beside its messages."""

    tools: tuple[ToolDefinition, ...]
    choice_of_tools: ToolChoice
    parallel_tool_calls: bool
    variables: dict[str, Any]
    """Of the template, and options of rendering."""

    @classmethod
    def of(
        cls,
        tools: object = None,
        tool_choice: object = None,
        parallel_tool_calls: object = True,
        reasoning_effort: object = None,
        chat_template_kwargs: object = None,
        variables: Mapping[str, Any] | None = None,
    ) -> ChatOptions:
        """From a caller's arguments; raises RequestError naming the one that is wrong."""
        _check_variables(variables or {})
        given = _tools(tools)
        effort = _effort(reasoning_effort)
        named = {} if chat_template_kwargs is None else chat_template_kwargs
        if not isinstance(named, Mapping):
            raise unexpected("chat_template_kwargs", named, "a mapping or None")
        return cls(
            tuple(given),
            tool_choice_of(tool_choice, given),
            values.boolean(parallel_tool_calls, "parallel_tool_calls"),
            template_variables({**named, **(variables or {})}, effort),
        )


def _check_variables(variables: Mapping[str, Any]) -> None:
    """Raise RequestError for what is named like a parameter of requests."""
    for name in variables:
        if name in _NOT_VARIABLES:
            raise RequestError(
                f"{name} would be a variable of the chat template here, and change nothing: "
                f"{_NOT_VARIABLES[name]}; a variable of this name goes into chat_template_kwargs",
                param=name,
                code="unsupported",
            )


def _effort(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise unexpected("reasoning_effort", value, "a text or None")
    # Read only here: a caller who names no effort does not wait for it.
    from headrace.protocol.openai.chat import check_effort

    check_effort(value, "reasoning_effort")
    return value


def _tools(value: object) -> list[ToolDefinition]:
    if value is None:
        return []
    given = items(value, "tools", "a list of tools or None")
    tools = []
    for index, tool in enumerate(given):
        if isinstance(tool, Mapping):
            check_tool_shape(tool, f"tools[{index}]")
        try:
            tools.append(msgspec.convert(tool, ToolDefinition))
        except msgspec.ValidationError as error:
            problem, _, path = str(error).partition(" - at `$")
            param = f"tools[{index}]{path.rstrip('`')}"
            raise RequestError(f"{param}: {problem}", param=param, code="invalid_type") from None
    check_tools(tools)
    return tools


class ChatAnswer:
    """An answer to a conversation while it is read."""

    def __init__(self, reading: AnswerReading | None) -> None:
        """reading: None where all of it is content."""
        self._read = None
        if reading is not None:
            self._read = ReadChoice(reading, lambda: secrets.token_hex(16))
        self._name = self._id = ""
        self._arguments: list[str] = []

    def read(self, delta: GenerationDelta, text_offsets: Sequence[int]) -> GenerationDelta:
        """A delta with what its text makes certain of content, reasoning and calls.

        text_offsets: where its tokens begin, in characters of the answer's text.
        """
        if self._read is None:
            return replace(delta, content=delta.text)
        content: list[str] = []
        reasoning: list[str] = []
        calls: list[ToolCall] = []
        reasoned = self._read.reasoning_tokens
        reason = delta.finish_reason
        for part in self._read.take(delta.text, text_offsets, is_last=reason is not None):
            match part:
                case CallStart(_, name, _):
                    self._name, self._id = name, self._read.call_id(part)
                    self._arguments = []
                case CallDelta(_, arguments):
                    self._arguments.append(arguments)
                case CallEnd():
                    calls.append(ToolCall(self._name, "".join(self._arguments), self._id))
                case ContentDelta(text):
                    content.append(text)
                case _:
                    reasoning.append(part.text)
        return replace(
            delta,
            content="".join(content),
            reasoning="".join(reasoning) if reasoning else None,
            reasoning_tokens=self._read.reasoning_tokens - reasoned,
            tool_calls=tuple(calls),
            finish_reason=None
            if reason is None
            else cast(AnswerEnd, self._read.finish_reason(reason)),
        )
