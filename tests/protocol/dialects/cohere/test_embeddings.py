"""Cohere's embeddings: asked for in several requests, read in one row."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.cohere import PROVIDER
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.embedding import EmbeddingCall
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.api_description import assert_as_described
from tests.protocol.dialects.cohere.samples import embeddings

pytestmark = pytest.mark.usefixtures("api_descriptions")


def call(*texts: str, dialect: str = "openai-chat", **fields: Any) -> EmbeddingCall:
    return EmbeddingCall(dialect=dialect, model="m", inputs=texts or ("a",), **fields)


def bodies(asked: EmbeddingCall) -> list[dict[str, Any]]:
    requests = PROVIDER.write_embeddings(asked, "embed-v4.0").requests
    assert {one.path for one in requests} == {"/v2/embed"}
    return [json.loads(one.body) for one in requests]


def test_a_request() -> None:
    assert bodies(call("a", "b")) == [
        {
            "model": "embed-v4.0",
            "input_type": "search_document",
            "embedding_types": ["float"],
            "texts": ["a", "b"],
        }
    ]
    asked = call(
        "a", dimensions=256, base64=True, task="query", user="u", extra={"truncate": "NONE", "x": 1}
    )
    [written] = PROVIDER.write_embeddings(asked, "embed-v4.0").requests
    body = json.loads(written.body)
    assert body == {
        "model": "embed-v4.0",
        "input_type": "search_query",
        "embedding_types": ["base64"],
        "output_dimension": 256,
        "truncate": "NONE",
        "texts": ["a"],
    }
    assert written.dropped == ("extra.x", "user")
    assert_as_described(body, "cohere/cohere-openapi.yaml", "/v2/embed")


def test_no_more_than_96_texts_go_into_one_request() -> None:
    texts = [f"text {number}" for number in range(200)]
    found = bodies(call(*texts))
    assert [len(one["texts"]) for one in found] == [96, 96, 8]
    assert [text for one in found for text in one["texts"]] == texts


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("RETRIEVAL_DOCUMENT", "search_document"),
        ("search_query", "search_query"),
        ("classification", "classification"),
        ("SEMANTIC_SIMILARITY", "clustering"),
    ],
)
def test_tasks(task: str, told: str) -> None:
    assert bodies(call(task=task))[0]["input_type"] == told
    assert bodies(call(extra={"input_type": task}))[0]["input_type"] == told


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (call(task="poetry"), "task"),
        (call(extra={"input_type": 3}), "task"),
        (EmbeddingCall(dialect="d", model="m", inputs=((1, 2),)), "input"),
        (EmbeddingCall(dialect="d", model="m", inputs=()), "input"),
    ],
    ids=range(4),
)
def test_what_cannot_be_asked(asked: EmbeddingCall, param: str) -> None:
    with pytest.raises(RequestError) as raised:
        bodies(asked)
    assert raised.value.param == param


def test_recorded_requests() -> None:
    for exchange in embeddings():
        raw = {
            name: value for name, value in json.loads(exchange.request).items() if value is not None
        }
        extra = {"truncate": raw["truncate"]} if "truncate" in raw else {}
        [told] = bodies(call(*raw["texts"], task=raw["input_type"], extra=extra))
        expected = {"embedding_types": ["float"]} | raw | {"model": "embed-v4.0"}
        assert told == expected, exchange.at


def test_replies_are_one_row_and_their_usage_one_sum() -> None:
    vectors = [[0.5, -1.0], [2.0, 0.25]]
    packed = [struct.pack("<2f", *vector) for vector in vectors]
    first = {"embeddings": {"float": vectors[:1]}, "meta": {"billed_units": {"input_tokens": 3}}}
    coded = [base64.b64encode(packed[1]).decode()]
    second = {
        "embeddings": {"base64": coded, "float": None},
        "meta": {"billed_units": {"input_tokens": 4.0}},
    }
    reply = PROVIDER.read_embeddings((json.dumps(first).encode(), json.dumps(second).encode()))
    assert reply.vectors == tuple(packed)
    assert reply.usage == TokenUsage(input_tokens=7)
    assert PROVIDER.read_embeddings((b'{"embeddings": {"float": []}}',)).usage is None


@pytest.mark.parametrize(
    "meta",
    [
        {"billed_units": {}},
        {"billed_units": {"input_tokens": -5}},
        {"billed_units": {"input_tokens": None}},
        {"billed_units": {"input_tokens": 3, "image_tokens": 2**40}},
        {"billed_units": "x"},
        {},
        5,
    ],
)
def test_what_is_not_told_or_none_is_not_free(meta: object) -> None:
    good = {"embeddings": {"float": [[1]]}, "meta": {"billed_units": {"input_tokens": 3}}}
    bodies = [json.dumps(one).encode() for one in (good, {**good, "meta": meta})]
    assert PROVIDER.read_embeddings((bodies[0],)).usage == TokenUsage(input_tokens=3)
    assert PROVIDER.read_embeddings((bodies[1],)).usage is None
    assert PROVIDER.read_embeddings((bodies[0], bodies[1])).usage is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"embeddings": {}}',
        b'{"embeddings": {"int8": [[1]]}}',
        b'{"embeddings": {"float": [["a"]]}}',
        b'{"embeddings": {"float": [[1e300]]}}',
        b'{"embeddings": {"base64": ["?"]}}',
        b'{"embeddings": {"base64": ["AAAA"]}}',
    ],
    ids=range(9),
)
def test_damage(body: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        PROVIDER.read_embeddings((body,))
