"""What is billed beside tokens has no price in a list of tokens: its cost is unknown."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.building.prices import stated_price
from headrace.gateway.serving.bill import cost_nusd, standard_nusd
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.target import PriceSettings
from headrace.protocol.dialects.anthropic import CLIENT
from headrace.protocol.dialects.anthropic import PROVIDER as ANTHROPIC
from headrace.protocol.dialects.anthropic.reply.usage import read_usage
from headrace.protocol.dialects.openai_chat.reply.usage import read_usage as read_chat
from headrace.protocol.dialects.openai_responses import PROVIDER
from headrace.protocol.dialects.openai_responses.reply.usage import usage_of
from headrace.protocol.neutral.event import ReplyUsage
from headrace.protocol.neutral.usage import TokenUsage
from tests.gateway.accounts.parts import standing
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import END, STREAM_HEAD, Answer, body_of, framed, reply
from tests.gateway.test_accounts_of_the_file import KEY, accounts
from tests.gateway.upstream.scripted import served
from tests.protocol.dialects.openai_responses.samples import read, response, sse
from tests.protocol.neutral.streams import read_stream

PLAIN = {"input_tokens": 10, "output_tokens": 5}
ORDINARY: list[dict[str, Any]] = [
    {},
    {"speed": "standard"},
    {"speed": None, "inference_geo": None, "server_tool_use": None, "iterations": None},
    {"inference_geo": "not_available"},
    {"inference_geo": "global"},
    {"server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 3}},
    {"iterations": []},
    {"iterations": [{"type": "message", **PLAIN}]},
]
BEYOND: list[dict[str, Any]] = [
    {"speed": "fast"},
    {"inference_geo": "us"},
    {"server_tool_use": {"web_search_requests": 5}},
    {"iterations": [{"type": "message", **PLAIN}, {"type": "advisor_message", **PLAIN}]},
]


def anthropic(usage: dict[str, Any]) -> Answer:
    """Whole or streamed; the stream tells all of it at its end alone."""
    message = {
        "id": "m", "type": "message", "role": "assistant", "model": "c", "stop_sequence": None,
        "stop_reason": "end_turn", "content": [{"type": "text", "text": "hi"}],
    }  # fmt: skip
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "usage": PLAIN}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]

    async def answer(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        if not body_of(request).get("stream"):
            writer.write(reply(200, {**message, "usage": usage}))
            return
        writer.write(STREAM_HEAD)
        for one in events:
            said = f"event: {one['type']}\ndata: {json.dumps(one)}\n\n"
            writer.write(framed(said.encode()))
        writer.write(END)

    return answer


async def billed(more: dict[str, Any], stream: bool) -> tuple[int | None, int]:
    """By the ledger, and of the budget."""
    async with served(anthropic(PLAIN | more)) as provider:
        settings: dict[str, Any] = {
            "access": {"keys": {"k": {"key": "env:KEY", "budgets": [{"usd": 1, "per": "1d"}]}}},
            "providers": {
                "a": {"kind": "anthropic", "base_url": str(provider.origin), "api_key": "k"}
            },
            "models": {"m": [{"model": "a/c", "price": {"input": 1, "output": 2}}]},
        }
        book = await accounts(settings)
        entries: list[Entry] = []
        messages = [{"role": "user", "content": "Hi"}]
        told = await ask(
            gateway(settings, entries, accounts=book).app,
            {"model": "m", "max_tokens": 10_000, "stream": stream, "messages": messages},
            path="/v1/messages", headers={"authorization": f"Bearer {KEY}"},
        )  # fmt: skip
    assert told.status == 200
    ((used, held),) = await standing(book, "key", "k")
    assert held == 0
    return entries[0].cost_nusd, used


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("more", BEYOND)
async def test_its_cost_is_unknown_and_the_budget_keeps_what_was_held(
    more: dict[str, Any], stream: bool
) -> None:
    cost, used = await billed(more, stream)
    assert cost is None and used >= 20_000_000


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("more", ORDINARY)
async def test_ordinary_answers_cost_their_tokens(more: dict[str, Any], stream: bool) -> None:
    assert await billed(more, stream) == (20_000, 20_000)


def test_a_conversation_made_shorter_is_billed_beside_the_answer() -> None:
    split = {"ephemeral_5m_input_tokens": 7, "ephemeral_1h_input_tokens": 0}
    usage = {
        **PLAIN,
        "cache_read_input_tokens": 3,
        "iterations": [
            {"type": "compaction", "input_tokens": 100_000, "output_tokens": 3_000,
             "cache_creation_input_tokens": 7, "cache_creation": split},
            {"type": "message", **PLAIN},
        ],
    }  # fmt: skip
    assert read_usage(usage) == TokenUsage(
        input_tokens=100_010, output_tokens=3_005, cache_read_tokens=3, cache_write_tokens=7
    )


def test_one_made_shorter_is_counted_once_by_whoever_reads_it_anew() -> None:
    shorter = {"type": "compaction", "input_tokens": 100_000, "output_tokens": 3_000}
    advisor = {"type": "advisor_message", **PLAIN}
    usage = {**PLAIN, "iterations": [shorter, {"type": "message", **PLAIN}, advisor]}
    told = {
        "id": "m", "type": "message", "role": "assistant", "model": "c", "stop_sequence": None,
        "stop_reason": "end_turn", "content": [{"type": "text", "text": "hi"}], "usage": usage,
    }  # fmt: skip
    asked = {"model": "c", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    call = CLIENT.read_call(json.dumps(asked).encode(), "/v1/messages", {})
    anew = CLIENT.write_reply(ANTHROPIC.read_reply(json.dumps(told).encode()), call)
    again = read_usage(json.loads(anew)["usage"])
    assert again == read_usage(usage)
    assert again is not None and again.input_tokens == 100_010 and again.is_incomplete


@pytest.mark.parametrize(
    ("environment", "is_billed"),
    [({"type": "container_reference", "container_id": "c"}, True), ({"type": "local"}, False)],
)
def test_a_shell_is_billed_in_a_container_of_theirs(
    environment: dict[str, Any], is_billed: bool
) -> None:
    output = [{"type": "shell_call", "id": "s", "environment": environment}]
    usage = usage_of({"output": output, "usage": {**PLAIN, "total_tokens": 15}})
    assert usage is not None and usage.is_incomplete == is_billed


@pytest.mark.parametrize("value", [None, 3, [3], [{}], {"type": "compaction"}])
def test_iterations_that_are_none_do_no_harm(value: object) -> None:
    usage = read_usage({**PLAIN, "iterations": value})
    assert usage is not None and usage.completion_tokens == 5


@pytest.mark.parametrize(
    ("item", "is_incomplete"),
    [
        ("web_search_call", True),
        ("file_search_call", True),
        ("code_interpreter_call", True),
        ("image_generation_call", True),
        ("message", False),
        ("function_call", False),
        ("reasoning", False),
    ],
)
def test_calls_that_openai_bills_beside_tokens(item: str, is_incomplete: bool) -> None:
    usage = usage_of({"output": [{"type": item}], "usage": PLAIN})
    assert usage is not None and usage.is_incomplete == is_incomplete


@pytest.mark.parametrize("kind", ["web_search_call", "reasoning"])
def test_a_call_that_is_billed_counts_where_the_end_of_a_stream_does_not_tell_of_it(
    kind: str,
) -> None:
    item = {"type": kind, "id": "i", "status": "completed"}
    found = read_stream(
        PROVIDER.stream_reader(read()),
        sse(
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response(usage=PLAIN)},
        ),
    )
    (counted,) = [one for one in found if isinstance(one, ReplyUsage)]
    assert counted.usage.is_incomplete == (kind == "web_search_call")


@pytest.mark.parametrize("name", ["num_search_queries", "num_sources_used"])
def test_searches_of_others(name: str) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    assert read_chat({**usage, name: 0}) == read_chat(usage)
    found = read_chat({**usage, name: 2})
    assert found is not None and found.is_incomplete


def test_what_the_provider_says_or_what_is_free_is_known_all_the_same() -> None:
    used = TokenUsage(input_tokens=10, output_tokens=5, is_incomplete=True)
    price = stated_price(PriceSettings(input=1, output=2))
    assert cost_nusd(used, price) is None
    assert standard_nusd(used, price) == 20_000
    told = TokenUsage(cost_nusd=7, is_incomplete=True)
    assert cost_nusd(told, price) == 7
    assert cost_nusd(used, stated_price(PriceSettings(input=0, output=0))) == 0
