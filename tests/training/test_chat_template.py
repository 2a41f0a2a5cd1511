"""The chat template: text of training is the prompt as served and what the model then writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.text import ChatTemplate
from training.data.tokenizer import CHAT_TEMPLATE_FILE
from training.turns.conversations import environment, renderer

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Docs of <b> & 'c'",
            "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
    }
]
CALL = {"type": "function", "function": {"name": "look_up", "arguments": {"name": "é <len>"}}}
USER = {"role": "user", "content": "What does <len> do?"}
LAST_MESSAGES: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"content": "It returns 1 & 2.\n"}, "It returns 1 & 2.\n"),
    "call": (
        {"content": "", "tool_calls": [CALL]},
        '<tool_call>\n{"name": "look_up", "arguments": {"name": "é <len>"}}\n</tool_call>',
    ),
}


@pytest.mark.parametrize("template", ["plain", "headrace"])
@pytest.mark.parametrize("last", sorted(LAST_MESSAGES))
@pytest.mark.parametrize("reasoning", [None, "`len` is a builtin.\nIt takes `obj`."])
@pytest.mark.parametrize("system", [None, "Be brief."])
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_training_text_is_the_prompt_and_what_the_model_writes(
    template: str, last: str, reasoning: str | None, system: str | None, tools: Any
) -> None:
    source = CHAT_TEMPLATE_FILE.read_text()
    if template == "headrace":
        compiled: Any = ChatTemplate(source)
    else:
        compiled = environment().from_string(source)
    message, written = LAST_MESSAGES[last]
    start = [{"role": "system", "content": system}] if system else []
    answer = {"role": "assistant", **message}
    if reasoning:
        answer["reasoning_content"] = reasoning
        written = f"{reasoning}\n</think>\n{written}"
    messages = [*start, USER, answer]
    trained = renderer()({"messages": messages, "tools": tools})
    prompt = compiled.render(
        messages=messages[:-1],
        tools=tools,
        add_generation_prompt=True,
        enable_thinking=bool(reasoning),
    )
    assert trained == f"{prompt}{written}<|im_end|>\n"
    assert trained == compiled.render(messages=messages, tools=tools, add_generation_prompt=False)


def test_a_tools_answer_and_parts_of_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "Docs."},
    ]
    text = ChatTemplate(CHAT_TEMPLATE_FILE.read_text()).render(messages, tools=TOOLS)
    assert "<|im_start|>user\nab<|im_end|>\n" in text
    assert "<|im_start|>user\n<tool_response>\nDocs.\n</tool_response><|im_end|>\n" in text
    assert text.endswith("<|im_start|>assistant\n")
    declared = json.dumps(TOOLS[0]["function"])
    assert text.startswith(f"<|im_start|>system\nFunctions:\n{declared}\n<|im_end|>\n")
