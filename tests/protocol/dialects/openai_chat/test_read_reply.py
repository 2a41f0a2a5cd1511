"""Whole replies of servers, and what clients get of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from headrace.protocol.dialects.openai_chat import CLIENT
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Part,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
)
from headrace.protocol.neutral.reply import ChatReply, Choice
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.openai_chat.samples import GENERIC, read, read_body, reply_body

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def only(body: dict[str, Any]) -> Choice:
    """The one choice of a reply."""
    (choice,) = read_body(body).choices
    return choice


def rewritten(body: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """What a client gets of a reply."""
    answer: dict[str, Any] = json.loads(CLIENT.write_reply(read_body(body), read(**fields)))
    ChatCompletion.model_validate(answer)
    return answer


def test_the_frame() -> None:
    body = reply_body(system_fingerprint="fp", service_tier="flex", usage={"prompt_tokens": 3})
    reply = read_body(body)
    assert (reply.dialect, reply.id, reply.model) == ("openai-chat", "r1", "m")
    assert (reply.created_s, reply.service_tier) == (17, "flex")
    assert reply.extra == {"system_fingerprint": "fp"}
    assert reply.usage == TokenUsage(input_tokens=3)
    assert read_body(reply_body()).usage is None


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ({"content": "a"}, (Text(text="a"),)),
        ({"content": None}, ()),
        ({"content": ""}, ()),
        ({"content": [{"type": "text", "text": "a"}]}, (Text(text="a"),)),
        ({"content": None, "refusal": "No."}, (Refusal("No."),)),
        ({"reasoning_content": "t"}, (Thinking(text="t"), Text(text="Hello"))),
        ({"reasoning": "t"}, (Thinking(text="t"), Text(text="Hello"))),
        (
            {
                "reasoning": "t",
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "t", "format": None, "index": 0}
                ],
            },
            (Thinking(text="t"), Text(text="Hello")),
        ),
        (
            {"annotations": [{"type": "url_citation", "url_citation": {}}]},
            (
                Text(
                    text="Hello",
                    extra={"annotations": [{"type": "url_citation", "url_citation": {}}]},
                ),
            ),
        ),
        (
            {"images": [{"image_url": {"url": "data:image/png;base64,AAAA"}}]},
            (Text(text="Hello"), Media(kind="image", mime="image/png", data="AAAA")),
        ),
        (
            {"content": None, "audio": {"id": "a", "data": "AA==", "transcript": "t"}},
            (Media(kind="audio", data="AA==", extra={"id": "a", "transcript": "t"}),),
        ),
        (
            {"extra_content": {"google": {"thought_signature": "G"}}},
            (Text(text="Hello", signature=Signature("gemini", "G")),),
        ),
        (
            {"tool_calls": [{"type": "custom", "id": "c", "custom": {"name": "n"}}]},
            (
                Text(text="Hello"),
                Opaque("openai-chat", {"type": "custom", "id": "c", "custom": {"name": "n"}}),
            ),
        ),
    ],
)
def test_parts(message: dict[str, Any], parts: tuple[Part, ...]) -> None:
    assert only(reply_body(message)).parts == parts


def test_tool_calls_of_sloppy_servers() -> None:
    calls = [
        {"id": "", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}},
        {"function": {"name": "f", "arguments": None}},
        {"function": {"arguments": "{}"}},
        "nonsense",
    ]
    choice = only(reply_body({"content": None, "tool_calls": calls}))
    assert choice.finish == "tool_calls"
    first, second = choice.parts
    assert isinstance(first, ToolCall) and isinstance(second, ToolCall)
    assert (first.name, first.arguments, second.arguments) == ("f", '{"a":1}', "{}")
    assert first.id and second.id and first.id != second.id
    assert only(reply_body({"content": None, "tool_calls": calls})).parts == choice.parts


@pytest.mark.parametrize(
    ("word", "called", "finish", "again"),
    [
        ("stop", False, "stop", "stop"),
        ("length", False, "length", "length"),
        ("length", True, "length", "length"),
        ("tool_calls", True, "tool_calls", "tool_calls"),
        ("function_call", True, "tool_calls", "tool_calls"),
        ("stop", True, "tool_calls", "stop"),  # OpenAI, where one function was asked for
        ("content_filter", False, "content_filter", "content_filter"),
        ("", False, "stop", "stop"),
        ("", True, "tool_calls", "tool_calls"),
        (None, True, "tool_calls", "tool_calls"),
        ("STOP", False, "stop", "stop"),
        ("eos", False, "stop", "stop"),
        ("max_tokens", False, "length", "length"),
        ("sensitive", False, "content_filter", "content_filter"),
    ],
)
def test_finish_reasons(word: str | None, called: bool, finish: str, again: str) -> None:
    message = {"content": None, "tool_calls": [CALL]} if called else {}
    body = reply_body(message, choice={"finish_reason": word})
    assert only(body).finish == finish
    assert rewritten(body)["choices"][0]["finish_reason"] == again


def test_a_stop_sequence_that_vllm_names() -> None:
    assert only(reply_body(choice={"stop_reason": "END"})).stop_sequence == "END"
    choice = only(reply_body(choice={"stop_reason": 128001}))
    assert choice.stop_sequence is None and choice.extra == {"stop_reason": 128001}


def test_a_client_sees_what_a_server_said() -> None:
    logprobs = [{"token": "H", "logprob": -0.5, "bytes": [72], "top_logprobs": []}]
    body = reply_body(
        {
            "refusal": None,
            "reasoning_content": "t",
            "tool_calls": [CALL],
            "annotations": [
                {
                    "type": "url_citation",
                    "url_citation": {"start_index": 0, "end_index": 1, "url": "u", "title": "t"},
                }
            ],
            "executed_tools": [{"index": 0}],
        },
        choice={
            "finish_reason": "tool_calls",
            "logprobs": {"content": logprobs, "refusal": None},
            "native_finish_reason": "x",
            "content_filter_results": {"hate": {"filtered": False}},
        },
        usage={
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 1, "audio_tokens": 0},
            "queue_time": 0.5,
            "cost": 0.25,
        },
        service_tier="default",
        system_fingerprint="fp",
        provider="P",
    )
    assert rewritten(body) == body


def test_json_that_is_nearly_some() -> None:
    body = json.dumps(reply_body({"content": "HALF"}, choice={"logprobs": {"content": [{"a": 1}]}}))
    half = body.replace("HALF", "a\\ud83d").replace('{"a": 1}', '{"logprob": -Infinity}')
    choice = GENERIC.read_reply(half.encode()).choices[0]
    assert choice.parts == (Text(text="a\ufffd"),)
    assert choice.logprobs == [{"logprob": None}]
    pair = body.replace("HALF", "\\ud83d\\ude42")
    assert GENERIC.read_reply(pair.encode()).choices[0].parts == (Text(text="🙂"),)


def test_choices_in_their_own_order() -> None:
    body = reply_body()
    second = {**body["choices"][0], "index": 1, "message": {"role": "assistant", "content": "B"}}
    reply = read_body({**body, "choices": [second, body["choices"][0]]})
    assert [(one.index, one.parts) for one in reply.choices] == [
        (1, (Text(text="B"),)),
        (0, (Text(text="Hello"),)),
    ]


def test_an_older_client_gets_a_function_call() -> None:
    body = reply_body({"content": None, "tool_calls": [CALL]}, choice={"finish_reason": "stop"})
    function = {"name": "look", "parameters": {}}
    told = rewritten({**body}, functions=[function])["choices"][0]
    assert told["message"]["function_call"] == CALL["function"]
    assert "tool_calls" not in told["message"]
    body["choices"][0]["finish_reason"] = "tool_calls"
    assert rewritten(body, functions=[function])["choices"][0]["finish_reason"] == "function_call"
    # And an older server's is a tool call.
    older = reply_body(
        {"content": None, "function_call": CALL["function"]},
        choice={"finish_reason": "function_call"},
    )
    message = rewritten(older)["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == CALL["function"]
    assert message["tool_calls"][0]["id"]


def test_what_other_vendors_signed() -> None:
    reply = ChatReply(
        dialect="anthropic",
        id="msg_1",
        model="claude",
        choices=(
            Choice(
                parts=(
                    Thinking(text="a", signature=Signature("anthropic", "S")),
                    Thinking(text="", signature=Signature("anthropic", "R"), redacted=True),
                    Text(text="b"),
                    ToolCall(id="c", name="f", arguments="{}", signature=Signature("gemini", "G")),
                    Media(kind="image", mime="image/png", data="AAAA"),
                    Opaque("anthropic", {"type": "zz"}),
                ),
                finish="pause",
            ),
        ),
    )
    answer = json.loads(CLIENT.write_reply(reply, read()))
    ChatCompletion.model_validate(answer)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert answer["created"] == 0 and "usage" not in answer
    message = choice["message"]
    assert message["content"] == "b"
    assert message["reasoning_content"] == "a"
    assert message["images"][0]["image_url"] == {"url": "data:image/png;base64,AAAA"}
    # The client sends its message back: every part is there again, its signature too.
    again = read(messages=[{"role": "user", "content": "x"}, message]).messages[1]
    assert again.parts[:4] == reply.choices[0].parts[:4]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", None),
        (b"<html>", None),
        (b"[]", None),
        (b"{}", None),
        (b'{"choices": []}', None),
        (b'{"choices": [3]}', None),
        (b'{"choices": [{"message": 3}]}', None),
        (b'{"error": {"message": "m", "code": 429}}', "rate_limit"),
        (b'{"error": "m"}', "server"),
        (b'{"object": "error", "message": "m", "code": 400}', "bad_request"),
        (b'{"detail": "m"}', "server"),
        (b'{"choices": [{"error": {"message": "m", "code": 502}}]}', "server"),
        (
            b'{"choices": [{"message": {"content": "a"}, "finish_reason": "error"}]}',
            "server",
        ),
        (
            b'{"choices": [{"message": {}, "finish_reason": "insufficient_system_resource"}]}',
            "overloaded",
        ),
    ],
)
def test_what_is_no_reply(body: bytes, kind: str | None) -> None:
    with pytest.raises(DamagedReplyError) as caught:
        GENERIC.read_reply(body)
    failure = caught.value.failure
    assert (failure.kind if failure is not None else None) == kind
