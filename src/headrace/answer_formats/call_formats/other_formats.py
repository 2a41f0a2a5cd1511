"""Formats of a head and JSON, of Python, of bare keys, and harmony."""

from __future__ import annotations

import re
from typing import Any

from headrace.answer_formats.call_syntax import (
    BareKeyCalls,
    CallFormat,
    HarmonyCalls,
    HeadedCalls,
    JsonCalls,
    PythonCalls,
)
from headrace.answer_formats.harmony_marks import CHANNEL, MESSAGE

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

OTHER_FORMATS = (
    CallFormat(name="harmony", syntax=HarmonyCalls(), traits=((CHANNEL, MESSAGE),)),
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
        name="deepseek",
        syntax=(_DEEPSEEK_R1, _DEEPSEEK_V31),
        traits=(("<｜tool▁calls▁begin｜>",),),
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
        name="olmo3",
        syntax=(PythonCalls(begins=("<function_calls>",), ends=("</function_calls>",)),),
        traits=(("<function_calls>",),),
    ),
    CallFormat(
        name="lfm2",
        syntax=(
            PythonCalls(begins=("<|tool_call_start|>",), ends=("<|tool_call_end|>",)),
            JsonCalls(begins=("<|tool_call_start|>",), ends=("<|tool_call_end|>",)),
        ),
        traits=(("<|tool_call_start|>",),),
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
)
