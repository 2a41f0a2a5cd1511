"""Mistral's embeddings."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.mistral import PROVIDER
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.embedding import EmbeddingCall
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.api_description import assert_as_described
from tests.protocol.dialects.mistral.samples import embeddings

pytestmark = pytest.mark.usefixtures("api_descriptions")


def call(*texts: str, dialect: str = "openai-chat", **fields: Any) -> EmbeddingCall:
    return EmbeddingCall(dialect=dialect, model="m", inputs=texts or ("a",), **fields)


def test_a_request() -> None:
    [written] = PROVIDER.write_embeddings(call("a", "b"), "mistral-embed").requests
    assert written.path == "/v1/embeddings"
    assert json.loads(written.body) == {"model": "mistral-embed", "input": ["a", "b"]}
    assert written.dropped == ()
    asked = call(
        dimensions=256,
        base64=True,
        task="query",
        user="u",
        extra={"metadata": {"a": 1}, "output_dtype": "int8", "x": 1},
    )
    [written] = PROVIDER.write_embeddings(asked, "codestral-embed").requests
    body = json.loads(written.body)
    assert body == {
        "model": "codestral-embed",
        "input": ["a"],
        "metadata": {"a": 1},
        "output_dimension": 256,
        "encoding_format": "base64",
    }
    assert set(written.dropped) == {"extra.output_dtype", "extra.x", "task", "user"}
    assert_as_described(body, "mistral/openapi.yaml", "/v1/embeddings")


def test_recorded_requests() -> None:
    for exchange in embeddings():
        raw = json.loads(exchange.request)
        texts = [raw["input"]] if isinstance(raw["input"], str) else raw["input"]
        [written] = PROVIDER.write_embeddings(call(*texts), raw["model"]).requests
        assert written.path == exchange.path
        assert json.loads(written.body) == raw | {"input": texts}, exchange.at


@pytest.mark.parametrize("inputs", [(), ((1, 2),)])
def test_what_cannot_be_asked(inputs: Any) -> None:
    with pytest.raises(RequestError, match=r"^input: "):
        PROVIDER.write_embeddings(EmbeddingCall(dialect="d", model="m", inputs=inputs), "m")


def test_replies_are_in_the_order_of_their_index() -> None:
    packed = [struct.pack("<2f", 0.5, -1.0), struct.pack("<2f", 2.0, 0.25)]
    data = [
        {"index": 1, "embedding": base64.b64encode(packed[1]).decode()},
        {"index": 0, "embedding": [0.5, -1]},
    ]
    usage = {"prompt_tokens": 7, "total_tokens": 7, "completion_tokens": 0}
    body = {"model": "mistral-embed", "data": data, "usage": usage}
    reply = PROVIDER.read_embeddings((json.dumps(body).encode(),))
    assert reply.vectors == tuple(packed)
    assert reply.usage == TokenUsage(input_tokens=7)
    assert reply.model == "mistral-embed"
    del body["usage"]
    assert PROVIDER.read_embeddings((json.dumps(body).encode(),)).usage is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"data": [{}]}',
        b'{"data": [{"embedding": [true]}]}',
        b'{"data": [{"embedding": [1e300]}]}',
        b'{"data": [{"embedding": "AAAA"}]}',
        b'{"data": [{"embedding": "?"}]}',
    ],
    ids=range(8),
)
def test_damage(body: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        PROVIDER.read_embeddings((body,))
