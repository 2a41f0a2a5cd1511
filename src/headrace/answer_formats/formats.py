"""The formats that are known, and the choice among them by a chat template's text.

A template that writes a conversation's calls has the marks of its model's format in it. The order
of the formats is that of the choice: marks that only one format has come before shared ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.answer_formats.call_syntax import (
    CallFormat,
    HarmonyCalls,
    HeadedCalls,
    JsonCalls,
    PythonCalls,
    ReasoningFormat,
    TaggedCalls,
    ThinkTags,
)
from headrace.errors import ConfigError, shown

_FUNCTION_TAGS = {"name": ("<function=", ">"), "key": ("<parameter=", ">")}
_HERMES = JsonCalls(begins=("<tool_call>",), ends=("</tool_call>",))
_DEEPSEEK_MARKS = {
    "begins": ("<｜tool▁calls▁begin｜>",),
    "calls": ("<｜tool▁call▁begin｜>",),
    "ends": ("<｜tool▁call▁end｜>",),
    "section_ends": ("<｜tool▁calls▁end｜>",),
}
_DEEPSEEK_R1 = HeadedCalls(
    header=re.compile(
        r"\s*(?:<｜tool▁call▁begin｜>)?\s*\w+<｜tool▁sep｜>(?P<name>[^\s<]+)\s*```(?:json)?\s*"
    ),
    **_DEEPSEEK_MARKS,
)
_DEEPSEEK_V31 = HeadedCalls(
    header=re.compile(r"\s*(?:<｜tool▁call▁begin｜>)?\s*(?P<name>[^\s<]+)<｜tool▁sep｜>\s*"),
    **_DEEPSEEK_MARKS,
)
_GENERIC_KEYS = {
    "name_keys": ("name", "tool_name", "function"),
    "argument_keys": ("arguments", "parameters", "args"),
    "wrapper_keys": ("tool_calls", "tool_call"),
}

CALL_FORMATS = (
    CallFormat(name="harmony", syntax=HarmonyCalls(), traits=(("<|channel|>", "<|message|>"),)),
    CallFormat(
        name="kimi_k2",
        syntax=(
            HeadedCalls(
                begins=("<|tool_calls_section_begin|>",),
                header=re.compile(
                    r"\s*(?:<\|tool_call_begin\|>)?\s*"
                    r"(?P<id>(?:functions\.)?(?P<name>[^\s<:]+)(?::\d+)?)\s*"
                    r"<\|tool_call_argument_begin\|>\s*"
                ),
                calls=("<|tool_call_begin|>",),
                ends=("<|tool_call_end|>",),
                section_ends=("<|tool_calls_section_end|>",),
            ),
        ),
        traits=(("<|tool_calls_section_begin|>",),),
    ),
    CallFormat(
        name="deepseek",
        syntax=(_DEEPSEEK_R1, _DEEPSEEK_V31),
        traits=(("<｜tool▁calls▁begin｜>",),),
    ),
    CallFormat(
        name="seed_oss",
        syntax=(
            TaggedCalls(
                begins=("<seed:tool_call>",),
                **_FUNCTION_TAGS,
                value=("", "</parameter>"),
                end="</function>",
                section_ends=("</seed:tool_call>",),
            ),
        ),
        traits=(("<seed:tool_call>",),),
    ),
    CallFormat(
        name="minimax_m2",
        syntax=(
            TaggedCalls(
                begins=("<minimax:tool_call>",),
                name=("<invoke name=", ">"),
                key=("<parameter name=", ">"),
                value=("", "</parameter>"),
                end="</invoke>",
                section_ends=("</minimax:tool_call>",),
            ),
        ),
        traits=(("<minimax:tool_call>",),),
    ),
    CallFormat(
        name="glm",
        syntax=(
            TaggedCalls(
                bare=("<tool_call>",),
                name=("<tool_call>", ""),
                key=("<arg_key>", "</arg_key>"),
                value=("<arg_value>", "</arg_value>"),
                end="</tool_call>",
            ),
        ),
        traits=(("<arg_key>",),),
    ),
    CallFormat(
        name="qwen3_coder",
        syntax=(
            TaggedCalls(
                begins=("<tool_call>",),
                bare=("<function=",),
                **_FUNCTION_TAGS,
                value=("", "</parameter>"),
                end="</function>",
                section_ends=("</tool_call>",),
            ),
            _HERMES,
        ),
        traits=(("<function=", "<parameter="),),
    ),
    CallFormat(
        name="command_r7b",
        syntax=(
            JsonCalls(
                begins=("<|START_ACTION|>",),
                ends=("<|END_ACTION|>",),
                name_keys=("tool_name",),
                id_keys=("tool_call_id",),
            ),
        ),
        traits=(("<|START_ACTION|>",),),
    ),
    CallFormat(
        name="command_r",
        syntax=(JsonCalls(begins=("Action:",), name_keys=("tool_name",)),),
        traits=(("Action:", "```json", "tool_name"),),
    ),
    CallFormat(
        name="mistral",
        syntax=(
            JsonCalls(begins=("[TOOL_CALLS]",)),
            HeadedCalls(
                begins=("[TOOL_CALLS]",),
                header=re.compile(
                    r"\s*(?P<name>[^\[\s{]+)\s*(?:\[CALL_ID\](?P<id>[^\[\s{]+))?(?:\[ARGS\])?\s*"
                ),
            ),
        ),
        traits=(("[TOOL_CALLS]",),),
    ),
    CallFormat(
        name="olmo3",
        syntax=(PythonCalls(begins=("<function_calls>",), ends=("</function_calls>",)),),
        traits=(("<function_calls>",),),
    ),
    CallFormat(
        name="lfm2",
        syntax=(PythonCalls(begins=("<|tool_call_start|>",), ends=("<|tool_call_end|>",)),),
        traits=(("<|tool_call_start|>",),),
    ),
    CallFormat(
        name="granite",
        syntax=(JsonCalls(begins=("<|tool_call|>", "<tool_call>"), ends=("</tool_call>",)),),
        traits=(("<|tool_call|>", "<|start_of_role|>"),),
    ),
    CallFormat(
        name="phi4",
        syntax=(JsonCalls(begins=("functools", "<|tool_call|>"), ends=("<|/tool_call|>",)),),
        traits=(("functools[",), ("<|tool|>", "<|/tool|>"), ("<|tool_call|>",)),
    ),
    CallFormat(
        name="nemotron",
        syntax=(JsonCalls(begins=("<TOOLCALL>",), ends=("</TOOLCALL>",)),),
        traits=(("<TOOLCALL>",),),
    ),
    CallFormat(
        name="minimax",
        syntax=(JsonCalls(begins=("<tool_calls>",), ends=("</tool_calls>",)),),
        traits=(("<tool_calls>",),),
    ),
    CallFormat(name="hermes", syntax=(_HERMES,), traits=(("<tool_call>",),)),
    CallFormat(
        name="llama4",
        syntax=(PythonCalls(begins=("<|python_start|>",), bare=("[",), ends=("<|python_end|>",)),),
        traits=(("<|header_start|>",), ("<|python_start|>",)),
    ),
    CallFormat(
        name="pythonic",
        syntax=(PythonCalls(begins=("<|python_tag|>",), bare=("[",)),),
        traits=(("<|start_header_id|>", "[func_name1("),),
    ),
    CallFormat(
        name="llama3_json",
        syntax=(JsonCalls(begins=("<|python_tag|>",), bare=("{",)),),
        traits=(("<|python_tag|>",), ("<|start_header_id|>", '"parameters"')),
    ),
    CallFormat(
        name="generic_json",
        syntax=(JsonCalls(bare=("{", "[", "```json"), **_GENERIC_KEYS),),
        traits=(("tools",),),
    ),
)

_THINK_ENDED_BY = ("<|tool_calls_section_begin|>", "<｜tool▁calls▁begin｜>")

REASONING_FORMATS = (
    ReasoningFormat(name="harmony", tags=HarmonyCalls(), traits=(("<|channel|>", "<|message|>"),)),
    ReasoningFormat(
        name="mistral",
        tags=ThinkTags(begin="[THINK]", end="[/THINK]"),
        traits=(("[THINK]",),),
    ),
    ReasoningFormat(
        name="command",
        tags=ThinkTags(begin="<|START_THINKING|>", end="<|END_THINKING|>"),
        dropped=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
        traits=(("<|START_THINKING|>",),),
    ),
    ReasoningFormat(
        name="seed",
        tags=ThinkTags(begin="<seed:think>", end="</seed:think>"),
        traits=(("<seed:think>",),),
    ),
    ReasoningFormat(
        name="granite",
        tags=ThinkTags(begin="<think>", end="</think>"),
        dropped=("<response>", "</response>"),
        traits=(("<think>", "<response>"),),
    ),
    ReasoningFormat(
        name="think",
        tags=ThinkTags(begin="<think>", end="</think>", also_ended_by=_THINK_ENDED_BY),
        traits=(("<think>",),),
    ),
)


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The pair of formats in which a model writes tool calls and reasoning."""

    calls: CallFormat | None = None
    """None for a model that does not call tools."""
    reasoning: ReasoningFormat | None = None
    """None for a model without reasoning."""

    def opens_reasoning(self, prompt: str) -> bool:
        """Whether a prompt ends with the mark that begins reasoning, as some templates write it."""
        tags = None if self.reasoning is None else self.reasoning.tags
        return isinstance(tags, ThinkTags) and prompt.rstrip().endswith(tags.begin)


NO_FORMAT = AnswerFormat()
"""Of a model that writes neither reasoning nor calls."""


def choose_format(template: str) -> AnswerFormat:
    """The formats whose marks a chat template's text has."""

    def fits(traits: tuple[tuple[str, ...], ...]) -> bool:
        return any(all(text in template for text in texts) for texts in traits)

    return AnswerFormat(
        next((calls for calls in CALL_FORMATS if fits(calls.traits)), None),
        next((reasoning for reasoning in REASONING_FORMATS if fits(reasoning.traits)), None),
    )


def call_format(name: str) -> CallFormat:
    """The format of tool calls with a name. Raises ConfigError with all names for another."""
    for known in CALL_FORMATS:
        if known.name == name:
            return known
    names = ", ".join(known.name for known in CALL_FORMATS)
    raise ConfigError(f"tool_call_parser: {shown(name)} is unknown; take one of {names}")


def reasoning_format(name: str) -> ReasoningFormat:
    """The format of reasoning with a name. Raises ConfigError with all names for another."""
    for known in REASONING_FORMATS:
        if known.name == name:
            return known
    names = ", ".join(known.name for known in REASONING_FORMATS)
    raise ConfigError(f"reasoning_parser: {shown(name)} is unknown; take one of {names}")
