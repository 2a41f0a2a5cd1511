"""Outputs of models in each format, parsed alike at every cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.answer_formats.deltas import CallDelta, CallStart, ContentDelta
from headrace.answer_formats.formats import CALL_FORMATS, AnswerFormat, call_format
from headrace.answer_formats.parser import AnswerParser
from tests.answer_formats.cuts import TOOLS, parsed, run

NESTED = {"city": "Zürich 🌧", "options": {"a": ["}", "</tool_call>", '"'], "b": {}}}
TWO: list[tuple[str, object]] = [("get_weather", {"city": "Oslo"}), ("get_time", {"zone": "UTC"})]


def as_json(arguments: object) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def hermes(name: str, arguments: object) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {as_json(arguments)}}}\n</tool_call>'


def coder(name: str, parameters: dict[str, str]) -> str:
    tags = "".join(
        f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters.items()
    )
    return f"<tool_call>\n<function={name}>\n{tags}</function>\n</tool_call>"


def glm(name: str, parameters: dict[str, str]) -> str:
    tags = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
        for key, value in parameters.items()
    )
    return f"<tool_call>{name}\n{tags}</tool_call>"


def invoke(name: str, parameters: dict[str, str]) -> str:
    tags = "".join(
        f'<parameter name="{key}">{value}</parameter>\n' for key, value in parameters.items()
    )
    return f'<invoke name="{name}">\n{tags}</invoke>'


def r1(name: str, arguments: object) -> str:
    return (
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n"
        f"```json\n{as_json(arguments)}\n```<｜tool▁call▁end｜>"
    )


def v31(name: str, arguments: object) -> str:
    return f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{as_json(arguments)}<｜tool▁call▁end｜>"


def kimi(index: int, name: str, arguments: object) -> str:
    return (
        f"<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>"
        f"{as_json(arguments)}<|tool_call_end|>"
    )


def plamo(name: str, arguments: object) -> str:
    return (
        "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>"
        f"{name}<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>"
        f"<|plamo:constrain|>json<|plamo:msg|>{as_json(arguments)}"
        "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
    )


def array(calls: list[tuple[str, object]], key: str = "arguments", name: str = "name") -> str:
    return json.dumps([{name: tool, key: value} for tool, value in calls], ensure_ascii=False)


ONE: list[tuple[str, object]] = [("get_weather", NESTED)]


def in_parts(write: object, opening: str = "", closing: str = "", between: str = "\n") -> list[str]:
    """Two calls, and one with nested arguments, in a syntax."""
    assert callable(write)
    two = between.join(write(name, arguments) for name, arguments in TWO)
    return [opening + two + closing, opening + write("get_weather", NESTED) + closing]


DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
JSON_OUTPUTS = {
    "hermes": in_parts(hermes),
    "qwen3_coder": in_parts(hermes),
    "granite": ["<|tool_call|>" + array(TWO), "<tool_call> " + array(ONE)],
    "phi4": [
        "functools" + array(TWO),
        "<|tool_call|>" + array(ONE) + "<|/tool_call|>",
    ],
    "mistral": ["[TOOL_CALLS]" + array(TWO), "[TOOL_CALLS] " + array(ONE)],
    "nemotron": [f"<TOOLCALL>{array(calls)}</TOOLCALL>" for calls in (TWO, ONE)],
    "minimax": [
        "<tool_calls>\n" + "\n".join(array([call])[1:-1] for call in TWO) + "\n</tool_calls>",
        f"<tool_calls>{array(ONE)}</tool_calls>",
    ],
    "command_r7b": [
        f"<|START_ACTION|>\n{array(calls, 'parameters', 'tool_name')}\n<|END_ACTION|>"
        for calls in (TWO, ONE)
    ],
    "command_r": [
        f"Action: ```json\n{array(calls, 'parameters', 'tool_name')}\n```"
        for calls in (TWO, ONE)
    ],
    "llama3_json": [
        "; ".join(array([call], "parameters")[1:-1] for call in TWO),
        "<|python_tag|>" + array(ONE, "parameters")[1:-1],
    ],
    "generic_json": [
        '{"tool_calls": ' + array(TWO) + "}",
        "```json\n" + array(ONE) + "\n```",
    ],
    "deepseek": [*in_parts(r1, *DEEPSEEK), *in_parts(v31, *DEEPSEEK, "")],
    "kimi_k2": [
        "<|tool_calls_section_begin|>"
        + "".join(kimi(index, *call) for index, call in enumerate(calls))
        + "<|tool_calls_section_end|>"
        for calls in (TWO, ONE)
    ],
}  # fmt: skip
JSON_OUTPUTS["mistral"] += in_parts(
    lambda name, arguments: f"[TOOL_CALLS]{name}[ARGS]{as_json(arguments)}", between=""
)


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in JSON_OUTPUTS.items() for text in texts]
)
def test_json_arguments_come_unchanged_at_every_cut(name: str, text: str) -> None:
    answer = parsed(AnswerFormat(call_format(name)), "I look.\n\n" + text)
    expected = TWO if "Oslo" in text else [("get_weather", NESTED)]
    assert [(call.name, call.arguments) for call in answer.calls] == [
        (tool, as_json(arguments)) for tool, arguments in expected
    ]
    assert answer.content == "I look."
    assert [call.fault for call in answer.calls] == [""] * len(expected)


TEXTS = {"city": "Zürich {\n<x>", "days": "3", "options": '{"a": [1, "}"]}', "unit": "null"}
TYPED = {"city": "Zürich {\n<x>", "days": 3, "options": {"a": [1, "}"]}, "unit": None}
GPT = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>{}<|call|>"
PYTHON = (
    """get_weather(city='Z\\'rich "x"\\n', days=-3, """
    """options={'a': [1, (2.5,)], "b": {}}, unit=None)"""
)
FROM_PYTHON = {
    "city": 'Z\'rich "x"\n',
    "days": -3,
    "options": {"a": [1, [2.5]], "b": {}},
    "unit": None,
}
OTHER_OUTPUTS = [
    ("qwen3_coder", coder("get_weather", TEXTS) + "\n" + coder("refresh", {}), TYPED),
    ("seed_oss", coder("get_weather", TEXTS).replace("tool_call>", "seed:tool_call>"), TYPED),
    ("glm", glm("get_weather", TEXTS) + "\n<tool_call>refresh\n</tool_call>", TYPED),
    ("glm", glm("get_weather", TEXTS).replace("\n<arg", "<arg"), TYPED),
    (
        "minimax_m2",
        f"<minimax:tool_call>\n{invoke('get_weather', TEXTS)}\n{invoke('refresh', {})}\n"
        "</minimax:tool_call>",
        TYPED,
    ),
    ("llama4", f"<|python_start|>[{PYTHON}, refresh()]<|python_end|>", FROM_PYTHON),
    ("pythonic", f"[{PYTHON}]", FROM_PYTHON),
    ("olmo3", f"<function_calls>{PYTHON}\nrefresh()</function_calls>", FROM_PYTHON),
    ("lfm2", f"<|tool_call_start|>[{PYTHON}]<|tool_call_end|>", FROM_PYTHON),
    ("functionary_v3_1", '<function=get_weather>{"city": "Rom"}</function>', {"city": "Rom"}),
    ("functionary_v3_2", 'get_weather\n{"city": "Rom"}>>>refresh\n{}', {"city": "Rom"}),
    (
        "inkling",
        '<|message_model|><|content_invoke_tool_json|>{"name": "get_weather", '
        '"args": {"city": "Rom"}}<|end_message|>',
        {"city": "Rom"},
    ),
    (
        "plamo3",
        "<|plamo:begin_tool_requests:plamo|>"
        + plamo("get_weather", {"city": "Rom"})
        + plamo("refresh", {})
        + "<|plamo:end_tool_requests:plamo|>",
        {"city": "Rom"},
    ),
    (
        "harmony",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
        + GPT.format("get_weather", '{"city": "Rom"}'),
        {"city": "Rom"},
    ),
    (
        "mistral",
        '[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{"city": "Rom"}',
        {"city": "Rom"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "arguments"), OTHER_OUTPUTS)
def test_other_arguments_are_json_by_their_schemas_at_every_cut(
    name: str, text: str, arguments: object
) -> None:
    answer = parsed(AnswerFormat(call_format(name)), text)
    assert answer.calls[0].name == "get_weather"
    assert json.loads(answer.calls[0].arguments) == arguments
    assert [(call.name, call.arguments) for call in answer.calls[1:]] in ([], [("refresh", "{}")])
    assert ("refresh" in text) == (len(answer.calls) == 2)
    assert answer.content == ""
    assert {call.fault for call in answer.calls} == {""}


def test_every_format_is_covered() -> None:
    cases = Path(__file__).parent / "cases" / "calls"
    covered = {
        *JSON_OUTPUTS,
        *(name for name, _, _ in OTHER_OUTPUTS),
        *(path.stem for path in cases.glob("*.json")),
    }
    assert covered == {known.name for known in CALL_FORMATS}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "<tool_call>not a call</tool_call> and on"),
        ("hermes", '<tool_call>\n{"name": "get_weather", "argum'),
        ("hermes", '<tool_call>{"arguments": {"city": "Oslo"}}</tool_call>'),
        ("hermes", "a <tool_cal> b <"),
        ("hermes", " plain text, 1 < 2 \n"),
        ("granite", '<|tool_call|>[{"foo": 1}]'),
        ("phi4", "functools[] This is just text"),
        ("phi4", 'functools[{"name": "refresh", "arguments": "not an object"}]'),
        ("mistral", "[TOOL_CALLS] is the mark of a call"),
        ("deepseek", "I look.<｜tool▁calls▁begin｜>get_weather"),
        ("kimi_k2", "<|tool_calls_section_begin|><|tool_calls_section_end|>"),
        ("qwen3_coder", "<tool_call>\n<function=get_weather"),
        ("glm", "<tool_call>two words</tool_call>"),
        ("minimax_m2", "<minimax:tool_call>text</minimax:tool_call>"),
        ("llama3_json", '{"name": "Ada", "parameters": {}}'),
        ("llama3_json", '{"name": "get_weather"}'),
        ("llama3_json", '{"parameters": {}, "name": "get_weather"}'),
        ("generic_json", '[{"name": "Ada"}, {"a": {"b": [1]}}] and ```json\n{"x": 1}\n```'),
        ("pythonic", "[1, 2] [link](url) [unknown(a=1)]"),
        ("olmo3", "<function_calls>no call</function_calls>"),
        ("harmony", "Hello there <|channel|>fin"),
    ],
)
def test_what_is_not_a_call_is_content_at_every_cut(name: str, text: str) -> None:
    answer = parsed(AnswerFormat(call_format(name)), text)
    assert (answer.content, answer.calls) == (text, ())


@pytest.mark.parametrize(
    ("name", "text", "arguments", "fault", "content"),
    [
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "b', '{"a": "b', "ends within", ""),
        (
            "hermes",
            '<tool_call>{"name": "f", "arguments": {"a": 1</tool_call>',
            '{"a": 1',
            "'<'",
            "</tool_call>",
        ),
        (
            "hermes",
            '<tool_call>{"name": "f", "arguments": {"a": 1,}}</tool_call>',
            '{"a": 1,}',
            "not JSON",
            "",
        ),
        ("qwen3_coder", "<tool_call><function=f><parameter=a>x", '{"a": "x', "ends within", ""),
        (
            "qwen3_coder",
            "<tool_call><function=f>what?</function>",
            "{",
            "neither",
            "what?</function>",
        ),
        (
            "olmo3",
            "<function_calls>f(x=b'z')</function_calls>",
            '{"x": ',
            "not a literal",
            "'z')</function_calls>",
        ),
        ("llama4", "<|python_start|>[f(x=[1", '{"x": [', "ends within", ""),
        ("kimi_k2", "<|tool_calls_section_begin|>" + kimi(0, "f", {}) + "{", "{}", "", "{"),
        ("harmony", GPT.format("f", '{"a": ')[:-8], '{"a": ', "not JSON", ""),
    ],
)
def test_a_call_that_breaks_ends_with_a_fault_and_the_rest_is_content(
    name: str, text: str, arguments: str, fault: str, content: str
) -> None:
    answer = parsed(AnswerFormat(call_format(name)), text)
    assert [(call.name, call.arguments) for call in answer.calls] == [("f", arguments)]
    assert fault in answer.calls[0].fault
    assert bool(fault) == bool(answer.calls[0].fault)
    assert answer.content == content


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"arguments": {"city": "Oslo"}, "name": "get_weather"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}'),
        (
            "hermes",
            '<tool_call>{"type": "function", "function": {"name": "get_weather", '
            '"arguments": {"city": "Oslo"}}, "id": "c1"}</tool_call>',
        ),
        (
            "hermes",
            r"""<tool_call>{"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}""",
        ),
        ("generic_json", '{"tool_call": {"name": "get_weather", "arguments": {"city": "Oslo"}}}'),
        (
            "qwen3_coder",
            "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>",
        ),
    ],
)
def test_departures_that_models_make_are_read(name: str, text: str) -> None:
    answer = parsed(AnswerFormat(call_format(name)), text)
    assert [(call.name, call.arguments, call.fault) for call in answer.calls] == [
        ("get_weather", '{"city": "Oslo"}', "")
    ]
    assert answer.content == ""


def test_text_around_calls_stays() -> None:
    text = f"First.\n{hermes('refresh', {})}\n\nThen <tool_call> and {hermes('refresh', {})} last. "
    answer = parsed(AnswerFormat(call_format("hermes")), text)
    assert answer.content == "First.Then <tool_call> andlast. "
    assert [call.arguments for call in answer.calls] == ["{}", "{}"]


def test_ids_that_come_before_the_arguments_are_passed_on() -> None:
    text = "<|tool_calls_section_begin|>" + kimi(3, "refresh", {})
    assert parsed(AnswerFormat(call_format("kimi_k2")), text).calls[0].id == "functions.refresh:3"
    text = '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {}}]'
    assert parsed(AnswerFormat(call_format("command_r7b")), text).calls[0].id == "0"


def test_arguments_stream_while_they_come() -> None:
    parser = AnswerParser(AnswerFormat(call_format("hermes")), tools=TOOLS)
    assert parser.feed('Hi<tool_call>{"name": "f", "arg') == [ContentDelta("Hi")]
    assert parser.feed('uments": {"a": "b') == [
        CallStart(0, "f", ""),
        *pieces("{", '"', "a", '"', ": ", '"', "b"),
    ]
    assert parser.feed("c") == pieces("c")
    parser = AnswerParser(AnswerFormat(call_format("glm")), tools=TOOLS)
    parser.feed("<tool_call>get_weather<arg_key>city</arg_key><arg_value>")
    assert parser.feed("Os") == pieces('"', "Os")
    assert parser.feed("lo</arg_val") == pieces("lo")


def pieces(*texts: str) -> list[CallDelta]:
    return [CallDelta(0, text) for text in texts]


def test_marks_are_content_for_a_request_without_tools() -> None:
    text = hermes("refresh", {})
    assert run(AnswerFormat(call_format("hermes")), [text], tools=None) == [ContentDelta(text)]


def test_a_name_that_does_not_come_in_time_makes_the_call_content() -> None:
    text = '<tool_call>{"arguments": {"a": "' + "x" * 40_000 + '"}, "name": "f"}</tool_call>'
    for size in (1000, 50_000):
        parts = [text[start : start + size] for start in range(0, len(text), size)]
        deltas = run(AnswerFormat(call_format("hermes")), parts)
        assert "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta)) == text


def test_elements_of_minimax_are_what_their_schema_makes_of_them_at_every_cut() -> None:
    tools = {
        "f": {
            "properties": {
                "list": {"type": "array", "items": {"type": "string"}},
                "object": {"type": "object"},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "text": {"type": "string"},
                "tags": {"type": "array"},
            }
        }
    }
    p = "]<]minimax[>["
    inner = {
        f"{p}<list>{p}</list>": {"list": []},
        f"{p}<object>{p}</object>": {"object": {}},
        f"{p}<text>{p}</text>": {"text": ""},
        f"{p}<list>{p}<item>a{p}</item>{p}<item>7{p}</item>{p}</list>": {"list": ["a", "7"]},
        f'{p}<object>{{"a": "{p}</object>"}}{p}</object>': {"object": {"a": f"{p}</object>"}},
        f"{p}<map>{p}<a>1{p}</a>{p}<a>2{p}</a>{p}</map>": {"map": {"a": "2"}},
        f"{p}<tags>a{p}</tags>{p}<tags>b{p}</tags>": {"tags": ["a", "b"]},
    }
    for text, arguments in inner.items():
        whole = f'{p}<tool_call>\n{p}<invoke name="f">{text}{p}</invoke>\n{p}</tool_call>'
        answer = parsed(AnswerFormat(call_format("minimax_m3")), whole, tools=tools)
        (call,) = answer.calls
        assert (call.fault, json.loads(call.arguments)) == ("", arguments), text


def test_items_of_functiongemma_are_what_their_schema_makes_of_them_at_every_cut() -> None:
    tools = {"f": {"properties": {"a": {"type": "array", "items": {"type": "string"}}, "b": {}}}}
    text = (
        "<start_function_call>call:f{a:[<escape>7<escape>,<escape>x<escape>],"
        "b:[<escape>7<escape>]}<end_function_call>"
    )
    (call,) = parsed(AnswerFormat(call_format("functiongemma")), text, tools=tools).calls
    assert json.loads(call.arguments) == {"a": ["7", "x"], "b": [7]}


@pytest.mark.parametrize(
    "text", ["Yes. </tool_call>", "</tool_call>\nYes.", "It ends with </tool_call>."]
)
def test_a_mark_that_ends_a_call_where_none_began_is_text(text: str) -> None:
    answer = parsed(AnswerFormat(call_format("hermes")), text)
    assert (answer.content, answer.calls) == (text, ())
