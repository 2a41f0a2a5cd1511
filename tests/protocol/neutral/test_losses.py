"""Which losses matter, which do not, and what clients call the fields."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.protocol.dialects.anthropic import CLIENT as ANTHROPIC
from headrace.protocol.dialects.ollama import CLIENT as OLLAMA
from headrace.protocol.dialects.openai_chat import CLIENT as CHAT
from headrace.protocol.dialects.openai_responses import CLIENT as RESPONSES
from headrace.protocol.neutral.call import ChatCall, Message, ToolChoice
from headrace.protocol.neutral.losses import (
    MEANINGS,
    Losses,
    embedding_losses,
    has_meaning,
    losses,
    opaque_loss,
)
from headrace.protocol.neutral.part import Opaque, Text

# What every dialect carries, in whatever form.
_CARRIED = {"dialect", "model", "messages", "instructions", "stream", "extra"}
_HINTS = {
    "frequency_penalty", "legacy_functions", "max_tokens", "metadata", "min_p",
    "parallel_tool_calls", "presence_penalty", "reasoning", "repetition_penalty", "seed",
    "service_tier", "stream_usage", "temperature", "thought_signatures", "top_k", "top_p", "user",
}  # fmt: skip


def call(**more: Any) -> ChatCall:
    messages = (Message(role="user", parts=(Text(text="Hi"),)),)
    return ChatCall(dialect="openai-chat", model="m", messages=messages, **more)


def lost(*dropped: str, client: Any = CHAT, body: str = "", **more: Any) -> Losses:
    """`body` holds the paths that the client's body has."""
    return losses(call(**more), dropped, client.field_paths, lambda path: path in body.split())


def test_every_field_of_a_call_is_a_meaning_or_a_hint() -> None:
    fields = {field.name for field in msgspec.structs.fields(ChatCall)}
    meanings = {name for name in MEANINGS if "." not in name}
    assert fields == _CARRIED | _HINTS | meanings
    assert not any(has_meaning(name) for name in _HINTS)


@pytest.mark.parametrize(
    "name",
    [
        "choices", "logit_bias", "output", "output.schema", "tool_choice", "stop", "tools",
        "tools.web_search", "tools[0].custom", "messages.image", "messages[2].parts[1].document",
        "messages.custom_tool_call_output", "extra.web_search_options", "extra.response_format",
        "extra.documents", "extra.search_parameters", "extra.enable_search", "extra.plugins",
        "extra.logits_processors",
    ],
)  # fmt: skip
def test_meanings(name: str) -> None:
    found = lost(name)
    assert found.meaning and not found.hints


@pytest.mark.parametrize(
    "name",
    [
        "seed", "top_k", "user", "metadata", "parallel_tool_calls", "reasoning.effort",
        "reasoning.budget_tokens", "cache", "tools.strict", "tools[0].strict", "tools.cache",
        "messages.name", "messages[0].name", "messages[0].parts[1].cache", "messages.detail",
        "messages.system", "messages.assistant.web_search_call", "instructions[0].cache",
        "output.schema.minimum", "tools.parameters.format", "extra.verbosity", "extra.store",
    ],
)  # fmt: skip
def test_hints(name: str) -> None:
    found = lost(name)
    assert found.hints and not found.meaning


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("frequency_penalty", {"frequency_penalty": 0.0}),
        ("presence_penalty", {"presence_penalty": 0.0}),
        ("repetition_penalty", {"repetition_penalty": 1.0}),
        ("choices", {"choices": 1}),
        ("logprobs", {"logprobs": False}),
        ("logit_bias", {"logit_bias": {}}),
        ("parallel_tool_calls", {"parallel_tool_calls": True}),
        ("service_tier", {"service_tier": "auto"}),
        ("tool_choice", {"tool_choice": ToolChoice("auto")}),
        ("extra.store", {"extra": {"store": False}}),
        ("instructions[0].role", {}),
        ("messages.extra.role", {}),
        ("messages.text.role", {}),
    ],
)
def test_no_ops_are_not_losses(name: str, more: dict[str, Any]) -> None:
    assert lost(name, **more) == Losses()


def test_a_value_that_is_not_a_no_op_is_a_loss() -> None:
    assert lost("frequency_penalty", frequency_penalty=0.1).hints == ("frequency_penalty",)
    assert lost("choices", choices=2).meaning == ("n",)


@pytest.mark.parametrize(
    ("client", "body", "name", "path"),
    [
        (CHAT, "", "choices", "n"),
        (CHAT, "", "output.schema", "response_format.json_schema.schema"),
        (CHAT, "", "output.schema.minimum", "response_format.json_schema.schema..minimum"),
        (CHAT, "reasoning.max_tokens", "reasoning.budget_tokens", "reasoning.max_tokens"),
        (CHAT, "thinking.budget_tokens", "reasoning.budget_tokens", "thinking.budget_tokens"),
        (CHAT, "", "tools.web_search", 'tools[?@.type=="web_search"]'),
        (CHAT, "functions", "tools", "functions"),
        (CHAT, "", "messages[3].name", "messages[*].name"),
        (CHAT, "", "extra.verbosity", "verbosity"),
        (RESPONSES, "", "extra.verbosity", "text.verbosity"),
        (RESPONSES, "", "messages.computer_call_output",
         'input..[?@.type=="computer_call_output"]'),
        (RESPONSES, "", "logprobs", "include"),
        (RESPONSES, "input", "instructions[0].cache", "$..prompt_cache_breakpoint"),
        (ANTHROPIC, "", "user", "metadata.user_id"),
        (ANTHROPIC, "", "messages[0].parts[1].cache", "$..cache_control"),
        (ANTHROPIC, "", "reasoning.budget_tokens", "thinking.budget_tokens"),
        (ANTHROPIC, "", "messages.assistant.server_tool_use",
         'messages..[?@.type=="server_tool_use"]'),
        (ANTHROPIC, "", "extra.betas", "anthropic-beta"),
        (OLLAMA, "", "seed", "options.seed"),
        (OLLAMA, "", "repetition_penalty", "options.repeat_penalty"),
        (OLLAMA, "", "output", "format"),
    ],
)  # fmt: skip
def test_fields_have_the_names_that_the_client_wrote(
    client: Any, body: str, name: str, path: str
) -> None:
    assert lost(name, client=client, body=body).all == (path,)


def test_of_a_field_that_is_read_in_part_the_rest_is_named() -> None:
    extra = {"text": {"format": {"type": "grammar"}, "shape": 1}, "thinking": {"keep": "all"}}
    found = lost("extra.text", "extra.thinking", client=RESPONSES, extra=extra)
    assert found == Losses(("text.format",), ("text.shape", "thinking.keep"))


def test_a_field_is_named_once_and_as_a_meaning_first() -> None:
    found = lost("messages[0].name", "messages[1].name", "seed", "choices")
    assert found == Losses(("n",), ("messages[*].name", "seed"))
    assert found.all == ("n", "messages[*].name", "seed")


def test_what_a_model_did_elsewhere_is_a_hint_and_what_a_client_says_is_not() -> None:
    part = Opaque("openai-responses", {"type": "web_search_call"})
    assert opaque_loss(part, "assistant") == "messages.assistant.web_search_call"
    assert opaque_loss(part, "user") == "messages.web_search_call"
    inner = Opaque("openai-responses", {"content_part": {"type": "input_video"}})
    assert opaque_loss(inner, "user") == "messages.input_video"
    assert opaque_loss(Opaque("gemini", {"executableCode": {}}), "user") == "messages.gemini"


def test_a_client_cannot_fill_headers_and_ledgers_with_names() -> None:
    names = [f"extra.{number:04}{'x' * 4000}" for number in range(4000)]
    found = lost(*names)
    assert len(found.hints) == 51 and found.hints[-1] == "3950 more"
    assert max(map(len, found.hints)) <= 121
    assert embedding_losses(names).hints == found.hints
