"""Formats whose calls are JSON objects, or lists of them."""

from __future__ import annotations

import re
from typing import Any

from headrace.answer_formats.call_syntax import (
    CallFormat,
    HeadedCalls,
    JsonCalls,
)

HERMES = JsonCalls(begins=("<tool_call>",), ends=("</tool_call>",))
COMMAND_RESPONSE = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")
"""Marks around what Command models say to the user."""
_INKLING_DROPPED = (
    "<|message_model|>",
    "<|content_text|>",
    "<|end_message|>",
    "<|content_model_end_sampling|>",
)
_GENERIC_KEYS: dict[str, Any] = {
    "name_keys": ("name", "tool_name", "function"),
    "argument_keys": ("arguments", "parameters", "args"),
    "wrapper_keys": ("tool_calls", "tool_call"),
}

JSON_FORMATS = (
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
        dropped=COMMAND_RESPONSE,
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
        id_chars=9,
    ),
    CallFormat(
        name="apertus",
        syntax=(
            JsonCalls(begins=("<|tools_prefix|>",), ends=("<|tools_suffix|>",), name_is_key=True),
        ),
        traits=(("<|tools_prefix|>",),),
    ),
    CallFormat(
        name="longcat",
        syntax=(JsonCalls(begins=("<longcat_tool_call>",), ends=("</longcat_tool_call>",)),),
        traits=(("<longcat_tool_call>",),),
    ),
    CallFormat(
        name="internlm2",
        syntax=(JsonCalls(begins=("<|action_start|><|plugin|>",), ends=("<|action_end|>",)),),
        traits=(("<|action_start|>", "<|plugin|>"),),
    ),
    CallFormat(
        name="inkling",
        syntax=(
            JsonCalls(
                begins=("<|content_invoke_tool_json|>",),
                ends=("<|end_message|>", "<|content_model_end_sampling|>"),
                argument_keys=("args", "arguments"),
            ),
        ),
        dropped=_INKLING_DROPPED,
        traits=(("<|content_invoke_tool_json|>",),),
    ),
    CallFormat(
        name="gigachat3",
        syntax=(JsonCalls(begins=("<|function_call|>", "function call<|role_sep|>\n")),),
        dropped=("<|message_sep|>\n\n",),
        traits=(("<|function_call|>",), ("function call", "<|role_sep|>")),
    ),
    CallFormat(
        name="granite_20b",
        syntax=(JsonCalls(begins=("<function_call>",)),),
        traits=(("<function_call>",),),
    ),
    CallFormat(
        name="granite",
        syntax=(JsonCalls(begins=("<|tool_call|>", "<tool_call>"), ends=("</tool_call>",)),),
        traits=(("<|tool_call|>", "<|start_of_role|>"),),
    ),
    CallFormat(
        name="phi4",
        syntax=(
            JsonCalls(begins=("functools", "<|tool_call|>"), ends=("<|/tool_call|>",)),
            JsonCalls(bare=("{",)),
        ),
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
    CallFormat(name="hermes", syntax=(HERMES,), traits=(("<tool_call>",),)),
    CallFormat(
        name="llama3_json",
        syntax=(JsonCalls(begins=("<|python_tag|>",), bare=("{",)),),
        traits=(("<|python_tag|>",), ("<|start_header_id|>", '"parameters"')),
    ),
    CallFormat(
        name="xlam",
        syntax=(
            JsonCalls(
                begins=("[TOOL_CALLS]", "<tool_call>"),
                ends=("</tool_call>",),
                bare=("[", "{", "```json", "```"),
            ),
        ),
        traits=(("_xlam_",),),
    ),
    CallFormat(
        name="generic_json",
        syntax=(JsonCalls(bare=("{", "[", "```json"), **_GENERIC_KEYS),),
        traits=(("tools",),),
    ),
)
