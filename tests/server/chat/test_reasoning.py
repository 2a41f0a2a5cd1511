"""Reasoning: a field of its own, counted, and switched by the request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.answer_formats.formats import choose_format
from headrace.text import ChatTemplate
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says

Start = Callable[..., Running]

OPENED = ChatTemplate("{{ messages[0].content }}{% if add_generation_prompt %}<think>\n{% endif %}")
PLAIN = ChatTemplate("{{ messages[0].content }}")
THOUGHT = "<think>\nTwo and two.\n</think>\n\nFour."


def thinking(start: Start, engine: MockEngine, template: ChatTemplate = PLAIN) -> Running:
    return start(engine, template=template, answer_format=choose_format("<think>"))


def test_reasoning_is_a_field_of_its_own_under_both_names(start: Start) -> None:
    message = thinking(start, MockEngine(says(THOUGHT))).chat()["choices"][0]["message"]
    assert message == {
        "role": "assistant",
        "content": "Four.",
        "refusal": None,
        "reasoning": "Two and two.",
        "reasoning_content": "Two and two.",
    }


def test_its_stream_joins_to_the_whole(start: Start) -> None:
    events = thinking(start, MockEngine(says(THOUGHT))).stream_chat()
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    for name in ("reasoning", "reasoning_content"):
        assert "".join(delta.get(name, "") for delta in deltas) == "Two and two."
    assert "".join(delta.get("content", "") for delta in deltas) == "Four."


def test_a_prompt_that_opens_reasoning_is_known(start: Start) -> None:
    engine = MockEngine(says("Two and two.\n</think>Four."))
    message = thinking(start, engine, OPENED).chat()["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("Two and two.", "Four.")


def test_its_tokens_are_counted(start: Start) -> None:
    server = thinking(start, MockEngine(says(THOUGHT)))
    usage = server.chat()["usage"]
    counted = usage["completion_tokens_details"]["reasoning_tokens"]
    assert counted == len("\nTwo and two.\n")  # one token a byte, without the marks
    last = server.stream_chat(stream_options={"include_usage": True})[-1]
    assert last["usage"]["completion_tokens_details"]["reasoning_tokens"] == counted


def test_it_can_be_left_out_of_the_reply_and_still_counts(start: Start) -> None:
    server = thinking(start, MockEngine(says(THOUGHT)))
    for fields in ({"include_reasoning": False}, {"reasoning": {"exclude": True}}):
        reply = server.chat(**fields)
        message = reply["choices"][0]["message"]
        assert message == {"role": "assistant", "content": "Four.", "refusal": None}
        assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
        assert not any(
            "reasoning" in str(event["choices"]) for event in server.stream_chat(**fields)
        )


def test_without_a_format_it_is_text(start: Start) -> None:
    reply = start(MockEngine(says(THOUGHT)), template=PLAIN).chat()
    assert reply["choices"][0]["message"]["content"] == THOUGHT
    assert "completion_tokens_details" not in reply["usage"]


def test_reasoning_that_does_not_end_is_reasoning(start: Start) -> None:
    engine = MockEngine(says("<think>on and on", ends=False))
    choice = thinking(start, engine).chat()["choices"][0]
    assert choice["message"]["content"] == ""
    assert choice["message"]["reasoning"] == "on and on"
    assert choice["finish_reason"] == "length"


def test_efforts_of_other_servers_set_the_switch(start: Start) -> None:
    engine = MockEngine(says("x"))
    template = ChatTemplate("{{ enable_thinking }},{{ reasoning_effort }}")
    server = start(engine, template=template)

    def rendered(**fields: Any) -> str:
        server.chat(**fields)
        return bytes(engine.submitted[-1].prompt_token_ids).decode()

    assert rendered(reasoning={"effort": "high"}) == "True,high"
    assert rendered(reasoning={"enabled": False}) == "False,none"
    assert rendered(reasoning={"effort": "low"}, reasoning_effort="high") == "True,high"


def test_a_budget_reaches_the_engine_with_the_marks_as_ids(start: Start) -> None:
    engine = MockEngine(says(THOUGHT))
    server = thinking(start, engine)
    for fields in ({"thinking_token_budget": 7}, {"reasoning": {"max_tokens": 7}}):
        server.chat(**fields)
        budget = engine.submitted[-1].params.thinking
        assert budget is not None
        assert (budget.max_tokens, budget.is_open) == (7, False)
        assert (bytes(budget.begin_ids), bytes(budget.end_ids)) == (b"<think>", b"</think>")
    opened = thinking(start, engine, OPENED)
    opened.chat(thinking_token_budget=0)
    budget = engine.submitted[-1].params.thinking
    assert budget is not None
    assert (budget.max_tokens, budget.is_open) == (0, True)


def test_a_budget_of_a_model_that_does_not_reason_changes_nothing(start: Start) -> None:
    engine = MockEngine(says("x"))
    start(engine).chat(thinking_token_budget=7)
    assert engine.submitted[0].params.thinking is None


@pytest.mark.parametrize("prompt", ["a <think>b", [*b"a <think>b"]])
def test_a_budget_of_a_completion_goes_by_the_last_mark_of_its_prompt(
    start: Start, prompt: str | list[int]
) -> None:
    engine = MockEngine(says("x"))
    server = thinking(start, engine)
    server.complete(prompt=prompt, thinking_token_budget=7)
    budget = engine.submitted[-1].params.thinking
    assert budget is not None
    assert (budget.max_tokens, budget.is_open, budget.begin_ids) == (7, True, ())
    assert bytes(budget.end_ids) == b"</think>"
    server.complete(prompt=prompt, thinking_token_budget=-1)
    assert engine.submitted[-1].params.thinking is None


def test_each_prompt_of_a_completion_has_its_own_budget(start: Start) -> None:
    engine = MockEngine(says("x"))
    prompts = ["<think>a</think>b", "c<think>", "d"]
    thinking(start, engine).complete(prompt=prompts, n=2, thinking_token_budget=0)
    opened = {}
    for submit in engine.submitted:
        budget = submit.params.thinking
        assert budget is not None
        opened[bytes(submit.prompt_token_ids).decode()] = budget.is_open
    assert opened == dict(zip(prompts, (False, True, False), strict=True))
    start(engine).complete(prompt="<think>", thinking_token_budget=0)
    assert engine.submitted[-1].params.thinking is None  # of a model that does not reason


def test_a_budget_of_a_completion_is_refused_beside_a_form(start: Start) -> None:
    server = thinking(start, MockEngine(says("x")))
    body = {"prompt": "<think>", "thinking_token_budget": 7, "regex": "[0-9]"}
    error = server.post("/v1/completions", body)
    assert error.status_code == 400
    assert error.json()["error"]["param"] == "thinking_token_budget"
    server.complete(**{**body, "thinking_token_budget": -1})
