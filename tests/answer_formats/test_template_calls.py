"""Calls as published chat templates write them are read back: by the format that is chosen for the
template, and by the one that is derived from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.answer_formats.call_syntax import AnswerFormat
from headrace.answer_formats.deltas import ParsedAnswer, joined
from headrace.answer_formats.derivation.derive import derive_format
from headrace.answer_formats.formats import choose_format
from headrace.answer_formats.parser import AnswerParser
from tests.answer_formats.cuts import TOOLS
from tests.answer_formats.templates import CALLS, answer_of, published, renderer

GLIMMER = "ollama-renderers/glimmer_chat_template.jinja"
HERMES_2 = "custom/NousResearch/Hermes-2-Pro-Llama-3-8B (JSON Schema)"
NOT_READ = {
    f"{GLIMMER} x1": "the name is in the message's header too",
    f"{GLIMMER} x2": "the name is in the message's header too",
    f"{HERMES_2} x2": "the template omits the mark of the second call",
}
NOT_DERIVED = {
    GLIMMER: "the name is in the message's header too",
    HERMES_2: "the template omits the mark of the second call",
}

pytestmark = pytest.mark.matrix


def read(format: AnswerFormat, text: str) -> ParsedAnswer:
    parser = AnswerParser(format, tools=TOOLS)
    return joined([*parser.feed(text), *parser.finish()])


def is_right(answer: ParsedAnswer, count: int) -> bool:
    calls = [(call.name, json.loads(call.arguments)) for call in answer.calls if not call.fault]
    return calls == CALLS[:count]


def test_calls_of_published_templates_are_read_by_the_chosen_format(shared_assets: Path) -> None:
    num_read, failures = 0, {}
    for name, template in published(shared_assets):
        render = renderer(template)
        format = choose_format(template, render)
        for count in (1, 2):
            text = answer_of(render, count)
            if text is None:
                continue
            answer = read(format, text)
            if is_right(answer, count):
                num_read += 1
            else:
                failures[f"{name} x{count}"] = text
    assert {name: text for name, text in failures.items() if name not in NOT_READ} == {}
    assert failures.keys() == NOT_READ.keys()
    assert num_read >= 140


def test_formats_are_derived_from_published_templates(shared_assets: Path) -> None:
    num_derived, failures = 0, {}
    for name, template in published(shared_assets):
        render = renderer(template)
        text = answer_of(render, 1)
        if text is None:
            continue
        derived = derive_format(render)
        if derived is None or not is_right(read(AnswerFormat(derived), text), 1):
            failures[name] = (derived, text)
        else:
            num_derived += 1
    assert {name: text for name, text in failures.items() if name not in NOT_DERIVED} == {}
    assert failures.keys() == NOT_DERIVED.keys()
    assert num_derived >= 75
