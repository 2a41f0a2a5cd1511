"""What SGLang's public tests check, headrace has too, and no other test of ours shows.

docs/compatibility.md says of each of those tests what holds here. Where headrace differs on
purpose, the difference is tested, so that it stays one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace.answer_formats.formats import choose_format
from headrace.text import ChatTemplate
from tests.server.chat.test_chat import HELLO
from tests.server.chat.test_tools import CALL, WEATHER, deltas, with_tools
from tests.server.conftest import Running, events_of
from tests.server.connections.test_wire import error_of
from tests.server.mock_engine import MockEngine, says
from tests.structured.matching import Language

Start = Callable[..., Running]
CHAT = "/v1/chat/completions"
THOUGHT = "<think>\nOne and three.\n</think>\n\nFour."
SWITCHED = ChatTemplate("x{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}")


def language(start: Start, **fields: Any) -> Language:
    engine = MockEngine(says("x"))
    start(engine).chat(**fields)
    grammar = engine.submitted[-1].params.grammar
    assert grammar is not None
    return Language(grammar)


def test_an_expression_holds_the_whole_answer(start: Start) -> None:
    texts = language(start, regex="Paris|[0-9]{3}")
    assert texts.has("Paris")
    assert texts.has("123")
    assert not texts.has("1234")


def test_a_grammar_of_rules_holds_the_answer(start: Start) -> None:
    rules = """
        root    ::= "{" pair "}"
        pair    ::= "\\"name\\"" ":" string
        string  ::= "\\"" [A-Za-z]+ "\\""
    """
    texts = language(start, ebnf=rules)
    assert texts.has('{"name":"Alice"}')
    assert not texts.has('{"name":"Alice1"}')
    assert not texts.has('{"name":"Alice"}.')


@pytest.mark.parametrize("as_text", [True, False])
def test_a_schema_is_text_or_an_object(start: Start, as_text: bool) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "pattern": "^\\w+$"}},
        "required": ["name"],
    }
    texts = language(start, json_schema=json.dumps(schema) if as_text else schema)
    assert texts.has('{"name":"Paris"}')
    assert not texts.has('{"name":"New York"}')
    assert not texts.has("{}")


def test_a_structural_tag_is_a_fixed_text_or_a_schema(start: Start) -> None:
    def tagged(format: dict[str, Any]) -> Language:
        return language(start, response_format={"type": "structural_tag", "format": format})

    texts = tagged({"type": "const_string", "value": "It is Berlin."})
    assert texts.has("It is Berlin.")
    assert not texts.has("It is Paris.")
    texts = tagged({"type": "json_schema", "json_schema": {"type": "integer", "maximum": 9}})
    assert texts.has("7")
    assert not texts.has("It is 7.")


@pytest.mark.parametrize("thinks", [True, False])
def test_reasoning_is_switched_by_a_variable_of_the_template(start: Start, thinks: bool) -> None:
    engine = MockEngine(says(THOUGHT if thinks else "Four."))
    server = start(engine, template=SWITCHED, answer_format=choose_format("<think></think>"))
    fields: dict[str, Any] = {
        "separate_reasoning": True,
        "chat_template_kwargs": {"enable_thinking": thinks},
    }
    (choice,) = server.chat(**fields)["choices"]
    assert choice["message"].get("reasoning_content") == ("One and three." if thinks else None)
    assert choice["message"]["content"] == "Four."
    assert (b"<think>" in bytes(engine.submitted[-1].prompt_token_ids)) is not thinks
    events = events_of(server.post(CHAT, {"messages": HELLO, "stream": True, **fields}))
    parts = [part["delta"] for event in events for part in event["choices"]]
    told = "".join(part.get("reasoning_content", "") for part in parts)
    assert told == ("One and three." if thinks else "")


def test_its_defaults_are_taken(start: Start) -> None:
    harmless: dict[str, Any] = {
        "separate_reasoning": True, "stream_reasoning": True, "no_stop_trim": False,
        "return_hidden_states": False, "stop_regex": [], "return_routed_experts": False,
    }  # fmt: skip
    reply = start(MockEngine(says("x"))).post(CHAT, {"messages": HELLO, **harmless})
    assert reply.status_code == 200, reply.text
    assert "x-ignored-params" not in reply.headers


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("separate_reasoning", False), ("stream_reasoning", False), ("stop_regex", "a+"),
        ("no_stop_trim", True), ("return_hidden_states", True), ("lora_path", "x"),
        ("custom_logit_processor", "x"), ("session_params", {"id": "x"}), ("input_ids", [1]),
    ],
)  # fmt: skip
def test_fields_of_sglang_that_change_what_comes_out_are_not_ignored(
    start: Start, name: str, value: Any
) -> None:
    engine = MockEngine(says("x"))
    error = error_of(start(engine).post(CHAT, {"messages": HELLO, name: value}), 400)
    assert (error["param"], error["code"]) == (name, "unsupported")
    assert not engine.submitted


def test_parallel_calls_of_a_stream_are_told_apart(start: Start) -> None:
    other = CALL.replace("Köln", "Tokyo")
    events = with_tools(start, MockEngine(says(f"{CALL}\n{other}"))).stream_chat(tools=[WEATHER])
    pieces = [piece for delta in deltas(events) for piece in delta.get("tool_calls", ())]
    for index, city in enumerate(("Köln", "Tokyo")):
        own = [piece["function"] for piece in pieces if piece["index"] == index]
        assert own[0]["name"] == "get_weather"
        assert json.loads("".join(one["arguments"] for one in own)) == {"city": city}
    reasons = [choice["finish_reason"] for event in events for choice in event["choices"]]
    assert [one for one in reasons if one] == ["tool_calls"]


def test_a_name_the_request_does_not_have_is_no_call_of_a_strict_tool(start: Start) -> None:
    function = {**WEATHER["function"], "strict": True}
    engine = MockEngine(says("x"))
    with_tools(start, engine).chat(tools=[{"type": "function", "function": function}])
    grammar = engine.submitted[-1].params.grammar
    assert grammar is not None
    texts = Language(grammar)
    assert texts.has(CALL)
    assert not texts.has(CALL.replace("get_weather", "get_wind"))
