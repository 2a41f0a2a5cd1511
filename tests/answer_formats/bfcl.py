"""Questions of the Berkeley Function Calling Leaderboard, the calls that answer them, and how a
model of each format writes those."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from headrace.answer_formats.call_syntax import CallFormat
from headrace.answer_formats.formats import choose_format
from headrace.answer_formats.readers.tagged_calls import declared_types, typed_value
from tests.answer_formats.templates import answered, renderer
from tests.answer_formats.writers import written

PARTS = (
    "simple_python",
    "simple_java",
    "simple_javascript",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)
"""Those whose questions have one answer, of calls."""
TURNS_PARTS = (
    "multi_turn_base",
    "multi_turn_long_context",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
)
"""Those whose questions are conversations, of which each turn has its calls."""
TEXT_PARTS = ("irrelevance", "live_irrelevance", "live_relevance")
"""Those with functions and without calls that are known to be right."""
MOST_UNCERTAIN = 12
"""Questions that are left out."""
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
_FUNCTIONS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
"""The file of a conversation's functions, by the name that its questions have for them."""


class Question(NamedTuple):
    """A question of a part, or a turn of a conversation."""

    functions: list[Any]
    calls: list[tuple[str, dict[str, Any]]]
    """The first possible ones."""

    @property
    def schemas(self) -> dict[str, Any]:
        """Those of the arguments, by the function's name."""
        return {function["name"]: function["parameters"] for function in self.functions}


@cache
def questions(assets: Path) -> tuple[tuple[str, Question], ...]:
    """Every question of all parts, with the name of its part; such that several parts have, once,
    and none whose answer is not certain."""
    found: dict[str, tuple[str, Question]] = {}
    for part, question in _questions(assets):
        names = [function["name"] for function in question.functions]
        found.setdefault(json.dumps([names, question.calls], sort_keys=True), (part, question))
    certain = [pair for pair in found.values() if _is_certain(pair[1])]
    assert len(found) - len(certain) <= MOST_UNCERTAIN
    return tuple(certain)


def _questions(assets: Path) -> Iterator[tuple[str, Question]]:
    for part in PARTS + TURNS_PARTS:
        answers = {line["id"]: line["ground_truth"] for line in _part(assets, part, answers=True)}
        for line in _part(assets, part):
            truth = answers[line["id"]]
            if part in TURNS_PARTS:
                functions = _functions(assets, tuple(line["involved_classes"]))
                for turn in filter(None, truth):
                    yield part, Question(functions, [_call(text, functions) for text in turn])
            else:
                calls = [
                    (name, {key: _first(of) for key, of in given.items() if of and of[0] != ""})
                    for call in truth
                    for name, given in call.items()
                ]
                yield part, Question(line["function"], calls)


def some_questions(assets: Path, per_part: int) -> Iterator[Question]:
    """So many questions of each part, evenly spread, and of the conversations together."""
    groups: dict[str, list[Question]] = {}
    for part, question in questions(assets):
        groups.setdefault("" if part in TURNS_PARTS else part, []).append(question)
    for group in groups.values():
        yield from group[:: max(len(group) // per_part, 1)][:per_part]


def texts(assets: Path) -> Iterator[tuple[list[Any], str]]:
    """What users ask beside functions of which none need be called, and those functions."""
    for part in TEXT_PARTS:
        for line in _part(assets, part):
            yield line["function"], line["question"][0][-1]["content"]


@cache
def _part(assets: Path, part: str, *, answers: bool = False) -> list[Any]:
    folder = assets / "conformance" / "bfcl"
    path = (folder / "possible_answer" if answers else folder) / f"BFCL_v4_{part}.json"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@cache
def _functions(assets: Path, classes: tuple[str, ...]) -> list[Any]:
    """The functions of a conversation."""
    folder = assets / "conformance" / "bfcl" / "multi_turn_func_doc"
    return [
        json.loads(line)
        for name in classes
        for line in (folder / f"{_FUNCTIONS[name]}.json").read_text(encoding="utf-8").splitlines()
    ]


def _call(text: str, functions: list[Any]) -> tuple[str, dict[str, Any]]:
    """The call that is written as in Python, arguments without a name in the declared order."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    name = ast.unparse(call.func)
    (function,) = (function for function in functions if function["name"] == name)
    given = dict(zip(function["parameters"]["properties"], call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords}
    return name, {key: ast.literal_eval(value) for key, value in given.items()}


def _first(values: list[Any]) -> Any:
    """The first of the possible values, within objects too."""
    value = values[0]
    if isinstance(value, list):
        return [_first([item]) if isinstance(item, Mapping) else item for item in value]
    if isinstance(value, Mapping):
        return {
            key: inner[0] if isinstance(inner, list) and inner else inner
            for key, inner in value.items()
        }
    return value


def _is_certain(question: Question) -> bool:
    """Whether every format can say what the calls' arguments are: those without quotes leave it to
    the schemas, and some answers are not of the declared types, or are texts that could be JSON
    where no type is declared."""
    for name, arguments in question.calls:
        properties = question.schemas[name].get("properties", {})
        for key, value in arguments.items():
            text = value if isinstance(value, str) else json.dumps(value)
            if json.loads(typed_value(text, declared_types(properties.get(key)))) != value:
                return False
    return True


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
