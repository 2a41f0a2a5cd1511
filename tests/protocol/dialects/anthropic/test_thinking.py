"""How much to think, for calls of other dialects."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.protocol.dialects.anthropic import rules_of
from headrace.protocol.neutral.call import Reasoning, ToolChoice
from headrace.protocol.neutral.part import Signature, Text, Thinking, ToolCall, ToolResult
from tests.protocol.dialects.anthropic.written_calls import HI, assistant, results, written

OLD = "claude-sonnet-4-5"
BETWEEN = "claude-opus-4-6"
NEW = "claude-opus-4-8"
ADAPTIVE = {"type": "adaptive"}


def enabled(budget: int) -> dict[str, Any]:
    return {"type": "enabled", "budget_tokens": budget}


@pytest.mark.parametrize(
    ("model", "reasoning", "thinking", "effort", "dropped"),
    [
        (OLD, Reasoning(effort="minimal"), enabled(1024), None, ()),
        (OLD, Reasoning(effort="low"), enabled(1024), None, ()),
        (OLD, Reasoning(effort="medium"), enabled(4096), None, ()),
        (OLD, Reasoning(effort="high"), enabled(16384), None, ()),
        (OLD, Reasoning(effort="xhigh"), enabled(32768), None, ()),
        (OLD, Reasoning(effort="none"), None, None, ()),
        (OLD, Reasoning(adaptive=True), enabled(4096), None, ()),
        (OLD, Reasoning(budget_tokens=5000), enabled(5000), None, ()),
        (OLD, Reasoning(budget_tokens=9), enabled(1024), None, ("reasoning.budget_tokens",)),
        (OLD, Reasoning(effort="low", shown=False), enabled(1024), None, ("reasoning.shown",)),
        (OLD, Reasoning(shown=True), None, None, ()),
        (BETWEEN, Reasoning(effort="high"), ADAPTIVE, "high", ()),
        (BETWEEN, Reasoning(effort="xhigh"), ADAPTIVE, "high", ("reasoning.effort",)),
        (BETWEEN, Reasoning(budget_tokens=5000), enabled(5000), None, ()),
        (NEW, Reasoning(effort="xhigh"), ADAPTIVE, "xhigh", ()),
        (NEW, Reasoning(effort="minimal"), ADAPTIVE, "low", ()),
        (NEW, Reasoning(effort="none"), {"type": "disabled"}, None, ()),
        (NEW, Reasoning(budget_tokens=0), {"type": "disabled"}, None, ()),
        (NEW, Reasoning(budget_tokens=5000), ADAPTIVE, "high", ()),
        (
            NEW,
            Reasoning(effort="low", summary="auto"),
            {"type": "adaptive", "display": "summarized"},
            "low",
            (),
        ),
        (
            NEW,
            Reasoning(effort="low", shown=False),
            {"type": "adaptive", "display": "omitted"},
            "low",
            (),
        ),
    ],
)
def test_what_is_asked(
    model: str,
    reasoning: Reasoning,
    thinking: dict[str, Any] | None,
    effort: str | None,
    dropped: tuple[str, ...],
) -> None:
    body, told = written(model=model, reasoning=reasoning)
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == effort
    assert told == dropped


def test_max_tokens_leaves_room_for_the_answer() -> None:
    body, _ = written(reasoning=Reasoning(effort="high"))
    assert body["max_tokens"] == 4096 + 16384
    body, dropped = written(reasoning=Reasoning(effort="high"), max_tokens=10_000)
    assert body["max_tokens"] == 10_000
    assert body["thinking"] == enabled(8000)
    assert dropped == ()
    body, dropped = written(reasoning=Reasoning(budget_tokens=9000), max_tokens=10_000)
    assert body["thinking"] == enabled(8000)
    assert dropped == ("reasoning.budget_tokens",)
    body, _ = written(reasoning=Reasoning(effort="low"), max_tokens=1100)
    assert body["thinking"] == enabled(1024)


def test_without_room_there_is_no_thinking() -> None:
    body, dropped = written(reasoning=Reasoning(effort="high"), max_tokens=1024)
    assert "thinking" not in body
    assert dropped == ("reasoning",)


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("one", "f")])
def test_a_tool_that_must_be_called_comes_first(choice: ToolChoice) -> None:
    body, dropped = written(reasoning=Reasoning(effort="high"), tool_choice=choice)
    assert "thinking" not in body
    assert dropped == ("reasoning",)
    body, dropped = written(model=NEW, reasoning=Reasoning(effort="high"), tool_choice=choice)
    assert body["thinking"] == ADAPTIVE
    assert dropped == ()


def test_in_the_midst_of_tools_thoughts_must_be_its_own() -> None:
    call = ToolCall(id="1", name="f", arguments="{}")
    answer = results(ToolResult(call_id="1", content=(Text(text="a"),)))
    fields: dict[str, Any] = {"reasoning": Reasoning(effort="high")}
    foreign = Thinking(text="a", signature=Signature("gemini", "s"))
    body, dropped = written(*HI, assistant(foreign, call), answer, **fields)
    assert "thinking" not in body
    assert dropped == ("reasoning",)
    own = Thinking(text="a", signature=Signature("anthropic", "s"))
    body, dropped = written(*HI, assistant(own, call), answer, **fields)
    assert body["thinking"] == enabled(16384)
    assert dropped == ()
    body, _ = written(*HI, assistant(foreign, call), answer, *HI, **fields)
    assert body["thinking"] == enabled(16384)


def test_thoughts_leave_little_to_sample() -> None:
    body, dropped = written(reasoning=Reasoning(effort="low"), temperature=0.5, top_p=0.9, top_k=5)
    assert not body.keys() & {"temperature", "top_p", "top_k"}
    assert set(dropped) == {"temperature", "top_p", "top_k"}
    body, dropped = written(reasoning=Reasoning(effort="low"), temperature=1.0)
    assert body["temperature"] == 1.0
    assert dropped == ()


@pytest.mark.parametrize(
    ("reasoning", "thinking", "effort"),
    [
        (Reasoning(budget_tokens=2000), enabled(2000), None),
        (Reasoning(budget_tokens=0, effort="high"), {"type": "disabled"}, "high"),
        (Reasoning(adaptive=True, shown=False), ADAPTIVE | {"display": "omitted"}, None),
        (Reasoning(effort="low"), None, "low"),
    ],
)
def test_a_call_of_its_own_says_what_it_said(
    reasoning: Reasoning, thinking: dict[str, Any] | None, effort: str | None
) -> None:
    body, dropped = written(
        model=NEW, dialect="anthropic", reasoning=reasoning, max_tokens=100, temperature=0.5
    )
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == effort
    assert body["max_tokens"] == 100
    assert body["temperature"] == 0.5
    assert dropped == ()


@pytest.mark.parametrize(
    ("model", "adaptive", "budgets", "inline_system"),
    [
        ("claude-3-7-sonnet-20250219", False, True, False),
        ("claude-opus-4-20250514", False, True, False),
        ("claude-sonnet-4-0", False, True, False),
        ("claude-opus-4-1-20250805", False, True, False),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", False, True, False),
        ("claude-opus-4-6", True, True, False),
        ("anthropic/claude-opus-4.7", True, False, False),
        ("claude-opus-4-8", True, False, True),
        ("claude-fable-5", True, False, True),
        ("claude-opus-5@20260901", True, False, True),
        ("glm-4.6", False, True, False),
    ],
)
def test_rules_by_name(model: str, adaptive: bool, budgets: bool, inline_system: bool) -> None:
    rules = rules_of(model)
    assert (rules.adaptive, rules.budgets) == (adaptive, budgets)
    assert rules.inline_system == inline_system


def test_of_its_own_calls_only_others_thoughts_stand_in_the_way() -> None:
    call = ToolCall(id="1", name="f", arguments="{}")
    answer = results(ToolResult(call_id="1", content=(Text(text="a"),)))
    foreign = Thinking(text="a", signature=Signature("gemini", "s"))
    fields: dict[str, Any] = {"dialect": "anthropic", "reasoning": Reasoning(budget_tokens=2000)}
    body, dropped = written(*HI, assistant(foreign, call), answer, **fields)
    assert "thinking" not in body
    assert dropped == ("reasoning",)
    body, dropped = written(*HI, assistant(call), answer, **fields)
    assert body["thinking"] == enabled(2000)
    assert dropped == ()
