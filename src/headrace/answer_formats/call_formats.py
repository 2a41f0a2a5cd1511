"""The formats of tool calls that are known, most particular first.

A template that writes a conversation's calls has the marks of its model's format in it. The order
is that of the choice: marks that only one format has come before shared ones.
"""

from __future__ import annotations

import re
from typing import Any

from headrace.answer_formats.call_syntax import (
    BareKeyCalls,
    CallFormat,
    HarmonyCalls,
    HeadedCalls,
    JsonCalls,
    NestedCalls,
    PythonCalls,
    TaggedCalls,
)

_FUNCTION_TAGS: dict[str, Any] = {"name": ("<function=", ">"), "key": ("<parameter=", ">")}
_ATTRIBUTES = re.compile(r"""name\s*=\s*["']?(?P<name>[^"'>]+)["']?(?:.*\btype="(?P<type>\w+)")?""")
_HERMES = JsonCalls(begins=("<tool_call>",), ends=("</tool_call>",))
_DEEPSEEK_MARKS: dict[str, Any] = {
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
_INVOKE_TAGS: dict[str, Any] = {
    "name": ("<invoke", ">"),
    "key": ("<parameter", ">"),
    "value": ("", "</parameter>"),
    "end": "</invoke>",
    "attributes": _ATTRIBUTES,
    "own_lines": True,
}
_DSML_ATTRIBUTES = re.compile(r"""name="(?P<name>[^"]+)"(?:\s+string="(?P<type>true|false)")?""")
# The spaces are those of V4.1.
_DSML = tuple(
    TaggedCalls(
        begins=tuple(f"<｜DSML｜{space}{section}>" for section in sections),
        bare=(f"<｜DSML｜{space}invoke ",),
        name=(f"<｜DSML｜{space}invoke", ">"),
        key=(f"<｜DSML｜{space}parameter", ">"),
        value=("", f"</｜DSML｜{space}parameter>"),
        end=f"</｜DSML｜{space}invoke>",
        section_ends=tuple(f"</｜DSML｜{space}{section}>" for section in sections),
        attributes=_DSML_ATTRIBUTES,
    )
    for space, sections in (("", ("function_calls", "tool_calls")), (" ", ("calls",)))
)
COMMAND_RESPONSE = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")
"""Marks around what Command models say to the user."""
_KIMI_K3_DROPPED = (
    "<|open|>response<|sep|>",
    "<|close|>response<|sep|>",
    "<|close|>message<|sep|>",
)
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

CALL_FORMATS = (
    CallFormat(name="harmony", syntax=HarmonyCalls(), traits=(("<|channel|>", "<|message|>"),)),
    CallFormat(
        name="dsml",
        syntax=_DSML,
        traits=(("<｜DSML｜",), ("｜DSML｜", "invoke")),
    ),
    CallFormat(
        name="gemma4",
        syntax=(
            BareKeyCalls(
                begins=("<|tool_call>call:", "<|tool_call>:", "<|tool_call>"),
                quote='<|"|>',
                ends=("<tool_call|>",),
            ),
        ),
        dropped=("<|tool_response>",),
        traits=(("<|tool_call>",),),
    ),
    CallFormat(
        name="functiongemma",
        syntax=(
            BareKeyCalls(
                begins=("<start_function_call>call:",),
                quote="<escape>",
                ends=("<end_function_call>",),
                all_quoted=True,
            ),
        ),
        traits=(("<start_function_call>",),),
    ),
    CallFormat(
        name="kimi_k3",
        syntax=(
            TaggedCalls(
                begins=("<|open|>tools<|sep|>",),
                name=("<|open|>call ", "<|sep|>"),
                key=("<|open|>argument ", "<|sep|>"),
                value=("", "<|close|>argument<|sep|>"),
                end="<|close|>call<|sep|>",
                section_ends=("<|close|>tools<|sep|>",),
                attributes=re.compile(
                    r"""(?:tool|key)="(?P<name>[^"]+)"(?:.*\btype="(?P<type>\w+)")?"""
                ),
            ),
        ),
        dropped=_KIMI_K3_DROPPED,
        traits=(("<|open|>", "<|sep|>"),),
    ),
    CallFormat(
        name="kimi_k2",
        syntax=(
            HeadedCalls(
                begins=("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
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
        name="step3",
        syntax=(
            TaggedCalls(
                begins=("<｜tool_calls_begin｜>",),
                name=("<steptml:invoke", ">"),
                key=("<steptml:parameter", ">"),
                value=("", "</steptml:parameter>"),
                end="</steptml:invoke>",
                section_ends=("<｜tool_calls_end｜>",),
                attributes=_ATTRIBUTES,
                fillers=(
                    "<｜tool_call_begin｜>",
                    "<｜tool_call_end｜>",
                    "<｜tool_sep｜>",
                    "function<｜tool_sep｜>",
                ),
            ),
        ),
        traits=(("<steptml:invoke",), ("steptml",)),
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
                own_lines=True,
                section_ends=("</seed:tool_call>",),
            ),
        ),
        traits=(("<seed:tool_call>",),),
    ),
    CallFormat(
        name="minimax_m3",
        syntax=(
            NestedCalls(
                begins=("]<]minimax[>[<tool_call>",),
                prefix="]<]minimax[>[",
                name=("]<]minimax[>[<invoke name=", ">"),
                end="]<]minimax[>[</invoke>",
                section_ends=("]<]minimax[>[</tool_call>",),
                item="item",
            ),
        ),
        traits=(("]<]minimax[>[",),),
    ),
    CallFormat(
        name="minimax_m2",
        syntax=(
            TaggedCalls(
                begins=("<minimax:tool_call>",),
                **_INVOKE_TAGS,
                section_ends=("</minimax:tool_call>",),
            ),
        ),
        traits=(("<minimax:tool_call>",),),
    ),
    CallFormat(
        name="dots",
        syntax=(
            TaggedCalls(
                begins=("<dots_function_call>",),
                **_INVOKE_TAGS,
                section_ends=("</dots_function_call>",),
            ),
            JsonCalls(begins=("<dots_function_call>",), ends=("</dots_function_call>",)),
        ),
        traits=(("<dots_function_call>",),),
    ),
    CallFormat(
        name="k2_horizon",
        syntax=(
            TaggedCalls(
                begins=("<ifm|tool_calls>",),
                name=("<ifm|tool_call>", ""),
                key=("<ifm|arg_key>", "<ifm|arg_value>"),
                value=("", "</ifm|arg_value>"),
                end="</ifm|tool_call>",
                section_ends=("</ifm|tool_calls>",),
                attributes=re.compile(
                    r"(?P<name>[^<]+)</ifm\|arg_key>"
                    r"(?:\s*<ifm\|arg_type>\s*(?P<type>\w+)\s*</ifm\|arg_type>)?"
                ),
            ),
            JsonCalls(
                begins=("<ifm|tool_calls>",),
                ends=("</ifm|tool_calls>",),
                fillers=("<ifm|tool_call>", "</ifm|tool_call>"),
            ),
        ),
        traits=(("<ifm|tool_call",),),
    ),
    CallFormat(
        name="hunyuan_v3",
        syntax=(
            TaggedCalls(
                begins=("<tool_calls>",),
                bare=("<tool_call>",),
                name=("<tool_call>", "<tool_sep>"),
                key=("<arg_key>", "</arg_key>"),
                value=("<arg_value>", "</arg_value>"),
                end="</tool_call>",
                section_ends=("</tool_calls>",),
            ),
        ),
        traits=(("<tool_sep>", "<arg_key>"),),
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
        ends_reasoning=("<tool_call>",),
        traits=(("<arg_key>",),),
    ),
    CallFormat(
        name="minicpm5",
        syntax=(
            TaggedCalls(
                bare=("<function name=", "<functionname="),
                name=("<function", ">"),
                key=("<param", ">"),
                value=("", "</param>"),
                end="</function>",
                attributes=_ATTRIBUTES,
                quotes=("<![CDATA[", "]]>"),
            ),
        ),
        traits=(("<function name=", "<param name="),),
    ),
    CallFormat(
        name="functionary_v3_1",
        syntax=(
            HeadedCalls(
                begins=("<function=",),
                header=re.compile(r"\s*(?P<name>[^\s>{]+)>\s*"),
                ends=("</function>",),
            ),
        ),
        dropped=("<|eom_id|>",),
        traits=(("<function=", "</function>", "<|python_tag|>"),),
    ),
    CallFormat(
        name="functionary_v3_2",
        syntax=(
            HeadedCalls(
                begins=(">>>",),
                header=re.compile(r"\s*(?P<name>[A-Za-z_][^\s>{]*)\s*\n\s*"),
            ),
        ),
        dropped=(">>>all\n",),
        opened_by=">>>",
        traits=((">>>all",), (">>>", "recipient")),
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
                own_lines=True,
                section_ends=("</tool_call>",),
            ),
            _HERMES,
        ),
        ends_reasoning=("<tool_call>",),
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
        name="apertus",
        syntax=(
            JsonCalls(begins=("<|tools_prefix|>",), ends=("<|tools_suffix|>",), name_is_key=True),
        ),
        traits=(("<|tools_prefix|>",),),
    ),
    CallFormat(
        name="plamo3",
        syntax=(
            HeadedCalls(
                begins=(
                    "<|plamo:begin_tool_requests:plamo|>",
                    "<|plamo:begin_tool_request:plamo|>",
                ),
                header=re.compile(
                    r"\s*(?:<\|plamo:begin_tool_request:plamo\|>)?\s*<\|plamo:begin_tool_name:plamo\|>"
                    r"\s*(?P<name>[^\s<]+)\s*<\|plamo:end_tool_name:plamo\|>\s*"
                    r"(?:<\|plamo:begin_tool_arguments:plamo\|>\s*)?"
                    r"(?:<\|plamo:constrain\|>json)?(?:<\|plamo:msg\|>)?\s*"
                ),
                calls=("<|plamo:begin_tool_request:plamo|>",),
                ends=(
                    "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
                    "<|plamo:end_tool_arguments:plamo|>",
                    "<|plamo:end_tool_request:plamo|>",
                ),
                section_ends=("<|plamo:end_tool_requests:plamo|>",),
            ),
        ),
        traits=(("<|plamo:begin_tool_request",),),
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
    CallFormat(name="hermes", syntax=(_HERMES,), traits=(("<tool_call>",),)),
    CallFormat(
        name="llama4",
        syntax=(
            PythonCalls(begins=("<|python_start|>",), bare=("[",), ends=("<|python_end|>",)),
            JsonCalls(bare=("{",)),
        ),
        traits=(("<|header_start|>",), ("<|python_start|>",)),
    ),
    CallFormat(
        name="pythonic",
        syntax=(PythonCalls(begins=("<|python_tag|>",), bare=("[",)),),
        traits=(("<|start_header_id|>", "[func_name1("), ("[func_name1(",)),
    ),
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
