"""Questions of the Berkeley Function Calling Leaderboard sent to a server: whole and streamed, a
reply has the calls that the model's text is, in every format that --tool-call-parser names.

Each format answers some questions, and each question is answered in many formats. Where calls are
required or strict, the grammar of the answer has these texts and none that is malformed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.answer_formats.call_syntax import CallFormat
from headrace.answer_formats.formats import CALL_FORMATS, call_format
from headrace.config import ServerConfig
from headrace.conversation.reading import answer_format
from headrace.text import ChatTemplate
from tests.answer_formats.bfcl import PARTS, Question, some_questions, writer
from tests.server.conftest import Running, events_of
from tests.server.mock_engine import INFO, MockEngine, says
from tests.structured.matching import Language

pytestmark = pytest.mark.matrix

EACH = 3
"""Of so many questions, one is for a format: another one for the next."""
HELD = (
    "apertus", "command_r7b", "deepseek", "dsml", "glm", "hermes", "kimi_k2", "longcat", "minimax",
    "mistral", "plamo3", "xlam",
)  # fmt: skip
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
PATH = "/v1/chat/completions"
TEMPLATE = ChatTemplate("{{ messages[0].content }}")
LONGEST = msgspec.structs.replace(INFO, max_model_len=4096, pool_tokens=4096)
"""Longer than any of the answers, whose tokens are bytes."""


def body_of(question: Question) -> dict[str, Any]:
    tools = [{"type": "function", "function": function} for function in question.functions]
    return {"messages": [{"role": "user", "content": "x"}], "tools": tools}


def calls_of(calls: list[Any]) -> list[tuple[str, Any]]:
    functions = [call["function"] for call in calls]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


def streamed(server: Running, body: dict[str, Any]) -> tuple[list[Any], str, str | None]:
    """The calls, the content and the finish reason that a stream adds up to."""
    calls: list[Any] = []
    content, reason = "", None
    for event in events_of(server.post(PATH, {**body, "stream": True})):
        (choice,) = event["choices"]
        reason = choice["finish_reason"] or reason
        content += choice["delta"].get("content") or ""
        for delta in choice["delta"].get("tool_calls", ()):
            if delta["index"] == len(calls):
                calls.append({"function": {"name": delta["function"]["name"], "arguments": ""}})
            more = delta["function"].get("arguments") or ""
            calls[delta["index"]]["function"]["arguments"] += more
    return calls, content, reason


@pytest.mark.parametrize("format", CALL_FORMATS, ids=lambda format: str(format.name))
def test_a_reply_has_the_calls_of_the_answer_whole_and_streamed(
    shared_assets: Path, start: Callable[..., Running], format: CallFormat
) -> None:
    config = ServerConfig(tool_call_parser=format.name)
    engine = MockEngine(says(""), info=LONGEST)
    reads = answer_format(TEMPLATE, calls=config.tool_call_parser)
    server = start(engine, config=config, template=TEMPLATE, answer_format=reads)
    write, draw = writer(shared_assets, format), random.Random(5)
    all_questions = list(some_questions(shared_assets, per_part=1))
    assert len(all_questions) == len(PARTS) + 1
    for question in all_questions[CALL_FORMATS.index(format) % EACH :: EACH]:
        text = write(question)
        engine.reply = says(text, cut=[draw.randint(1, 40) for _ in range(len(text) // 10)])
        reply = server.post(PATH, body_of(question))
        assert reply.status_code == 200, reply.text
        (choice,) = reply.json()["choices"]
        assert calls_of(choice["message"]["tool_calls"]) == question.calls, text
        assert (choice["message"]["content"] or "").strip() == ""
        assert choice["finish_reason"] == "tool_calls"
        calls, content, reason = streamed(server, body_of(question))
        assert (calls_of(calls), content.strip(), reason) == (question.calls, "", "tool_calls")


def held(
    server: Running, question: Question, tool_choice: str, *, strict: bool
) -> tuple[Language, dict[str, Any]]:
    """The language that answers to a question are held to, and the reply's choice."""
    tools = [
        {
            "type": "function",
            "function": {
                "name": function["name"],
                "parameters": typed(function["parameters"]),
                "strict": strict,
            },
        }
        for function in question.functions
    ]
    reply = server.post(PATH, {**body_of(question), "tools": tools, "tool_choice": tool_choice})
    assert reply.status_code == 200, reply.text
    grammar = server.engine.submitted[-1].params.grammar
    assert grammar is not None
    return Language(grammar), reply.json()["choices"][0]


def typed(schema: Any) -> Any:
    """A schema with the types of JSON, for which the leaderboard has those of Python and Java."""
    if isinstance(schema, list):
        return [typed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: typed(inner) for key, inner in schema.items()}
    if isinstance(kind := made.get("type"), str):
        made["type"] = TYPES.get(kind, kind.lower())
    return made


def malformed(question: Question, text: str, write: Callable[[Question], str]) -> list[str]:
    """Answers like `text` that are not of the tools: cut off, of another function, and without an
    argument that is required."""
    (name, arguments), *rest = question.calls
    first = question.schemas[name]["required"][0]
    fewer = {key: value for key, value in arguments.items() if key != first}
    short = write(question._replace(calls=[(name, fewer), *rest]))
    assert short[: text.index(name)] == text[: text.index(name)]
    return [text[:-1], text.replace(name, f"{name}_other"), short]


@pytest.mark.parametrize("name", HELD)
def test_required_and_strict_calls_are_held_to_the_tools(
    shared_assets: Path, start: Callable[..., Running], name: str
) -> None:
    """In the formats whose models' template writes JSON as the grammar does, and of arguments
    without objects in them, whose keys have the leaderboard's order."""
    format = call_format(name)
    engine = MockEngine(says(""), info=LONGEST)
    config = ServerConfig(tool_call_parser=name)
    reads = answer_format(TEMPLATE, calls=name)
    server = start(engine, config=config, template=TEMPLATE, answer_format=reads)
    write, num_held = writer(shared_assets, format), 0
    plain = [
        question
        for question in some_questions(shared_assets, per_part=1)
        if not any(
            isinstance(value, dict) for _, given in question.calls for value in given.values()
        )
    ]
    for question in plain[HELD.index(name) % EACH :: EACH]:
        text = write(question)
        engine.reply = says(text)
        for choice, strict in (("required", False), ("auto", True)):
            language, answer = held(server, question, choice, strict=strict)
            assert calls_of(answer["message"]["tool_calls"]) == question.calls
            assert language.has(text), (choice, text)
            for wrong in malformed(question, text, write):
                assert not language.has(wrong), (choice, wrong)
        num_held += 1
    assert num_held == len(plain) // EACH
