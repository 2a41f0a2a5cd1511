"""Formats are derived from templates that nobody has published, by what they write."""

from __future__ import annotations

import json

import pytest

from headrace.answer_formats.call_syntax import (
    AnswerFormat,
    BareKeyCalls,
    HeadedCalls,
    JsonCalls,
    PythonCalls,
    TaggedCalls,
    ThinkTags,
)
from headrace.answer_formats.derivation.derive import derive_format, derive_reasoning
from headrace.answer_formats.formats import choose_format
from tests.answer_formats.cuts import parsed, some_cuts
from tests.answer_formats.templates import CALLS, answer_of, renderer

CHAT = """{%- if tools %}<|rules|>{{ tools | tojson }}<|over|>{% endif %}
{%- for message in messages %}<|turn|>{{ message.role }}
{% if message.reasoning_content %}<~muse>{{ message.reasoning_content }}</~muse>
{% endif %}{{ message.content or "" }}{% if message.tool_calls %}%%%{% endif %}<|over|>
{% endfor %}{% if add_generation_prompt %}<|turn|>assistant
{% endif %}"""
EACH = "{% for call in message.tool_calls %}{% set f = call.function %}%%%{% endfor %}"


def each(call: str) -> str:
    return EACH.replace("%%%", call)


TEMPLATES = {
    "objects in marks": (
        JsonCalls,
        each('<<do>>{"tool": {{ f.name | tojson }}, "input": {{ f.arguments | tojson }}}<</do>>'),
    ),
    "a list in marks": (
        JsonCalls,
        "[[ACT]][" + each(
            '{"fn": "{{ f.name }}", "with": {{ f.arguments | tojson }}, "ref": "{{ call.id }}"}'
            "{{ ', ' if not loop.last }}"
        ) + "][[DONE]]",
    ),
    "a list in an object": (
        JsonCalls,
        '<*>{"steps": [' + each(
            '{"op": "{{ f.name }}", "args": {{ f.arguments | tojson }}}{{ "," if not loop.last }}'
        ) + "]}<!>",
    ),
    "bare objects": (
        JsonCalls,
        each('{"name": "{{ f.name }}", "input": {{ f.arguments | tojson }}}\n'),
    ),
    "arguments as a text": (
        JsonCalls,
        each('<|c|>{"n": "{{ f.name }}", "a": {{ f.arguments | tojson | tojson }}}<|/c|>'),
    ),
    "names as keys": (
        JsonCalls,
        "<|calls|>[" + each(
            '{"{{ f.name }}": {{ f.arguments | tojson }}}{{ ", " if not loop.last }}'
        ) + "]<|/calls|>",
    ),
    "marks between calls": (
        JsonCalls,
        "<|go|>" + each(
            '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}'
            "{{ '<|and|>' if not loop.last }}"
        ) + "<|stop|>",
    ),
    "a header": (
        HeadedCalls,
        each("<|invoke|>{{ f.name }}<|given|>{{ f.arguments | tojson }}<|ran|>"),
    ),
    "a header with a number and an id in a section": (
        HeadedCalls,
        "<|all|>" + each(
            "<|1|>fn.{{ f.name }}:{{ loop.index0 }}@{{ call.id }}<|2|>"
            "{{ f.arguments | tojson }}<|3|>"
        ) + "<|/all|>",
    ),
    "a header and a fence": (
        HeadedCalls,
        each("<|tool|>{{ f.name }}\n```json\n{{ f.arguments | tojson }}\n```<|/tool|>\n"),
    ),
    "tags": (
        TaggedCalls,
        each(
            '<run tool="{{ f.name }}">{% for key, value in f.arguments.items() %}'
            '<with key="{{ key }}">{{ value if value is string else value | tojson }}</with>'
            "{% endfor %}</run>"
        ),
    ),
    "tags of keys and of values in a section": (
        TaggedCalls,
        "<|plan|>\n" + each(
            "<step>{{ f.name }}\n{% for key, value in f.arguments.items() %}"
            "<k>{{ key }}</k>\n<v>{{ value if value is string else value | tojson }}</v>\n"
            "{% endfor %}</step>\n"
        ) + "<|/plan|>",
    ),
    "tags that say what a value is": (
        TaggedCalls,
        "<$calls>\n" + each(
            '<$do name="{{ f.name }}">\n{% for key, value in f.arguments.items() %}'
            '<$par name="{{ key }}" text="{{ "true" if value is string else "false" }}">'
            "{{ value if value is string else value | tojson }}</$par>\n{% endfor %}</$do>\n"
        ) + "</$calls>",
    ),
    "Python": (
        PythonCalls,
        "<|py|>[" + each(
            "{{ f.name }}({% for key, value in f.arguments.items() %}{{ key }}="
            "{{ value | tojson }}{{ ', ' if not loop.last }}{% endfor %})"
            "{{ ', ' if not loop.last }}"
        ) + "]<|/py|>",
    ),
    "keys without quotes": (
        BareKeyCalls,
        "{% macro bare(value) %}{% if value is mapping %}{{ '{' }}"
        "{% for key, inner in value.items() %}{{ key }}:{{ bare(inner) }}"
        "{{ ',' if not loop.last }}{% endfor %}{{ '}' }}"
        "{% elif value is string %}<'>{{ value }}<'>{% elif value is sequence %}["
        "{% for inner in value %}{{ bare(inner) }}{{ ',' if not loop.last }}{% endfor %}]"
        "{% else %}{{ value | tojson }}{% endif %}{% endmacro %}"
        + each("<|f|>run:{{ f.name }}{{ bare(f.arguments) }}<|/f|>"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_format_is_derived_and_reads_other_calls_at_every_cut(name: str) -> None:
    syntax, calls = TEMPLATES[name]
    render = renderer(CHAT.replace("%%%", calls))
    derived = derive_format(render)
    assert derived is not None
    assert isinstance(derived.syntax, tuple)
    assert isinstance(derived.syntax[0], syntax)
    for count in (1, 2):
        text = answer_of(render, count)
        assert text is not None
        answer = parsed(AnswerFormat(derived), text, cut=some_cuts)
        assert [call.fault for call in answer.calls] == [""] * count
        assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == CALLS[:count]


@pytest.mark.parametrize(
    "calls",
    [
        "",
        each("{{ f.name }} is called"),
        each("<call>{{ f.name }}({{ f.arguments.values() | list | tojson }})</call>"),
        each("<c>{{ f.name }}: {% for key in f.arguments %}{{ key }}=?;{% endfor %}</c>"),
        "{{ raise_exception('no calls here') }}",
        each("<call>{{ f.arguments | tojson }}{{ f.name }}</call>"),
    ],
)
def test_calls_that_cannot_be_read_back_have_no_format(calls: str) -> None:
    assert derive_format(renderer(CHAT.replace("%%%", calls))) is None


def test_reasoning_is_derived() -> None:
    render = renderer(CHAT)
    derived = derive_reasoning(render)
    assert derived is not None
    assert derived.tags == ThinkTags(begin="<~muse>", end="</~muse>")
    answer = parsed(AnswerFormat(reasoning=derived), "<~muse>Hm.</~muse>\nYes.")
    assert (answer.reasoning, answer.content) == ("Hm.", "Yes.")
    assert derive_reasoning(renderer(CHAT.replace("message.reasoning_content", "false"))) is None


def test_what_is_known_goes_before_what_is_derived_and_that_before_generic_json() -> None:
    odd = CHAT.replace("%%%", TEMPLATES["a header"][1])
    known = CHAT.replace(
        "%%%",
        each(
            '<tool_call>{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}'
            "</tool_call>"
        ),
    )
    silent = CHAT.replace("%%%", "")
    for template, name in ((odd, "derived"), (known, "hermes"), (silent, "generic_json")):
        chosen = choose_format(template, renderer(template))
        assert chosen.calls is not None
        assert chosen.calls.name == name
        assert chosen.reasoning is not None
        assert chosen.reasoning.name == "derived"
    unrendered = choose_format(odd)
    assert unrendered.calls is not None
    assert (unrendered.calls.name, unrendered.reasoning) == ("generic_json", None)
