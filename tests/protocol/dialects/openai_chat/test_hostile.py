"""Bodies that nobody in their senses sends: errors of their kind and no others."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.protocol.dialects.openai_chat import CLIENT, PRESETS, OpenAIChatProvider
from headrace.protocol.neutral.dialect import DamagedReplyError
from tests.protocol.dialects.openai_chat.samples import GENERIC, OPENROUTER, read, sse
from tests.protocol.neutral.streams import assert_grammar, read_stream

_FEW = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        ["", "a", "text", "function", "stop", "tool_calls", "{}", "data:;base64,", "="]
    )
)


def _values(names: list[str]) -> st.SearchStrategy[Any]:
    """JSON whose objects have names that readers look for."""
    return st.recursive(
        _LEAVES,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names), inner, max_size=5)
        ),
        max_leaves=25,
    )


_MESSAGE_NAMES = [
    "role",
    "content",
    "type",
    "text",
    "image_url",
    "input_audio",
    "file",
    "url",
    "data",
    "tool_calls",
    "function",
    "function_call",
    "name",
    "arguments",
    "id",
    "index",
    "custom",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "format",
    "signature",
    "summary",
    "refusal",
    "audio",
    "images",
    "annotations",
    "extra_content",
    "google",
    "thought_signature",
    "transcript",
]
_REPLY_NAMES = [
    *_MESSAGE_NAMES,
    "choices",
    "message",
    "delta",
    "finish_reason",
    "logprobs",
    "usage",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cost",
    "prompt_tokens_details",
    "error",
    "code",
    "detail",
    "metadata",
    "x_groq",
    "created",
    "model",
    "stop_reason",
]
_CALL_NAMES = [
    *_MESSAGE_NAMES,
    "messages",
    "tools",
    "parameters",
    "tool_choice",
    "response_format",
    "json_schema",
    "stop",
    "stream_options",
    "reasoning",
    "thinking",
    "budget_tokens",
    "effort",
    "metadata",
    "logit_bias",
    "input",
]


@_FEW
@given(st.dictionaries(st.sampled_from(_CALL_NAMES), _values(_CALL_NAMES), max_size=6))
def test_requests(fields: dict[str, Any]) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": ""}], **fields})
    with contextlib.suppress(RequestError):
        call = CLIENT.read_call(body.encode(), "", {})
        for variant in ("openai", "openrouter", "cerebras"):
            OpenAIChatProvider(PRESETS[variant]).write_call(call, "m")
    with contextlib.suppress(RequestError):
        CLIENT.read_embedding_call(body.encode())


@pytest.mark.long
@_FEW
@given(st.lists(_values(_MESSAGE_NAMES).filter(lambda one: isinstance(one, dict)), max_size=3))
def test_messages(values: list[dict[str, Any]]) -> None:
    for role in ("system", "user", "assistant", "tool", "function"):
        messages = [{**one, "role": role} for one in values]
        with contextlib.suppress(RequestError):
            OPENROUTER.write_call(read(messages=messages), "m")


@_FEW
@given(_values(_REPLY_NAMES), st.lists(_values(_REPLY_NAMES), max_size=3))
def test_replies_and_errors(body: Any, choices: list[Any]) -> None:
    wrapped = {"choices": [{"index": 0, "message": one} for one in choices], "usage": body}
    for one in (body, wrapped, {"error": body}, {"choices": choices}):
        raw = json.dumps(one).encode()
        with contextlib.suppress(DamagedReplyError):
            CLIENT.write_reply(GENERIC.read_reply(raw), read())
        with contextlib.suppress(DamagedReplyError):
            GENERIC.read_embeddings((raw,))
        for status in (400, 429, 500):
            assert GENERIC.read_failure(status, {}, raw).message


@_FEW
@given(st.lists(_values(_REPLY_NAMES), max_size=4), st.booleans())
def test_streams(deltas: list[Any], done: bool) -> None:
    call = read(stream=True, stream_options={"include_usage": True})
    chunks = [
        {"id": "r", "choices": [{"index": 0, "delta": one, "finish_reason": None}]}
        for one in deltas
    ]
    for stream in (
        sse(*chunks, done=done),
        sse(*(f"data: {json.dumps(one)}\n\n" for one in deltas)),
    ):
        events = read_stream(GENERIC.stream_reader(call), stream)
        assert_grammar(events)
        pieces = [stream[at : at + 7] for at in range(0, len(stream), 7)]
        assert read_stream(GENERIC.stream_reader(call), *pieces) == events
        writer = CLIENT.stream_writer(call)
        for event in events:
            writer.write(event)


@_FEW
@given(st.binary(max_size=200))
def test_bytes(raw: bytes) -> None:
    with contextlib.suppress(RequestError):
        CLIENT.read_call(raw, "", {})
    with contextlib.suppress(DamagedReplyError):
        GENERIC.read_reply(raw)
    assert GENERIC.read_failure(400, {}, raw).message
    assert_grammar(read_stream(GENERIC.stream_reader(read()), raw))
    assert_grammar(read_stream(GENERIC.stream_reader(read()), b"data: " + raw + b"\n\n"))
