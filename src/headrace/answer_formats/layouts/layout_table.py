"""The table of the forms in which the known formats write calls, white space included.

They are those in which published templates render calls; where none is at hand, those of recorded
answers.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.answer_formats.harmony_marks import (
    CHANNEL,
    COMMENTARY,
    FUNCTIONS,
    JSON,
    MESSAGE,
    message_on,
)
from headrace.answer_formats.layouts.call_layout import (
    TYPES,
    BareKeyLayout,
    Expression,
    JsonLayout,
    Layout,
    NestedLayout,
    PythonLayout,
    TaggedLayout,
)

_INDEX = Expression("[0-9]{1,4}")
_ID_OF_9 = Expression("[a-zA-Z0-9]{9}")

_NAMED = JsonLayout(
    before_name=('{"name": "',),
    before_arguments=('", "arguments": ',),
    after_arguments=("}",),
)
_HERMES = replace(
    _NAMED,
    before_name=('<tool_call>\n{"name": "',),
    after_arguments=("}\n</tool_call>",),
    between=("\n",),
)
_FUNCTION = TaggedLayout(
    before_name=("<function=",),
    after_name=(">\n",),
    before_key="<parameter=",
    before_value=">",
    value_end="</parameter>",
    after_value="\n",
    after_arguments=("</function>\n",),
)
_INVOKE = TaggedLayout(
    before_name=('<invoke name="',),
    after_name=('">',),
    before_key='<parameter name="',
    before_value='">',
    value_end="</parameter>",
    after_arguments=("</invoke>",),
)
_MINIMAX = "]<]minimax[>["
_DEEPSEEK_BEGIN = "<｜tool▁call▁begin｜>"
_DEEPSEEK_SECTION = {
    "opening": ("<｜tool▁calls▁begin｜>",),
    "closing": ("<｜tool▁calls▁end｜>",),
}

LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "hermes": (_HERMES,),
    "harmony": (
        JsonLayout(
            before_name=(f"{CHANNEL}{COMMENTARY} to={FUNCTIONS}",),
            before_arguments=(f" {JSON}{MESSAGE}",),
        ),
        JsonLayout(
            before_name=(f" to={FUNCTIONS}",),
            before_arguments=(message_on(COMMENTARY, form="json"),),
        ),
    ),
    "kimi_k2": (
        JsonLayout(
            opening=("<|tool_calls_section_begin|>",),
            before_name=("<|tool_call_begin|>functions.",),
            before_arguments=(":", _INDEX, "<|tool_call_argument_begin|>"),
            after_arguments=("<|tool_call_end|>",),
            closing=("<|tool_calls_section_end|>",),
        ),
    ),
    "deepseek": (
        JsonLayout(
            before_name=(_DEEPSEEK_BEGIN,),
            before_arguments=("<｜tool▁sep｜>",),
            after_arguments=("<｜tool▁call▁end｜>",),
            **_DEEPSEEK_SECTION,
        ),
        JsonLayout(
            before_name=(f"{_DEEPSEEK_BEGIN}function<｜tool▁sep｜>",),
            before_arguments=("\n```json\n",),
            after_arguments=("\n```<｜tool▁call▁end｜>",),
            between=("\n",),
            **_DEEPSEEK_SECTION,
        ),
    ),
    "mistral": (
        JsonLayout(
            before_name=("[TOOL_CALLS]",),
            before_arguments=("[ARGS]",),
        ),
        JsonLayout(
            before_name=("[TOOL_CALLS]",),
            before_arguments=("[CALL_ID]", _ID_OF_9, "[ARGS]"),
        ),
        replace(
            _NAMED,
            opening=("[TOOL_CALLS]", Expression(" ?"), "["),
            after_arguments=(', "id": "', _ID_OF_9, '"}'),
            between=(", ",),
            closing=("]",),
        ),
    ),
    "command_r7b": (
        JsonLayout(
            opening=("<|START_ACTION|>[\n    ",),
            before_name=('{"tool_call_id": "', _INDEX, '", "tool_name": "'),
            before_arguments=('", "parameters": ',),
            after_arguments=("}",),
            between=(",\n    ",),
            closing=("\n]<|END_ACTION|>",),
        ),
    ),
    "command_r": (
        JsonLayout(
            opening=("Action:", Expression(r"[ \n]?"), "```json\n[\n"),
            before_name=('    {\n        "tool_name": "',),
            before_arguments=('",\n        "parameters": ',),
            after_arguments=("\n    }",),
            between=(",\n",),
            closing=("\n]", Expression(r"\n?"), "```"),
        ),
    ),
    "llama3_json": (
        replace(_NAMED, before_arguments=('", "parameters": ',), between=("; ",)),
    ),
    "minimax": (
        replace(_NAMED, opening=("<tool_calls>[",), between=(", ",), closing=("]</tool_calls>",)),
        replace(_NAMED, opening=("<tool_calls>\n",), between=("\n",), closing=("\n</tool_calls>",)),
    ),
    "granite": (
        replace(_NAMED, opening=("<|tool_call|>[",), between=(", ",), closing=("]",)),
        _HERMES,
    ),
    "phi4": (
        replace(_NAMED, opening=("functools[",), between=(", ",), closing=("]",)),
        replace(
            _NAMED, opening=("<|tool_call|>[",), between=(", ",), closing=("]<|/tool_call|>",)
        ),
    ),
    "generic_json": (replace(_NAMED, between=("\n",)),),
    "qwen3_coder": (
        replace(
            _FUNCTION,
            before_name=("<tool_call>\n<function=",),
            padding="\n",
            after_arguments=("</function>\n</tool_call>",),
            between=("\n",),
        ),
    ),
    "seed_oss": (
        replace(
            _FUNCTION,
            before_name=("<seed:tool_call>\n<function=",),
            after_arguments=("</function>\n</seed:tool_call>",),
            between=("\n",),
        ),
    ),
    "gemma4": (
        BareKeyLayout(
            before_name=("<|tool_call>call:",),
            quote='<|"|>',
            after_arguments=("<tool_call|>",),
        ),
    ),
    "functiongemma": (
        BareKeyLayout(
            before_name=("<start_function_call>call:",),
            quote="<escape>",
            quoted_json=True,
            after_arguments=("<end_function_call>",),
        ),
    ),
    "minimax_m3": (
        NestedLayout(
            opening=(f"{_MINIMAX}<tool_call>\n",),
            before_name=(f'{_MINIMAX}<invoke name="',),
            after_name=('">',),
            prefix=_MINIMAX,
            item="item",
            after_arguments=(f"{_MINIMAX}</invoke>\n",),
            closing=(f"{_MINIMAX}</tool_call>",),
        ),
    ),
    "minimax_m2": (
        TaggedLayout(
            opening=("<minimax:tool_call>\n",),
            before_name=('<invoke name="',),
            after_name=('">\n',),
            before_key='<parameter name="',
            before_value='">',
            value_end="</parameter>",
            after_value="\n",
            after_arguments=("</invoke>",),
            between=("\n",),
            closing=("\n</minimax:tool_call>",),
        ),
    ),
    "glm": (
        TaggedLayout(
            before_name=("<tool_call>",),
            after_name=("\n",),
            before_key="<arg_key>",
            before_value="</arg_key>\n<arg_value>",
            value_end="</arg_value>",
            after_value="\n",
            after_arguments=("</tool_call>",),
            between=("\n",),
        ),
    ),
    "olmo3": (
        PythonLayout(
            opening=("<function_calls>",), between=("\n",), closing=("</function_calls>",)
        ),
    ),
    "apertus": (
        JsonLayout(
            opening=("<|tools_prefix|>[",),
            before_name=('{"',),
            before_arguments=('": ',),
            after_arguments=("}",),
            between=(", ",),
            closing=("]<|tools_suffix|>",),
        ),
    ),
    "dots": (
        replace(
            _INVOKE, opening=("<dots_function_call>",), closing=("</dots_function_call>",)
        ),
    ),
    "dsml": tuple(
        TaggedLayout(
            opening=(f"<｜DSML｜{section}>\n",),
            before_name=('<｜DSML｜invoke name="',),
            after_name=('">\n',),
            before_key='<｜DSML｜parameter name="',
            before_value='" string="',
            types={name: 'true">' if name == "string" else 'false">' for name in TYPES},
            value_end="</｜DSML｜parameter>",
            after_value="\n",
            after_arguments=("</｜DSML｜invoke>\n",),
            closing=(f"</｜DSML｜{section}>",),
        )
        for section in ("function_calls", "tool_calls")
    ),
    "functionary_v3_1": (
        JsonLayout(
            before_name=("<function=",), before_arguments=(">",), after_arguments=("</function>",)
        ),
    ),
    "functionary_v3_2": (JsonLayout(before_name=(), before_arguments=("\n",), between=(">>>",)),),
    "gigachat3": (replace(_NAMED, opening=("<|function_call|>",)),),
    "granite_20b": (
        replace(_NAMED, before_name=('<function_call> {"name": "',), between=("\n",)),
    ),
    "hunyuan_v3": tuple(
        TaggedLayout(
            opening=(f"<tool_calls>{space}",),
            before_name=("<tool_call>",),
            after_name=(f"<tool_sep>{space}",),
            before_key="<arg_key>",
            before_value=f"</arg_key>{space}<arg_value>",
            value_end="</arg_value>",
            after_value=space,
            after_arguments=(f"</tool_call>{space}",),
            closing=("</tool_calls>",),
        )
        for space in ("\n", "")
    ),
    "inkling": (
        replace(
            _NAMED,
            before_name=('<|content_invoke_tool_json|>{"name":"',),
            before_arguments=('","args":',),
            after_arguments=("}<|end_message|>",),
            between=("<|message_model|>",),
        ),
    ),
    "internlm2": (
        replace(
            _NAMED,
            opening=("<|action_start|><|plugin|>",),
            before_arguments=('", "parameters": ',),
            closing=("<|action_end|>",),
        ),
    ),
    "k2_horizon": (
        TaggedLayout(
            opening=("<ifm|tool_calls>",),
            before_name=("<ifm|tool_call>",),
            after_name=(),
            before_key="<ifm|arg_key>",
            before_value="</ifm|arg_key><ifm|arg_value>",
            value_end="</ifm|arg_value>",
            after_arguments=("</ifm|tool_call>",),
            between=("\n",),
            closing=("</ifm|tool_calls>",),
        ),
    ),
    "kimi_k3": (
        TaggedLayout(
            opening=("<|open|>tools<|sep|>",),
            before_name=('<|open|>call tool="',),
            after_name=('" index="', _INDEX, '"<|sep|>'),
            before_key='<|open|>argument key="',
            before_value='" type="',
            types={
                name: f'{"number" if name == "integer" else name}"<|sep|>' for name in TYPES
            },
            value_end="<|close|>argument<|sep|>",
            after_arguments=("<|close|>call<|sep|>",),
            closing=("<|close|>tools<|sep|>",),
        ),
    ),
    "longcat": (
        replace(
            _NAMED,
            before_name=('<longcat_tool_call>{"name": "',),
            after_arguments=("}</longcat_tool_call>",),
            between=("\n",),
        ),
    ),
    "minicpm5": (
        TaggedLayout(
            before_name=('<function name="',),
            after_name=('">',),
            before_key='<param name="',
            before_value='">',
            value_end="</param>",
            not_first="<",
            after_arguments=("</function>",),
            between=("\n",),
        ),
    ),
    "plamo3": (
        JsonLayout(
            opening=("<|plamo:begin_tool_requests:plamo|>",),
            before_name=("<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",),
            before_arguments=(
                "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>"
                "<|plamo:constrain|>json<|plamo:msg|>",
            ),
            after_arguments=(
                "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
            ),
            closing=("<|plamo:end_tool_requests:plamo|>",),
        ),
    ),
    "step3": tuple(
        replace(
            _INVOKE,
            opening=("<｜tool_calls_begin｜>",),
            before_name=(f'<｜tool_call_begin｜>{kind}<steptml:invoke name="',),
            before_key='<steptml:parameter name="',
            value_end="</steptml:parameter>",
            after_arguments=("</steptml:invoke><｜tool_call_end｜>",),
            between=between,
            closing=("<｜tool_calls_end｜>",),
        )
        for kind, between in (("", ("<｜tool_sep｜>",)), ("function<｜tool_sep｜>", ("\n",)))
    ),
}  # fmt: skip
"""By the name of the format."""
