"""Reasoning in process: bounded by a number of tokens, and read as named."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from headrace import LLM, AsyncLLM, SamplingParams, ThinkingBudget
from headrace.errors import ConfigError, RequestError
from tests.tiny import write_tiny_hf

TEMPLATE = (
    "{# <think></think> <tool_call> #}{% for m in messages %}{{ m.role }}:{{ m.content }}\n"
    "{% endfor %}{% if enable_thinking %}<think>{% endif %}"
)
HELLO = [{"role": "user", "content": "x"}]
SETTINGS: dict[str, Any] = {"backend": "reference", "num_gpu_blocks_override": 64}


def params(**fields: Any) -> SamplingParams:
    return SamplingParams(temperature=1, seed=3, max_tokens=60, **fields)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_tiny_hf(tmp_path_factory.mktemp("thinking"), logit_scale=4.0)
    config = path / "tokenizer_config.json"
    fields = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**fields, "chat_template": TEMPLATE}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def llm(path: Path) -> LLM:
    return LLM(path, **SETTINGS)


def test_a_budget_closes_reasoning_and_the_answer_goes_on(llm: LLM) -> None:
    free = llm.chat(HELLO, params(), enable_thinking=True)
    assert free.reasoning_tokens == len(free.token_ids) > 20
    assert not free.content
    budget = params(thinking_token_budget=5)
    result = llm.chat(HELLO, budget, enable_thinking=True)
    end_ids = tuple(llm.tokenizer.encode("</think>", add_special_tokens=False))
    assert result.token_ids[:5] == free.token_ids[:5]
    assert result.token_ids[5 : 5 + len(end_ids)] == end_ids
    assert result.reasoning_tokens == 5
    assert result.reasoning and result.content
    in_ids = params(thinking=ThinkingBudget(max_tokens=5, end_ids=end_ids))
    assert llm.chat(HELLO, in_ids, enable_thinking=True).token_ids == result.token_ids
    deltas = list(llm.stream_chat(HELLO, budget, enable_thinking=True))
    assert sum(delta.reasoning_tokens for delta in deltas) == result.reasoning_tokens
    assert "".join(delta.reasoning or "" for delta in deltas) == result.reasoning


def test_a_budget_without_a_limit_bounds_nothing(llm: LLM) -> None:
    free = llm.chat(HELLO, params(), enable_thinking=True)
    assert llm.chat(HELLO, params(thinking_token_budget=-1), enable_thinking=True) == free


def test_a_prompt_of_ids_has_the_budget_of_the_conversation(llm: LLM) -> None:
    budget = params(thinking_token_budget=5)
    chat = llm.chat(HELLO, budget, enable_thinking=True)
    ids = llm.encode_chat(HELLO, enable_thinking=True)
    plain = llm.encode_chat(HELLO)
    opened, other = llm.generate([ids, plain], [budget, params()])
    assert opened.token_ids == chat.token_ids
    assert other.token_ids == llm.chat(HELLO, params()).token_ids
    assert "".join(delta.text for delta in llm.stream(ids, budget)) == chat.text


def test_a_budget_beside_a_form_is_refused_but_in_chat(llm: LLM) -> None:
    both = params(thinking_token_budget=2, structured_outputs={"regex": "[0-9]{3}"})
    with pytest.raises(RequestError, match="omit one of the two, or use chat") as caught:
        llm.generate("a <think>", both)
    assert caught.value.param == "thinking_token_budget"
    result = llm.chat(HELLO, both, enable_thinking=True)
    assert result.content is not None and len(result.content) == 3 and result.content.isdigit()


def test_a_model_that_does_not_reason_has_nothing_to_bound(tmp_path: Path) -> None:
    llm = LLM(write_tiny_hf(tmp_path, logit_scale=4.0), **SETTINGS)
    budget = params(thinking_token_budget=0)
    assert llm.generate("a", budget) == llm.generate("a", params())


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"thinking_token_budget": -2}, "thinking_token_budget is -2; it must be -1 or more"),
        ({"thinking_token_budget": 2**70}, "thinking_token_budget is 1180591620717411303424"),
        ({"thinking_token_budget": "5"}, "thinking_token_budget is '5'; it must be an integer"),
        ({"thinking_token_budget": True}, "thinking_token_budget is True; it must be an integer"),
        (
            {"thinking_token_budget": 5, "thinking": ThinkingBudget(max_tokens=5, end_ids=(1,))},
            "thinking_token_budget, thinking: reasoning has one budget",
        ),
    ],
)
def test_a_budget_that_is_wrong_is_refused_as_it_is_made(
    fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(RequestError, match=problem) as caught:
        SamplingParams(**fields)
    assert caught.value.param == "thinking_token_budget"


def test_formats_are_named_as_by_the_servers_flags(path: Path) -> None:
    plain = LLM(path, reasoning_parser="none", tool_call_parser="none", **SETTINGS)
    result = plain.chat(HELLO, params(thinking_token_budget=0), enable_thinking=True)
    assert (result.content, result.reasoning) == (result.text, None)
    assert result.reasoning_tokens == 0
    now = {"type": "function", "function": {"name": "now"}}
    with pytest.raises(RequestError, match="shows no format of tool calls"):
        plain.chat(HELLO, tools=[now], tool_choice="required")
    other = LLM(path, reasoning_parser="qwen3", tool_call_parser="mistral", **SETTINGS)
    called = other.chat(HELLO, params(), tools=[now], tool_choice="required")
    assert called.text.strip().startswith("[TOOL_CALLS]")
    assert called.tool_calls[0].name == "now"


@pytest.mark.parametrize("name", ["tool_call_parser", "reasoning_parser"])
def test_a_format_that_is_unknown_is_refused_before_a_model_is_loaded(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: 'nope' is unknown; take one of"):
        LLM("/absent", **{name: "nope"})
    with pytest.raises(ConfigError, match=f"{name} is 5; it must be the name of a format"):
        LLM("/absent", **{name: 5})


@pytest.mark.process
def test_the_engine_in_a_process_of_its_own_reads_the_same(path: Path, llm: LLM) -> None:
    budget = params(thinking_token_budget=5)

    async def answers() -> list[Any]:
        settings = {**SETTINGS, "reasoning_parser": "think"}
        async with await AsyncLLM.start(path, **settings) as beside:
            ids = beside.encode_chat(HELLO, enable_thinking=True)
            [generated] = await beside.generate([ids], budget)
            return [await beside.chat(HELLO, budget, enable_thinking=True), generated]

    chat, generated = asyncio.run(answers())
    # What is cached depends on what was asked before.
    same = llm.chat(HELLO, budget, enable_thinking=True)
    assert (chat.text, chat.token_ids, chat.reasoning) == (
        same.text,
        same.token_ids,
        same.reasoning,
    )
    assert chat.reasoning_tokens == same.reasoning_tokens
    assert generated.token_ids == chat.token_ids
