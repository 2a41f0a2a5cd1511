"""Calls as a model of each format would write them, for formats whose template is not at hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

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

Calls: TypeAlias = Sequence[tuple[str, Mapping[str, Any]]]


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def written(format: CallFormat, calls: Calls) -> str:
    """Calls in the first syntax of a format."""
    if isinstance(format.syntax, HarmonyCalls):
        return "<|start|>assistant".join(
            f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
            f"{as_json(arguments)}<|call|>"
            for name, arguments in calls
        )
    match format.syntax[0]:
        case JsonCalls() as json_calls:
            return _json(json_calls, calls)
        case HeadedCalls():
            return _headed(HEADERS[format.name], calls)
        case TaggedCalls() as tagged:
            return _tagged(format.name, tagged, calls)
        case PythonCalls() as python:
            texts = [
                f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
                for name, arguments in calls
            ]
            begin, end = (*python.begins, "")[0], (*python.ends, "")[0]
            return f"{begin}[{', '.join(texts)}]{end}"
        case NestedCalls() as nested:
            texts = [
                f'{nested.name[0]}"{name}">{_nested(nested, arguments)}{nested.end}'
                for name, arguments in calls
            ]
            return "\n".join([nested.begins[0], *texts, nested.section_ends[0]])
        case BareKeyCalls() as bare:
            return "".join(
                f"{bare.begins[0]}{name}{_bare(bare, arguments, top=True)}{bare.ends[0]}"
                for name, arguments in calls
            )


def _json(syntax: JsonCalls, calls: Calls) -> str:
    begin, end = (*syntax.begins, "")[0], (*syntax.ends, "")[0]
    if syntax.name_is_key:
        objects = [as_json({name: arguments}) for name, arguments in calls]
    else:
        objects = [
            as_json({syntax.name_keys[0]: name, syntax.argument_keys[0]: arguments})
            for name, arguments in calls
        ]
    if "[" in syntax.bare or syntax.name_is_key or begin in ("[TOOL_CALLS]", "functools"):
        return f"{begin}[{', '.join(objects)}]{end}"
    if begin:
        return "\n".join(f"{begin}{text}{end}" for text in objects)
    return "; ".join(objects)


Writer: TypeAlias = Callable[[int, str, str], str]
HEADERS: dict[str, tuple[str, Writer, str]] = {
    "kimi_k2": (
        "<|tool_calls_section_begin|>",
        lambda at, name, text: (
            f"<|tool_call_begin|>functions.{name}:{at}"
            f"<|tool_call_argument_begin|>{text}<|tool_call_end|>"
        ),
        "<|tool_calls_section_end|>",
    ),
    "deepseek": (
        "<｜tool▁calls▁begin｜>",
        lambda at, name, text: (
            f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{text}"
            "\n```<｜tool▁call▁end｜>"
        ),
        "<｜tool▁calls▁end｜>",
    ),
    "functionary_v3_1": ("", lambda at, name, text: f"<function={name}>{text}</function>", ""),
    "functionary_v3_2": (
        "",
        lambda at, name, text: f"{'>>>' if at else ''}{name}\n{text}",
        "",
    ),
    "plamo3": (
        "<|plamo:begin_tool_requests:plamo|>",
        lambda at, name, text: (
            "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>"
            f"{name}<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>"
            f"<|plamo:constrain|>json<|plamo:msg|>{text}<|plamo:end_tool_arguments:plamo|>"
            "<|plamo:end_tool_request:plamo|>"
        ),
        "<|plamo:end_tool_requests:plamo|>",
    ),
}


def _headed(writer: tuple[str, Writer, str], calls: Calls) -> str:
    begin, write, end = writer
    texts = [write(at, name, as_json(arguments)) for at, (name, arguments) in enumerate(calls)]
    return begin + "".join(texts) + end


KEYS: dict[str, Callable[[str, object], str]] = {
    "dsml": lambda key, value: f' name="{key}" string="{str(isinstance(value, str)).lower()}"',
    "kimi_k3": lambda key, value: f'key="{key}" type="{_type(value)}"',
    "k2_horizon": lambda key, value: f"{key}</ifm|arg_key>",
}
NAMES: dict[str, str] = {"kimi_k3": 'tool="{}" index="1"'}


def _type(value: object) -> str:
    return "string" if isinstance(value, str) else "object"


def _tagged(format: str, syntax: TaggedCalls, calls: Calls) -> str:
    quoted = syntax.attributes is not None
    plain = ' name="{}"' if quoted else "{}"
    texts = []
    for name, arguments in calls:
        named = NAMES.get(format, "{}" if format == "k2_horizon" else plain).format(name)
        text = syntax.name[0] + named + syntax.name[1] + "\n"
        for key, value in arguments.items():
            keyed = KEYS[format](key, value) if format in KEYS else plain.format(key)
            shown = value if isinstance(value, str) else as_json(value)
            shown = f"\n{shown}\n" if syntax.own_lines else shown
            text += syntax.key[0] + keyed + syntax.key[1] + syntax.value[0] + shown
            text += syntax.value[1] + "\n"
        texts.append(text + syntax.end)
    begin, end = (*syntax.begins, "")[0], (*syntax.section_ends, "")[0]
    return begin + "\n" + "\n".join(texts) + "\n" + end


def _bare(syntax: BareKeyCalls, value: object, *, top: bool = False) -> str:
    if isinstance(value, Mapping) and (top or not syntax.all_quoted):
        members = (f"{key}:{_bare(syntax, inner)}" for key, inner in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, str) or syntax.all_quoted:
        text = value if isinstance(value, str) else as_json(value)
        return f"{syntax.quote}{text}{syntax.quote}"
    if isinstance(value, list):
        return "[" + ",".join(_bare(syntax, inner) for inner in value) + "]"
    return as_json(value)


def _nested(syntax: NestedCalls, value: object) -> str:
    if isinstance(value, Mapping):
        members = list(value.items())
    elif isinstance(value, list) and value:
        members = [(syntax.item, inner) for inner in value]
    else:
        return value if isinstance(value, str) else as_json(value)
    start = syntax.prefix
    return "".join(
        f"{start}<{key}>{_nested(syntax, inner)}{start}</{key}>" for key, inner in members
    )
