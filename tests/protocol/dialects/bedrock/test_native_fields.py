"""How much to think, and top_k, in the words of each vendor's models."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.protocol.dialects.bedrock.request.family import family_of
from headrace.protocol.neutral.call import Reasoning
from tests.protocol.dialects.bedrock.calls import CLAUDE, LLAMA, NEW_CLAUDE, NOVA, call, written

NOVA_2 = "us.amazon.nova-2-lite-v1:0"
GPT = "openai.gpt-oss-120b-1:0"
NEWEST = "global.anthropic.claude-opus-4-7"
QWEN = "qwen.qwen3-32b-v1:0"


def _native(
    model: str, max_tokens: int | None = None, **wanted: Any
) -> tuple[Any, tuple[str, ...]]:
    reasoning = Reasoning(**wanted)
    body, dropped = written(call(reasoning=reasoning, max_tokens=max_tokens), model)
    return body.get("additionalModelRequestFields"), dropped


def _budget(tokens: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (CLAUDE, {"top_k": 20}),
        (NOVA, {"inferenceConfig": {"topK": 20}}),
        (LLAMA, None),
        (QWEN, None),
    ],
)
def test_top_k(model: str, fields: dict[str, Any] | None) -> None:
    body, dropped = written(call(top_k=20), model)
    assert body.get("additionalModelRequestFields") == fields
    assert dropped == (() if fields else ("top_k",))


@pytest.mark.parametrize(
    ("wanted", "max_tokens", "fields", "dropped"),
    [
        ({"budget_tokens": 2000}, None, _budget(2000), ()),
        ({"effort": "medium"}, None, _budget(4096), ()),
        ({"effort": "high"}, 10_000, _budget(8000), ()),
        ({"effort": "high"}, 1024, None, ("reasoning",)),
        ({"effort": "none"}, None, None, ()),
        ({}, None, None, ()),
    ],
)
def test_claude_before_4_6(
    wanted: dict[str, Any], max_tokens: int | None, fields: Any, dropped: tuple[str, ...]
) -> None:
    """The rules are those of Anthropic's own dialect."""
    assert _native(CLAUDE, max_tokens, **wanted) == (fields, dropped)


def test_claude_since_4_6() -> None:
    high = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}
    assert _native(NEW_CLAUDE, effort="high") == (high, ())
    assert _native(NEW_CLAUDE, effort="none") == ({"thinking": {"type": "disabled"}}, ())


def test_a_limit_that_was_not_said_is_not_made_up() -> None:
    body, _ = written(call(reasoning=Reasoning(effort="high")), CLAUDE)
    assert "inferenceConfig" not in body


@pytest.mark.parametrize(
    ("model", "thinks", "given", "config", "dropped"),
    [
        (CLAUDE, True, {"temperature": 0.5}, {}, {"temperature"}),
        (CLAUDE, True, {"temperature": 1.0}, {"temperature": 1.0}, set()),
        (CLAUDE, True, {"top_p": 0.5}, {}, {"top_p"}),
        (CLAUDE, True, {"top_p": 0.97}, {"topP": 0.97}, set()),
        (CLAUDE, False, {"temperature": 0.5}, {"temperature": 0.5}, set()),
        (CLAUDE, False, {"temperature": 0.5, "top_p": 1.0}, {"temperature": 0.5}, set()),
        (CLAUDE, False, {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5}, {"top_p"}),
        (CLAUDE, False, {"temperature": 1.5}, {"temperature": 1}, {"temperature"}),
        (NEWEST, False, {"temperature": 0.5, "top_p": 0.5}, {}, {"temperature", "top_p"}),
        (NOVA, False, {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "topP": 0.9}, set()),
        (NOVA, False, {"temperature": -1, "top_p": 2}, {"temperature": 0, "topP": 1}, None),
    ],
)
def test_sampling(
    model: str, thinks: bool, given: dict[str, Any], config: Any, dropped: set[str] | None
) -> None:
    reasoning = Reasoning(budget_tokens=2000) if thinks else None
    body, told = written(call(reasoning=reasoning, **given), model)
    assert body.get("inferenceConfig", {}) == config
    assert set(told) == (set(given) if dropped is None else dropped)


def test_top_k_is_not_taken_beside_thoughts() -> None:
    body, dropped = written(call(top_k=5, reasoning=Reasoning(budget_tokens=2000)), CLAUDE)
    assert body["additionalModelRequestFields"] == _budget(2000)
    assert dropped == ("top_k",)


@pytest.mark.parametrize(
    ("model", "effort", "fields"),
    [
        (
            NOVA_2,
            "medium",
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "medium"}},
        ),
        (NOVA_2, "xhigh", {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}),
        (NOVA_2, "none", {"reasoningConfig": {"type": "disabled"}}),
        (GPT, "minimal", {"reasoning_effort": "low"}),
        (GPT, "high", {"reasoning_effort": "high"}),
        (QWEN, "low", {"reasoning_config": "low"}),
        (QWEN, "medium", {"reasoning_config": "high"}),
    ],
)
def test_efforts_of_others(model: str, effort: str, fields: dict[str, Any]) -> None:
    assert _native(model, effort=effort) == (fields, ())


@pytest.mark.parametrize(
    ("model", "wanted", "dropped"),
    [
        (GPT, {"effort": "none"}, {"reasoning.effort"}),
        (QWEN, {"budget_tokens": 0}, {"reasoning.budget_tokens"}),
        (LLAMA, {"budget_tokens": 2000}, {"reasoning.budget_tokens"}),
        (LLAMA, {"effort": "high"}, {"reasoning.effort"}),
        (NOVA, {"effort": "high"}, {"reasoning.effort"}),
        (
            NOVA,
            {"adaptive": True, "shown": True, "summary": "auto"},
            {"reasoning.adaptive", "reasoning.shown", "reasoning.summary"},
        ),
    ],
)
def test_what_others_cannot_be_told(model: str, wanted: dict[str, Any], dropped: set[str]) -> None:
    fields, told = _native(model, **wanted)
    assert fields is None
    assert set(told) == dropped


@pytest.mark.parametrize(
    ("model", "vendor"),
    [
        ("anthropic.claude-3-haiku-20240307-v1:0", "anthropic"),
        ("us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0", "anthropic"),
        ("arn:aws:bedrock:us-east-1::foundation-model/amazon.nova-pro-v1:0", "nova"),
        ("arn:aws:bedrock:us-east-1:1:inference-profile/us.meta.llama3-2-1b-instruct-v1:0", "meta"),
        ("arn:aws:bedrock:us-east-1:123456789012:provisioned-model/abcdefghijkl", ""),
        ("amazon.titan-text-express-v1", "amazon"),
        ("zai.glm-4.7-flash", "other"),
        ("", "other"),
    ],
)
def test_whose_model_it_is(model: str, vendor: str) -> None:
    assert family_of(model).vendor == vendor


def test_whose_model_it_is_by_word() -> None:
    arn = "arn:aws:bedrock:us-east-1:123456789012:provisioned-model/abcdefghijkl"
    assert family_of(arn, "nova").vendor == "nova"
    assert family_of(arn, "nobody").vendor == ""
    assert family_of("anthropic.claude-opus-5", "nova").vendor == "anthropic"
