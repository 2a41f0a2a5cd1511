"""/api/embed, asked and answered."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.ollama import CLIENT, PROVIDER, Durations, OllamaClient
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.embedding import EmbeddingCall, EmbeddingReply
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.ollama.samples import assert_as_described


def read(**fields: Any) -> EmbeddingCall:
    body = json.dumps({"model": "all-minilm", "input": "Hi"} | fields).encode()
    return CLIENT.read_embedding_call(body, "/api/embed", {})


def packed(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def test_all_inputs_are_one_request() -> None:
    asked = EmbeddingCall(
        dialect="openai", model="x", inputs=("a", "b"), dimensions=3, user="u", extra={"y": 1}
    )
    (written,) = PROVIDER.write_embeddings(asked, "all-minilm").requests
    assert written.path == "/api/embed"
    told = json.loads(written.body)
    assert told == {"model": "all-minilm", "input": ["a", "b"], "dimensions": 3}
    assert written.dropped == ("user", "extra.y")
    assert_as_described(told, "EmbedRequest")


def test_token_ids_are_refused() -> None:
    asked = EmbeddingCall(dialect="openai", model="x", inputs=("a", (1, 2)))
    with pytest.raises(RequestError, match="token ids") as error:
        PROVIDER.write_embeddings(asked, "m")
    assert error.value.param == "input[1]"


def test_a_reply() -> None:
    body = b'{"model":"all-minilm","embeddings":[[0.5,-1,2e0],[]],"prompt_eval_count":8}'
    assert PROVIDER.read_embeddings((body,)) == EmbeddingReply(
        model="all-minilm",
        vectors=(packed(0.5, -1, 2), b""),
        usage=TokenUsage(input_tokens=8),
    )
    assert PROVIDER.read_embeddings((b'{"embeddings":[]}',)).usage is None


@pytest.mark.parametrize("count", [b"-1", b"null", b"1.5"])
def test_batches_of_which_one_is_not_counted_are_not_counted(count: bytes) -> None:
    bodies = [
        b'{"embeddings":[[1]],"prompt_eval_count":' + one + b"}" for one in (b"5", b"3", count)
    ]
    assert PROVIDER.read_embeddings(tuple(bodies[:2])).usage == TokenUsage(input_tokens=8)
    assert PROVIDER.read_embeddings((bodies[0], bodies[2])).usage is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"error":"model not found"}',
        b'{"embeddings":[1]}',
        b'{"embeddings":[["x"]]}',
        b'{"embeddings":[[null]]}',
        b'{"embeddings":[[1e39]]}',
        b'{"embeddings":[[1e999]]}',
        b'{"embeddings":null}',
        b'{"embedding":[1]}',
    ],
)
def test_damage_is_told(body: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        PROVIDER.read_embeddings((body,))


def test_a_clients_call_and_its_reply() -> None:
    asked = read(input=["a", "b"], dimensions=2, truncate=False, keep_alive="1m", x=None)
    assert asked == EmbeddingCall(
        dialect="ollama",
        model="all-minilm",
        inputs=("a", "b"),
        dimensions=2,
        extra={"truncate": False, "keep_alive": "1m"},
    )
    assert read().inputs == ("Hi",)
    again = PROVIDER.write_embeddings(asked, "all-minilm").requests[0]
    assert json.loads(again.body)["truncate"] is False
    assert again.dropped == ()
    reply = EmbeddingReply(
        model="", vectors=(packed(0.5, 1), packed(0.25, 0)), usage=TokenUsage(input_tokens=4)
    )
    told = json.loads(OllamaClient("", Durations(9, 3)).write_embedding_reply(reply, asked))
    assert told == {
        "model": "all-minilm",
        "embeddings": [[0.5, 1], [0.25, 0]],
        "total_duration": 9,
        "load_duration": 3,
        "prompt_eval_count": 4,
    }
    assert_as_described(told, "EmbedResponse")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": [[1, 2]]}, "input"),
        ({"dimensions": 1.5}, "dimensions"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as error:
        read(**fields)
    assert error.value.param == param
