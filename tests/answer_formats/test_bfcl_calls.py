"""Questions of the Berkeley Function Calling Leaderboard: their answers, as models of each format
write them, are read as the calls that they are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.answer_formats.call_syntax import AnswerFormat, CallFormat
from headrace.answer_formats.deltas import ParsedAnswer
from headrace.answer_formats.formats import CALL_FORMATS, choose_format
from tests.answer_formats.cuts import parsed, some_cuts
from tests.answer_formats.templates import answered, published, renderer
from tests.answer_formats.writers import written

pytestmark = pytest.mark.matrix

PARTS = (
    "simple_python",
    "simple_java",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
)
PER_PART = 6
"""Questions of each part, evenly spread."""
TEMPLATES = {
    "apertus": "llama.cpp/Apertus-8B-Instruct.jinja",
    "command_r7b": "llama.cpp/Cohere2MoE.jinja",
    "deepseek": "llama.cpp/deepseek-ai-DeepSeek-V3.1.jinja",
    "dsml": "llama.cpp/deepseek-ai-DeepSeek-V3.2.jinja",
    "functionary_v3_1": "llama.cpp/meetkai-functionary-medium-v3.1.jinja",
    "functionary_v3_2": "llama.cpp/meetkai-functionary-medium-v3.2.jinja",
    "gemma4": "llama.cpp/google-gemma-4-31B-it.jinja",
    "glm": "llama.cpp/GLM-4.6.jinja",
    "hermes": "llama.cpp/Qwen-Qwen3-0.6B.jinja",
    "kimi_k2": "llama.cpp/moonshotai-Kimi-K2.jinja",
    "minimax": "llama.cpp/unsloth-Apriel-1.5.jinja",
    "mistral": "llama.cpp/Mistral-Small-3.2-24B-Instruct-2506.jinja",
    "qwen3_coder": "llama.cpp/Qwen3-Coder.jinja",
    "seed_oss": "llama.cpp/ByteDance-Seed-OSS.jinja",
}
"""Of formats whose models' template writes several calls, without faults of its own."""


def questions(assets: Path) -> Iterator[tuple[list[Any], list[tuple[str, dict[str, Any]]]]]:
    """The functions of questions and the first possible calls."""
    folder = assets / "conformance" / "bfcl"
    for part in PARTS:
        asked = _lines(folder / f"BFCL_v4_{part}.json")
        answers = {
            line["id"]: line for line in _lines(folder / "possible_answer" / f"BFCL_v4_{part}.json")
        }
        for question in asked[:: max(len(asked) // PER_PART, 1)][:PER_PART]:
            calls = [
                (name, {key: _first(values) for key, values in given.items() if values[0] != ""})
                for call in answers[question["id"]]["ground_truth"]
                for name, given in call.items()
            ]
            yield question["function"], calls


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _first(values: list[Any]) -> Any:
    """The first of the possible values, within objects too."""
    value = values[0]
    if isinstance(value, Mapping):
        return {
            key: inner[0] if isinstance(inner, list) and inner else inner
            for key, inner in value.items()
        }
    return value


def calls_of(answer: ParsedAnswer) -> list[tuple[str, Any]]:
    assert {call.fault for call in answer.calls} <= {""}
    return [(call.name, json.loads(call.arguments)) for call in answer.calls]


@pytest.mark.parametrize("format", CALL_FORMATS, ids=lambda format: str(format.name))
def test_answers_are_read_as_their_calls(shared_assets: Path, format: CallFormat) -> None:
    template = (
        dict(published(shared_assets))[TEMPLATES[format.name]] if format.name in TEMPLATES else None
    )
    render = None if template is None else renderer(template)
    if template is not None:
        assert choose_format(template).calls == format
    num_read = 0
    for functions, calls in questions(shared_assets):
        tools = {function["name"]: function["parameters"] for function in functions}
        text = None if render is None else answered(render, calls, functions)
        if text is None:
            text = written(format, calls)
        answer = parsed(AnswerFormat(format), text, tools=tools, cut=some_cuts)
        assert calls_of(answer) == calls, text
        assert answer.content.strip() == ""
        num_read += 1
    assert num_read == len(PARTS) * PER_PART
