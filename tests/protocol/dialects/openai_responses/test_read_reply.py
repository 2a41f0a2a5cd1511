from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.dialects.openai_responses import CLIENT, PROVIDER
from headrace.protocol.dialects.openai_responses.reply.usage import (
    read_usage,
    usage_extra,
    write_usage,
)
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.part import Opaque, Refusal, Signature, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.openai_responses.samples import (
    function_call,
    message,
    read,
    response,
)


def reply(**fields: Any) -> ChatReply:
    return PROVIDER.read_reply(json.dumps(response(**fields)).encode())


def test_text_and_calls() -> None:
    got = reply(output=[message("Hi"), function_call("f", "{}")], service_tier="default")
    (choice,) = got.choices
    assert choice.parts == (
        Text(text="Hi", extra={"item_id": "msg_1"}),
        ToolCall(id="call_fc_1", name="f", arguments="{}", extra={"item_id": "fc_1"}),
    )
    assert choice.finish == "tool_calls"
    assert (got.id, got.model, got.created_s) == ("resp_1", "gpt-5", 1700000000)
    assert got.service_tier == "default" and got.usage is None


def test_reasoning() -> None:
    item = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
        "content": [{"type": "reasoning_text", "text": "c"}],
        "encrypted_content": "gAAA",
    }
    empty = {"id": "rs_2", "type": "reasoning", "summary": []}
    assert reply(output=[item, empty]).choices[0].parts == (
        Thinking(text="a", summary=True, id="rs_1"),
        Thinking(text="b", summary=True, id="rs_1"),
        Thinking(text="c", id="rs_1"),
        Thinking(text="", redacted=True, signature=Signature("openai", "gAAA"), id="rs_1"),
        Opaque("openai-responses", empty),
    )


def test_refusals_annotations_and_items_of_openai_alone() -> None:
    citation = {"type": "url_citation", "url": "https://x", "title": "t"}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    text = message("Hi", phase="final_answer")
    text["content"][0]["annotations"] = [citation]
    text["content"].append({"type": "refusal", "refusal": "No."})
    text["content"].append({"type": "future", "x": 1})
    assert reply(output=[search, text]).choices[0].parts == (
        Opaque("openai-responses", search),
        Text(
            text="Hi",
            citations=(Citation(url="https://x", title="t"),),
            extra={"item_id": "msg_1", "phase": "final_answer", "annotations": [citation]},
        ),
        Refusal("No."),
        Opaque("openai-responses", {"content_part": {"type": "future", "x": 1}}),
    )


def test_logprobs_are_those_of_chat_completions() -> None:
    text = message("Hi")
    one = {"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": []}
    text["content"][0]["logprobs"] = [one]
    assert reply(output=[text]).choices[0].logprobs == [one]


@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "content_filter",
        ),
        ({"status": "incomplete", "incomplete_details": {"reason": "steered"}}, "stop"),
        ({"status": "incomplete"}, "length"),
        ({"status": "queued"}, None),
        ({"status": "in_progress"}, None),
        ({"output": [function_call("f", "{}")]}, "tool_calls"),
    ],
)
def test_finish(fields: dict[str, Any], finish: str | None) -> None:
    assert reply(**fields).choices[0].finish == finish


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
                "output_tokens": 50,
                "output_tokens_details": {"reasoning_tokens": 30},
                "total_tokens": 150,
            },
            TokenUsage(
                input_tokens=30,
                cache_read_tokens=60,
                cache_write_tokens=10,
                output_tokens=20,
                reasoning_tokens=30,
            ),
        ),
        (
            {"input_tokens": 1, "output_tokens": 2.0, "cost": 0.0000113},
            TokenUsage(input_tokens=1, output_tokens=2, cost_nusd=11300),
        ),
        (
            {
                "input_tokens": 5,
                "input_tokens_details": {"cached_tokens": 10**9},
                "output_tokens": 5,
                "output_tokens_details": {"reasoning_tokens": -3},
            },
            TokenUsage(cache_read_tokens=5, output_tokens=5),
        ),
        (None, None),
        ({}, None),
        ({"input_tokens": "1", "output_tokens": 1}, None),
        ({"input_tokens": -1, "output_tokens": 1}, None),
        ({"input_tokens": 10**40, "output_tokens": 1}, None),
        ([], None),
    ],
)
def test_usage(usage: Any, expected: TokenUsage | None) -> None:
    assert reply(usage=usage).usage == expected


def test_a_response_that_failed_says_why() -> None:
    error = {"code": "rate_limit_exceeded", "message": "slow down"}
    with pytest.raises(DamagedReplyError, match="slow down") as caught:
        reply(status="failed", error=error)
    assert caught.value.failure is not None
    assert caught.value.failure.kind == "rate_limit"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"{}",
        b'{"output": {}}',
        b'{"output": ' * 100_000,
        b'{"status":"cancelled","output":[]}',
        b'{"error":"no"}',
    ],
)
def test_what_is_no_response_is_damaged(body: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        PROVIDER.read_reply(body)


def test_a_reply_of_this_dialect_comes_out_as_it_went_in() -> None:
    text = message("Hi", phase="final_answer")
    text["content"].append({"type": "refusal", "refusal": "No."})
    whole = response(
        output=[
            {
                "id": "rs_1",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "a"}],
                "content": [{"type": "reasoning_text", "text": "c"}],
                "encrypted_content": "gAAA",
            },
            {"id": "rs_2", "type": "reasoning", "summary": []},
            {"id": "ws_1", "type": "web_search_call", "status": "completed"},
            text,
            message("Ho", id="msg_2"),
            function_call("f", "{}") | {"namespace": "n"},
        ],
        usage={
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 1},
            "total_tokens": 5,
            "is_byok": False,
        },
        service_tier="default",
        store=True,
        temperature=1.0,
        future={"a": 1},
        completed_at=1700000001,
    )
    got = PROVIDER.read_reply(json.dumps(whole).encode())
    again = json.loads(CLIENT.write_reply(got, read()))
    assert {name: again[name] for name in whole} == whole


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "id",
                    "content",
                    "text",
                    "summary",
                    "name",
                    "call_id",
                    "arguments",
                    "annotations",
                    "logprobs",
                    "encrypted_content",
                    "refusal",
                    "token",
                    "top_logprobs",
                    "role",
                    "reason",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
_TYPES = st.sampled_from(["message", "function_call", "reasoning", "x", None, 3])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    items=st.lists(
        st.tuples(_TYPES, st.dictionaries(st.sampled_from(["content", "summary", "id"]), _JSON)),
        max_size=3,
    ),
    usage=_JSON,
    details=_JSON,
)
def test_any_response_is_read_or_damaged(items: Any, usage: Any, details: Any) -> None:
    output = [{"type": kind, **fields} for kind, fields in items]
    body = response(output=output, usage=usage, incomplete_details=details, created_at=usage)
    try:
        got = PROVIDER.read_reply(json.dumps(body).encode())
    except DamagedReplyError:
        return
    json.loads(CLIENT.write_reply(got, read()))


def test_a_key_of_ones_own_costs_the_vendors_bill_too() -> None:
    usage = {
        "input_tokens": 1, "output_tokens": 1, "cost": 0.00001, "is_byok": True,
        "cost_details": {"upstream_inference_cost": 0.0003},
    }  # fmt: skip
    read = read_usage(usage)
    assert read is not None and read.cost_nusd == 310_000
    written = write_usage(read, usage_extra(usage))
    assert written["cost"] == 0.00001 and read_usage(written) == read


def test_costs_are_told_as_in_chats() -> None:
    usage: dict[str, Any] = {"input_tokens": 1, "output_tokens": 1}
    ticks = read_usage({**usage, "cost_in_usd_ticks": 25})
    assert ticks is not None and ticks.cost_nusd == 2
    told = {**usage, "cost": {"total_cost": 0.5, "currency": "USD"}}
    read = read_usage(told)
    assert read is not None and read.cost_nusd == 500_000_000
    assert write_usage(read, usage_extra(told))["cost"] == told["cost"]
