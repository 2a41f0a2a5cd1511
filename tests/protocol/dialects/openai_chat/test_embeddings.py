"""Embeddings, of clients and of providers."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import msgspec
import pytest
from openai.types import CreateEmbeddingResponse

from headrace.errors import RequestError
from headrace.protocol.dialects.openai_chat import CLIENT, PRESETS, OpenAIChatProvider
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.embedding import EmbeddingCall, EmbeddingReply
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.openai_chat.samples import GENERIC, OPENAI
from tests.protocol.neutral.cassettes import exchanges

pytestmark = pytest.mark.usefixtures("recordings")


def asked(**fields: Any) -> EmbeddingCall:
    """The call that a body is."""
    return CLIENT.read_embedding_call(json.dumps({"model": "e", "input": "a", **fields}).encode())


def vector(*numbers: float) -> bytes:
    """Little-endian float32."""
    return struct.pack(f"<{len(numbers)}f", *numbers)


@pytest.mark.parametrize(
    ("given", "inputs"),
    [
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
        (["a", [3]], ("a", (3,))),
    ],
)
def test_inputs(given: Any, inputs: tuple[Any, ...]) -> None:
    call = asked(input=given, dimensions=8, user="u", encoding_format="base64", zz=1)
    assert call.inputs == inputs
    assert (call.dimensions, call.user, call.base64, call.extra) == (8, "u", True, {"zz": 1})
    (request,) = OPENAI.write_embeddings(call, "theirs").requests
    assert request.path == "/embeddings" and request.dropped == ()
    assert json.loads(request.body) == {
        "model": "theirs",
        "input": given,
        "dimensions": 8,
        "user": "u",
        "encoding_format": "base64",
        "zz": 1,
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": [[1], []]}, "input[1]"),
        ({"input": [1, -2]}, "input"),
        ({"input": [1, "a"]}, "input"),
        ({"model": None}, "model"),
        ({"encoding_format": "hex"}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
    ],
)
def test_what_cannot_be_embedded(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        asked(**fields)
    assert caught.value.param == param


def test_what_an_embedding_is_for() -> None:
    call = EmbeddingCall(dialect="cohere", model="e", inputs=("a",), task="query", extra={"t": 1})
    assert GENERIC.write_embeddings(call, "e").requests[0].dropped == ("task", "extra.t")
    nim = OpenAIChatProvider(
        msgspec.structs.replace(PRESETS["generic"], embedding_task_field="input_type")
    )
    (request,) = nim.write_embeddings(call, "e").requests
    assert json.loads(request.body)["input_type"] == "query"


def test_replies_of_numbers_and_of_base64() -> None:
    encoded = base64.b64encode(vector(1.5, -2)).decode()
    body = {
        "data": [
            {"index": 1, "embedding": [0.5, 3]},
            {"index": 0, "embedding": encoded},
        ],
        "model": "e",
        "usage": {"total_tokens": 4},
    }
    assert GENERIC.read_embeddings((json.dumps(body).encode(),)) == EmbeddingReply(
        model="e",
        vectors=(vector(1.5, -2), vector(0.5, 3)),
        usage=TokenUsage(input_tokens=4),
    )


@pytest.mark.parametrize("base64_wanted", [True, False])
def test_clients_read_what_they_asked_for(base64_wanted: bool) -> None:
    reply = EmbeddingReply(model="e", vectors=(vector(0.1, -1e-8, 2.0, 16777216.0),))
    call = asked(encoding_format="base64" if base64_wanted else "float")
    body = json.loads(CLIENT.write_embedding_reply(reply, call))
    CreateEmbeddingResponse.model_construct(**body)
    (one,) = body["data"]
    if base64_wanted:
        assert base64.b64decode(one["embedding"]) == reply.vectors[0]
    else:
        assert one["embedding"] == [0.1, -1e-08, 2.0, 16777216.0]
        assert vector(*one["embedding"]) == reply.vectors[0]
    again = GENERIC.read_embeddings((json.dumps(body).encode(),))
    assert again.vectors == reply.vectors


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"data": []}',
        b'{"data": [{}]}',
        b'{"data": [{"embedding": []}]}',
        b'{"data": [{"embedding": ["a"]}]}',
        b'{"data": [{"embedding": [1e39]}]}',
        b'{"data": [{"embedding": "AAA="}]}',
        b'{"data": [{"embedding": "%%%%"}]}',
    ],
)
def test_what_is_no_reply(body: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        GENERIC.read_embeddings((body,))


def test_an_error_with_status_200() -> None:
    with pytest.raises(DamagedReplyError) as caught:
        GENERIC.read_embeddings((b'{"error": {"message": "m", "code": 429}}',))
    assert caught.value.failure is not None
    assert caught.value.failure.kind == "rate_limit"


def test_recorded_exchanges() -> None:
    seen = 0
    for one in exchanges("envoy-ai-gateway", host="api.openai.com", holds="embeddings"):
        if not one.path.startswith("/v1/embeddings"):
            continue
        sent = json.loads(one.request)
        if one.status != 200:
            assert GENERIC.read_failure(one.status, one.headers, one.body).kind in (
                "bad_request",
                "not_found",
                "context_length",
            )
            continue
        seen += 1
        call = CLIENT.read_embedding_call(one.request)
        body = json.loads(OPENAI.write_embeddings(call, call.model).requests[0].body)
        assert {**body, "encoding_format": None} == {**sent, "encoding_format": None}, one.at
        reply = GENERIC.read_embeddings((one.body,))
        raw = json.loads(one.body)
        assert reply.usage == TokenUsage(input_tokens=raw["usage"]["prompt_tokens"])
        again = json.loads(CLIENT.write_embedding_reply(reply, call))
        assert again["model"] == raw["model"]
        for mine, theirs in zip(again["data"], raw["data"], strict=True):
            assert mine["index"] == theirs["index"]
            if call.base64:
                assert mine["embedding"] == theirs["embedding"]
            else:
                assert vector(*mine["embedding"]) == vector(*theirs["embedding"]), one.at
    assert seen >= 6
