"""Formats whose calls name each parameter in a tag, a value beside it."""

from __future__ import annotations

import re
from typing import Any

from headrace.answer_formats.call_formats.json_formats import HERMES
from headrace.answer_formats.call_syntax import (
    CallFormat,
    JsonCalls,
    NestedCalls,
    TaggedCalls,
)

_FUNCTION_TAGS: dict[str, Any] = {"name": ("<function=", ">"), "key": ("<parameter=", ">")}
_ATTRIBUTES = re.compile(r"""name\s*=\s*["']?(?P<name>[^"'>]+)["']?(?:.*\btype="(?P<type>\w+)")?""")
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
        json_arguments=True,
    )
    for space, sections in (("", ("function_calls", "tool_calls")), (" ", ("calls",)))
)
_KIMI_K3_DROPPED = (
    "<|open|>response<|sep|>",
    "<|close|>response<|sep|>",
    "<|close|>message<|sep|>",
)

TAGGED_FORMATS = (
    CallFormat(
        name="dsml",
        syntax=_DSML,
        traits=(("<｜DSML｜",), ("｜DSML｜", "invoke")),
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
                bare=("<ifm|tool_call>",),
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
                begins=("<ifm|tool_calls>", "<ifm|tool_call>"),
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
            HERMES,
        ),
        ends_reasoning=("<tool_call>",),
        traits=(("<function=", "<parameter="),),
    ),
)
