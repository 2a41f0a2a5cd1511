"""Embeddings by Titan and by Cohere on Bedrock."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.bedrock import EMBEDDINGS
from headrace.protocol.neutral.dialect import DamagedReplyError, EncodedRequest
from headrace.protocol.neutral.embedding import EmbeddingCall
from headrace.protocol.neutral.usage import TokenUsage

TITAN = "amazon.titan-embed-text-v2:0"
COHERE = "cohere.embed-english-v3"


def _written(model: str, *inputs: Any, **fields: Any) -> tuple[EncodedRequest, ...]:
    call = EmbeddingCall(dialect="openai_chat", model="m", inputs=inputs, **fields)
    return EMBEDDINGS.write_embeddings(call, model).requests


def _bodies(requests: tuple[EncodedRequest, ...]) -> list[dict[str, Any]]:
    return [json.loads(one.body) for one in requests]


def _floats(vector: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))


def test_titan_takes_one_text_at_a_time() -> None:
    requests = _written(TITAN, "a", "b", dimensions=256, user="u", task="query")
    assert _bodies(requests) == [
        {"inputText": "a", "dimensions": 256},
        {"inputText": "b", "dimensions": 256},
    ]
    assert requests[0].path == "/model/amazon.titan-embed-text-v2%3A0/invoke"
    assert set(requests[0].dropped) == {"task", "user"}


def test_other_titans() -> None:
    assert _bodies(_written("amazon.titan-embed-image-v1", "a", dimensions=384)) == [
        {"inputText": "a", "embeddingConfig": {"outputEmbeddingLength": 384}}
    ]
    requests = _written("amazon.titan-embed-text-v1", "a", dimensions=384)
    assert _bodies(requests) == [{"inputText": "a"}]
    assert requests[0].dropped == ("dimensions",)


@pytest.mark.parametrize(
    ("task", "kind", "dropped"),
    [
        (None, "search_document", ()),
        ("query", "search_query", ()),
        ("RETRIEVAL_QUERY", "search_query", ()),
        ("search_document", "search_document", ()),
        ("CLASSIFICATION", "classification", ()),
        ("SEMANTIC_SIMILARITY", "search_document", ("task",)),
    ],
)
def test_what_cohere_wants_to_know(task: str | None, kind: str, dropped: tuple[str, ...]) -> None:
    requests = _written(COHERE, "a", "b", task=task, extra={"truncate": "END"})
    assert _bodies(requests) == [{"texts": ["a", "b"], "input_type": kind, "truncate": "END"}]
    assert requests[0].dropped == dropped


def test_cohere_takes_96_texts() -> None:
    bodies = _bodies(_written(COHERE, *map(str, range(200)), dimensions=512))
    assert [len(body["texts"]) for body in bodies] == [96, 96, 8]
    assert [text for body in bodies for text in body["texts"]] == list(map(str, range(200)))
    assert bodies[0]["output_dimension"] == 512


@pytest.mark.parametrize("inputs", [((1, 2),), ("a", ""), ("a", ())])
def test_inputs_that_cannot_be_given(inputs: tuple[Any, ...]) -> None:
    for model in (TITAN, COHERE):
        with pytest.raises(RequestError) as raised:
            _written(model, *inputs)
        assert raised.value.param == "input"


def test_a_model_that_makes_none() -> None:
    with pytest.raises(RequestError, match=r"nova") as raised:
        _written("amazon.nova-pro-v1:0", "a")
    assert raised.value.param == "model"


def test_titans_replies() -> None:
    reply = EMBEDDINGS.read_embeddings(
        (
            b'{"embedding": [1, 0.5], "inputTextTokenCount": 3, "embeddingsByType": {}}',
            b'{"embedding": [-1.0, 2], "inputTextTokenCount": 4}',
        )
    )
    assert [_floats(one) for one in reply.vectors] == [[1.0, 0.5], [-1.0, 2.0]]
    assert reply.usage == TokenUsage(input_tokens=7)


@pytest.mark.parametrize(
    "embeddings", ["[[1, 2], [3, 4]]", '{"float": [[1, 2], [3, 4]], "int8": [[0, 0], [0, 0]]}']
)
def test_coheres_replies(embeddings: str) -> None:
    body = f'{{"id": "x", "texts": ["a", "b"], "embeddings": {embeddings}}}'.encode()
    reply = EMBEDDINGS.read_embeddings((body, body))
    assert [_floats(one) for one in reply.vectors] == [[1.0, 2.0], [3.0, 4.0]] * 2
    assert reply.usage is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"embedding": []}',
        b'{"embedding": ["a"]}',
        b'{"embedding": [1e300]}',
        b'{"embedding": [null]}',
        b'{"embeddings": {"int8": [[1]]}}',
        b'{"embeddings": {"float": [1]}}',
        b'{"embeddings": [[]]}',
        b'{"embeddings": 5}',
    ],
)
def test_damaged_replies(body: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        EMBEDDINGS.read_embeddings((body,))


def test_a_count_that_is_none() -> None:
    body = b'{"embedding": [1], "inputTextTokenCount": "3"}'
    assert EMBEDDINGS.read_embeddings((body,)).usage is None


def test_failures_are_those_of_chats() -> None:
    failure = EMBEDDINGS.read_failure(429, {"x-amzn-errortype": "ThrottlingException"}, b"{}")
    assert failure.kind == "rate_limit"
