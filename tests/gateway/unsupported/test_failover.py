"""Targets that do not support all parameters: which are asked, when, and what is told of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.gateway.building.gateway import Gateway
from headrace.gateway.serving.entry import Entry
from headrace.gateway.telemetry.access_log import fields_of
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import fails, reply
from tests.gateway.upstream.scripted import Scripted, served

MESSAGES = [{"role": "user", "content": "Hi"}]
NOWHERE = "http://127.0.0.1:9"
HINTS: list[dict[str, Any]] = [
    {"metadata": {"a": "b"}},
    {"seed": 1},
    {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]},
]
_ANSWER = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude",
    "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn",
    "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
_CHAT = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"},
                 "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}  # fmt: skip


class House:
    """A gateway with its providers and its ledger."""

    def __init__(self, gateway: Gateway, claude: Scripted, chat: Scripted) -> None:
        self.app = gateway.app
        self.claude = claude
        self.chat = chat
        self.entries: list[Entry] = []

    async def ask(self, model: str = "chat", **more: Any) -> Told:
        return await ask(self.app, {"model": model, "messages": MESSAGES, **more})


@asynccontextmanager
async def house(
    *targets: str,
    chat_fails: bool = False,
    others: dict[str, Any] | None = None,
    **more: Any,
) -> AsyncIterator[House]:
    """Targets of the model `chat`, in their order: of "claude", "chat", "dead" and `others`."""

    async def claude(_number: int, _request: bytes, writer: Any) -> None:
        writer.write(reply(200, _ANSWER))

    async def chat(_number: int, _request: bytes, writer: Any) -> None:
        writer.write(reply(200, _CHAT))

    entries: list[Entry] = []
    async with served(claude) as one, served(fails(500) if chat_fails else chat) as two:
        providers = {
            "claude": {"kind": "anthropic", "base_url": str(one.origin), "api_key": ["k"]},
            "chat": {"base_url": f"{two.origin}/v1", "dialect": "openai-chat", "api_key": ["k"]},
            "dead": {"base_url": f"{NOWHERE}/v1", "dialect": "openai-chat", "api_key": ["k"]},
            **(others or {}),
        }
        settings = {
            "providers": providers,
            "models": {"chat": [f"{name}/m" for name in targets]},
            "retries": {"same_target": 1},
            **more,
        }
        built = gateway(settings, entries)
        found = House(built, one, two)
        found.entries = entries
        yield found
        built.close()


@pytest.mark.parametrize("more", HINTS)
async def test_a_live_target_that_ignores_a_hint_answers_if_the_first_is_dead(
    more: dict[str, Any],
) -> None:
    async with house("dead", "claude") as found:
        told = await found.ask(**more)
        assert told.status == 200 and told.headers["x-headrace-target"] == "claude/m"
        assert told.headers["x-ignored-params"]


async def test_what_was_ignored_is_in_the_header_the_ledger_and_the_log() -> None:
    async with house("claude") as found:
        told = await found.ask(seed=1, metadata={"a": "b"})
        assert told.headers["x-ignored-params"] == "seed, metadata"
        (entry,) = found.entries
        assert entry.ignored == ("seed", "metadata")
        assert fields_of(entry)["ignored"] == "seed, metadata"


async def test_of_a_model_a_target_that_ignores_hints_comes_after_those_that_do_not() -> None:
    async with house("claude", "chat") as found:
        assert (await found.ask()).headers["x-headrace-target"] == "claude/m"
        told = await found.ask(seed=1)
        assert told.headers["x-headrace-target"] == "chat/m"
        assert "x-ignored-params" not in told.headers
    async with house("claude", "chat", chat_fails=True) as found:
        told = await found.ask(seed=1)
        assert told.headers["x-headrace-target"] == "claude/m"
        assert told.headers["x-headrace-attempts"] == "2"


async def test_another_model_is_no_reason_to_put_off_the_requested_one() -> None:
    models = {"chat": {"targets": ["claude/m"], "fallbacks": ["other"]}, "other": "chat/m"}
    async with house(models=models) as found:
        told = await found.ask(seed=1)
        assert told.headers["x-headrace-target"] == "claude/m"
        told = await found.ask(models=["other"], seed=1)
        assert told.headers["x-headrace-target"] == "claude/m"


async def test_a_target_that_would_change_the_meaning_is_skipped_and_named_everywhere() -> None:
    async with house("dead", "claude") as found:
        told = await found.ask(n=2)
        why = "claude/m: it does not support n; omit it"
        message = told.json["error"]["message"]
        assert told.status == 502 and "dead/m: network" in message and why in message
        (entry,) = found.entries
        assert entry.skipped == (why,) and why in entry.error
        assert fields_of(entry)["skipped"] == why
        assert not found.claude.requests


async def test_a_target_that_was_skipped_is_in_the_line_of_an_answer_too() -> None:
    async with house("claude", "chat") as found:
        assert (await found.ask(n=2)).status == 200
        assert found.entries[0].skipped == ("claude/m: it does not support n; omit it",)


async def test_if_all_are_skipped_the_client_is_told_what_to_omit() -> None:
    async with house("claude") as found:
        told = await found.ask(n=2, logit_bias={"1": 5})
        message = told.json["error"]["message"]
        assert told.status == 400 and "it does not support logit_bias, n; omit them" in message
        assert "drop_unsupported" not in message and "gateway's" not in message


@pytest.mark.parametrize("more", HINTS)
async def test_the_strict_ask_no_target_that_ignores_anything(more: dict[str, Any]) -> None:
    async with house("dead", "claude", unsupported="refuse") as found:
        told = await found.ask(**more)
        assert told.status == 502 and "claude/m: it does not support" in told.body.decode()
    async with house("dead", "claude") as found:
        told = await found.ask(**more, provider={"require_parameters": True})
        assert told.status == 502
        assert "provider.require_parameters is true" in told.json["error"]["message"]


async def test_everything_may_be_dropped_but_not_against_the_clients_will() -> None:
    async with house("claude", unsupported="drop") as found:
        told = await found.ask(n=2, seed=1)
        assert told.status == 200 and told.headers["x-ignored-params"] == "n, seed"
        told = await found.ask(n=2, provider={"require_parameters": True})
        assert told.status == 400


async def test_no_ops_are_neither_ignored_nor_refused() -> None:
    async with house("claude", unsupported="refuse") as found:
        told = await found.ask(frequency_penalty=0, presence_penalty=0.0, n=1, logprobs=False)
        assert told.status == 200 and "x-ignored-params" not in told.headers


async def test_a_target_that_cannot_take_the_content_is_passed_by() -> None:
    """Anthropic's API has no sound."""
    sound = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    messages = [{"role": "user", "content": [sound]}]
    async with house("claude", "chat") as found:
        told = await found.ask(messages=messages)
        assert told.status == 200 and told.headers["x-headrace-target"] == "chat/m"
        assert "audio" in found.entries[0].skipped[0]
    async with house("claude") as found:
        told = await found.ask(messages=messages)
        error = told.json["error"]
        assert told.status == 400 and error["param"] == "messages"
        assert error["message"].startswith("messages: this provider does not accept audio")


async def test_system_text_at_the_head_of_input_is_carried_and_not_refused() -> None:
    body = {
        "model": "chat",
        "input": [
            {"role": "developer", "content": "Answer in rhymes."},
            {"role": "user", "content": "Hi"},
        ],
    }
    async with house("claude", unsupported="refuse") as found:
        told = await ask(found.app, body, path="/v1/responses")
        assert told.status == 200 and "x-ignored-params" not in told.headers
        sent = json.loads(found.claude.requests[0].partition(b"\r\n\r\n")[2])
        assert sent["system"] == "Answer in rhymes."


async def test_a_budget_of_thoughts_that_becomes_an_effort_is_not_refused() -> None:
    body = {
        "model": "chat", "max_tokens": 20_000, "messages": MESSAGES,
        "thinking": {"type": "enabled", "budget_tokens": 10_000},
    }  # fmt: skip
    providers = {
        "chat": {"kind": "openai", "base_url": f"{NOWHERE}/v1", "api_key": ["k"]},
    }
    built = gateway(
        {
            "providers": providers, "models": {"chat": "chat/gpt-5"}, "unsupported": "refuse",
            "retries": {"attempts": 1},
        },
        [],
    )  # fmt: skip
    told = await ask(built.app, body, path="/v1/messages")
    assert told.status == 502, "it was tried"
    built.close()


async def test_a_body_without_messages_is_told_so() -> None:
    async with house("claude") as found:
        told = await ask(found.app, {"model": "chat"})
        assert told.json["error"]["message"] == "messages: this field is required"


async def test_the_former_setting_still_works() -> None:
    async with house("claude", drop_unsupported=True) as found:
        assert (await found.ask(n=2)).headers["x-ignored-params"] == "n"
    async with house("claude", drop_unsupported=False) as found:
        assert (await found.ask(n=2)).status == 400


async def test_a_client_that_reads_no_names_learns_what_it_can_change() -> None:
    async with house("dead", "claude", errors={"detail": "none"}) as found:
        message = (await found.ask(n=2)).json["error"]["message"]
        assert "a target was skipped: it does not support n; omit it" in message
        assert "claude" not in message and "dead" not in message and "127.0.0.1" not in message
    async with house("dead", "claude", errors={"detail": "names"}) as found:
        message = (await found.ask(n=2)).json["error"]["message"]
        assert "claude/m: it does not support n; omit it" in message and "127.0.0.1" not in message


async def test_targets_that_fallbacks_replace_are_named() -> None:
    """One that was not tried yet, and one that was put off as it ignores a hint."""
    too_long = fails(400, "This model's maximum context length is 10 tokens")
    models = {
        "chat": {
            "targets": ["claude/m", "small/m", "dead/m"],
            "strategy": "ordered",
            "context_fallbacks": ["large"],
        },
        "large": "chat/m",
    }
    async with served(too_long) as small:
        own = {"base_url": f"{small.origin}/v1", "dialect": "openai-chat", "api_key": ["k"]}
        async with house(others={"small": own}, models=models) as found:
            told = await found.ask(seed=1)
            assert told.status == 200 and told.headers["x-headrace-target"] == "chat/m"
            why = "the fallbacks of chat replaced it"
            assert found.entries[0].skipped == (f"dead/m: {why}", f"claude/m: {why}")


@pytest.mark.parametrize(
    ("field", "value", "advice"),
    [
        ("background", True, "it answers only while the client waits; omit it"),
        ("prompt", {"id": "pmpt_1"}, "it has no stored prompts; send the prompt's text"),
    ],
)
async def test_a_field_that_needs_a_store_is_refused_with_what_helps(
    field: str, value: Any, advice: str
) -> None:
    async with house("claude") as found:
        body = {"model": "chat", "input": "Hi", field: value}
        told = await ask(found.app, body, path="/v1/responses")
        message = told.json["error"]["message"]
        assert told.status == 400 and f"{field}: {advice}" in message
        assert "whole conversation" not in message
