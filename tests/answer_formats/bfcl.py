"""Questions of the Berkeley Function Calling Leaderboard, the calls that answer them, and how a
model of each format writes those."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from headrace.answer_formats.call_syntax import CallFormat
from headrace.answer_formats.formats import choose_format
from tests.answer_formats.templates import answered, renderer
from tests.answer_formats.writers import written

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


class Question(NamedTuple):
    """A question of a part."""

    functions: list[Any]
    calls: list[tuple[str, dict[str, Any]]]
    """The first possible ones."""

    @property
    def schemas(self) -> dict[str, Any]:
        """Those of the arguments, by the function's name."""
        return {function["name"]: function["parameters"] for function in self.functions}


def questions(assets: Path, per_part: int = PER_PART) -> Iterator[Question]:
    """So many questions of each part, evenly spread."""
    folder = assets / "conformance" / "bfcl"
    for part in PARTS:
        asked = _lines(folder / f"BFCL_v4_{part}.json")
        answers = {
            line["id"]: line for line in _lines(folder / "possible_answer" / f"BFCL_v4_{part}.json")
        }
        for question in asked[:: max(len(asked) // per_part, 1)][:per_part]:
            calls = [
                (name, {key: _first(values) for key, values in given.items() if values[0] != ""})
                for call in answers[question["id"]]["ground_truth"]
                for name, given in call.items()
            ]
            yield Question(question["function"], calls)


@cache
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


def writer(assets: Path, format: CallFormat) -> Callable[[Question], str]:
    """What makes the answer to a question in a format: the template of its models, or our own
    writer where it has none or its template does not write these calls."""
    if format.name not in TEMPLATES:
        return lambda question: written(format, question.calls)
    path = assets / "chat-templates" / TEMPLATES[format.name]
    template = path.read_text(encoding="utf-8")
    assert choose_format(template).calls == format
    render = renderer(template)

    def write(question: Question) -> str:
        text = answered(render, question.calls, question.functions)
        return written(format, question.calls) if text is None else text

    return write
