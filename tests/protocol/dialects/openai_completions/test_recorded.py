"""Recorded exchanges of OpenAI's completions, and of engines that have the API.

What is expected is computed from the raw JSON here, without the readers.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import pytest
from openai.types import Completion

from headrace.errors import RequestError
from headrace.protocol.dialects.openai_completions import CLIENT, REPLIES, beyond_chat
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import collected, replayed
from headrace.protocol.neutral.event import ReplyEnd
from headrace.protocol.neutral.part import Text
from headrace.protocol.neutral.reply import ChatReply
from headrace.protocol.sse import SSEReader
from tests.protocol.neutral.cassettes import Exchange, exchanges
from tests.protocol.neutral.streams import assert_grammar, read_stream

pytestmark = pytest.mark.usefixtures("recordings")

ARCHIVES = ("envoy-ai-gateway", "openllmetry.tar.gz")
CALL = ChatCall(dialect=CLIENT.name, model="m", messages=(), stream=True, stream_usage=True)


@cache
def recorded(archive: str, *, stream: bool) -> list[Exchange]:
    """Of POST /v1/completions, those that went well."""
    return [
        one
        for one in exchanges(archive, holds="/v1/completions")
        if urlsplit(one.path).path == "/v1/completions"
        and one.status == 200
        and one.streamed == stream
        and "writer" not in one.host  # another dialect of the same path
    ]


def told(body: dict[str, Any], into: dict[int, tuple[str, str]]) -> None:
    """Text and finish of each choice; some servers leave out the index."""
    for at, choice in enumerate(body["choices"]):
        index = choice.get("index", at)
        text, finish = into.get(index, ("", ""))
        into[index] = (text + choice.get("text", ""), choice.get("finish_reason") or finish)


def read(reply: ChatReply) -> dict[int, tuple[str, str]]:
    """The same of what was read."""
    return {
        one.index: ("".join(p.text for p in one.parts if isinstance(p, Text)), str(one.finish))
        for one in reply.choices
    }


@pytest.mark.parametrize("archive", ARCHIVES)
def test_whole_replies(archive: str) -> None:
    found = recorded(archive, stream=False)
    assert len(found) >= 4
    for exchange in found:
        body = json.loads(exchange.body)
        expected: dict[int, tuple[str, str]] = {}
        told(body, expected)
        reply = REPLIES.read_reply(exchange.body)
        assert read(reply) == expected, exchange.at
        assert reply.usage is not None
        assert reply.usage.prompt_tokens == body["usage"]["prompt_tokens"]
        assert reply.usage.completion_tokens == body["usage"]["completion_tokens"]
        again = json.loads(CLIENT.write_reply(reply, CALL))
        Completion.model_validate(again)
        assert {n: again[n] for n in ("id", "created", "model")} == {
            n: body[n] for n in ("id", "created", "model")
        }
        assert again["choices"] == [
            {
                "index": at,
                **{name: one.get(name) for name in ("text", "logprobs")},
                "finish_reason": expected[at][1],
            }
            for at, one in enumerate(body["choices"])
        ]


@pytest.mark.parametrize("archive", ARCHIVES)
def test_streams(archive: str) -> None:
    found = recorded(archive, stream=True)
    assert len(found) >= 2
    for exchange in found:
        expected: dict[int, tuple[str, str]] = {}
        usage = None
        for event in SSEReader().feed(exchange.body + b"\n\n"):
            if event.data != "[DONE]":
                chunk = json.loads(event.data)
                told(chunk, expected)
                usage = chunk.get("usage") or usage
        events = read_stream(REPLIES.stream_reader(CALL), exchange.body)
        assert_grammar(events)
        assert isinstance(events[-1], ReplyEnd), exchange.at
        reply = collected(REPLIES.name, events)
        assert read(reply) == expected
        assert (reply.usage is None) == (usage is None)
        if usage is not None and reply.usage is not None:
            assert reply.usage.completion_tokens == usage["completion_tokens"]
        # What was read is told to a client as the same answer.
        writer = CLIENT.stream_writer(CALL)
        written = b"".join(writer.write(one) for one in replayed(reply))
        assert written.endswith(b"data: [DONE]\n\n")
        again = collected(REPLIES.name, REPLIES.stream_reader(CALL).feed(written))
        assert read(again) == expected and again.usage == reply.usage


@pytest.mark.parametrize("archive", ARCHIVES)
def test_requests(archive: str) -> None:
    """One text is a turn of a chat; token ids, several prompts and suffixes are not."""
    for stream in (False, True):
        for exchange in recorded(archive, stream=stream):
            body = json.loads(exchange.request)
            prompt = body["prompt"]
            single = isinstance(prompt, list) and len(prompt) == 1
            text = prompt[0] if single else prompt
            call = CLIENT.read_call(exchange.request, "/v1/completions", {})
            why = beyond_chat(call)
            if isinstance(text, str) and not body.get("suffix"):
                assert why is None and call.messages[0].parts == (Text(text=text),), exchange.at
            else:
                assert why is not None and why[0] in ("prompt", "suffix"), exchange.at


def test_a_recorded_refusal() -> None:
    found = [
        one
        for one in exchanges("envoy-ai-gateway", holds="/v1/completions")
        if one.path == "/v1/completions" and one.status >= 400
    ]
    kinds = {one.status: REPLIES.read_failure(one.status, one.headers, one.body) for one in found}
    assert {status: one.kind for status, one in kinds.items()} == {
        400: "bad_request",
        404: "not_found",
    }


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"prompt": [1, 2, 3]}, "prompt"),
        ({"prompt": [[1, 2], [3]]}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({}, "prompt"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "suffix": "z"}, "suffix"),
        ({"prompt": "a", "logprobs": 0}, "logprobs"),
        ({"prompt": "a", "best_of": 3, "n": 2}, "best_of"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
    ],
)
def test_what_no_chat_can_be_told(more: dict[str, Any], field: str) -> None:
    call = CLIENT.read_call(json.dumps({"model": "m", **more}).encode(), "", {})
    why = beyond_chat(call)
    assert why is not None and why[0] == field and "only chat" in why[1]


@pytest.mark.parametrize("more", [{"prompt": 7}, {"prompt": "a", "logprobs": "all"}, {"n": 200}])
def test_bad_fields_are_named(more: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        CLIENT.read_call(json.dumps({"model": "m", **more}).encode(), "", {})
    assert caught.value.param in more
