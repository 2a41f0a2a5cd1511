"""Embeddings of the Gemini API and of Vertex AI."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.gemini import EMBEDDINGS, GeminiEmbeddings, VertexAi
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.embedding import EmbeddingCall
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.gemini.recorded import google_exchanges

pytestmark = pytest.mark.usefixtures("recordings")

VERTEX = GeminiEmbeddings(place=VertexAi(project="p", location="global"))
MODEL = "gemini-embedding-001"


def a_call(*texts: str, **fields: Any) -> EmbeddingCall:
    fields.setdefault("dialect", "openai-chat")
    return EmbeddingCall(model="asked", inputs=texts or ("hi",), **fields)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def test_a_batch_of_the_gemini_api() -> None:
    call = a_call("a", "b", dimensions=768, task="search_document")
    (request,) = EMBEDDINGS.write_embeddings(call, MODEL).requests
    assert request.path == f"/v1beta/models/{MODEL}:batchEmbedContents"
    assert json.loads(request.body) == {
        "requests": [
            {
                "model": f"models/{MODEL}",
                "content": {"parts": [{"text": text}]},
                "taskType": "RETRIEVAL_DOCUMENT",
                "outputDimensionality": 768,
            }
            for text in ("a", "b")
        ]
    }
    assert request.dropped == ()


def test_many_texts_are_many_requests() -> None:
    texts = [str(at) for at in range(250)]
    requests = EMBEDDINGS.write_embeddings(a_call(*texts), MODEL).requests
    sent = [
        [one["content"]["parts"][0]["text"] for one in json.loads(request.body)["requests"]]
        for request in requests
    ]
    assert [len(one) for one in sent] == [100, 100, 50]
    assert [text for one in sent for text in one] == texts


def test_predictions_of_vertex() -> None:
    call = a_call(*"abcdefg", dimensions=64, task="query")
    requests = VERTEX.write_embeddings(call, "text-embedding-005").requests
    assert {one.path for one in requests} == {
        "/v1/projects/p/locations/global/publishers/google/models/text-embedding-005:predict"
    }
    assert json.loads(requests[1].body) == {
        "instances": [
            {"content": "f", "task_type": "RETRIEVAL_QUERY"},
            {"content": "g", "task_type": "RETRIEVAL_QUERY"},
        ],
        "parameters": {"outputDimensionality": 64},
    }
    assert len(VERTEX.write_embeddings(a_call("a", "b"), MODEL).requests) == 2


def test_newer_models_of_vertex_embed_content_and_take_no_task() -> None:
    requests = VERTEX.write_embeddings(
        a_call("a", "b", task="query"), "gemini-embedding-2"
    ).requests
    assert [one.path.rpartition("/")[2] for one in requests] == [
        "gemini-embedding-2:embedContent"
    ] * 2
    assert json.loads(requests[1].body) == {"content": {"parts": [{"text": "b"}]}}
    assert requests[0].dropped == ("task",)


def test_what_is_dropped_and_what_a_gemini_client_may_say() -> None:
    extra = {"title": "t", "odd": 1}
    (own,) = EMBEDDINGS.write_embeddings(a_call(dialect="gemini", extra=extra), MODEL).requests
    assert json.loads(own.body)["requests"][0]["title"] == "t"
    assert own.dropped == ("extra.odd",)
    (other,) = EMBEDDINGS.write_embeddings(a_call(extra=extra, user="u"), MODEL).requests
    assert "title" not in json.loads(other.body)["requests"][0]
    assert other.dropped == ("extra.title", "extra.odd", "user")


@pytest.mark.parametrize(
    ("call", "param"),
    [
        (EmbeddingCall(dialect="x", model="m", inputs=((1, 2),)), "input"),
        (EmbeddingCall(dialect="x", model="m", inputs=()), "input"),
        (a_call(task="poetry"), "task"),
    ],
    ids=["tokens", "nothing", "task"],
)
def test_what_cannot_be_said(call: EmbeddingCall, param: str) -> None:
    with pytest.raises(RequestError) as refused:
        EMBEDDINGS.write_embeddings(call, MODEL)
    assert refused.value.param == param


def test_replies_of_all_methods() -> None:
    usage = {"promptTokenCount": 3}
    single = {"embedding": {"values": [1, 0.5]}, "usageMetadata": usage}
    batch = {"embeddings": [{"values": [0.25]}, {"values": [-1]}], "usageMetadata": usage}
    predicted = {
        "predictions": [
            {"embeddings": {"values": [2.0], "statistics": {"token_count": 4, "truncated": False}}}
        ]
    }
    bodies = tuple(json.dumps(one).encode() for one in (single, batch, predicted))
    reply = EMBEDDINGS.read_embeddings(bodies)
    assert reply.vectors == (floats(1, 0.5), floats(0.25), floats(-1), floats(2))
    assert reply.usage == TokenUsage(input_tokens=10)
    assert EMBEDDINGS.read_embeddings((b'{"embeddings":[{"values":[1]}]}',)).usage is None
    unknown = json.dumps({"embeddings": [{"values": [1]}]}).encode()
    assert EMBEDDINGS.read_embeddings((*bodies, unknown)).usage is None
    half = {"predictions": [*predicted["predictions"], {"embeddings": {"values": [2.0]}}]}
    assert EMBEDDINGS.read_embeddings((json.dumps(half).encode(),)).usage is None


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b'{"embedding": 5}', b'{"embedding": {"values": []}}',
     b'{"embedding": {"values": ["1"]}}', b'{"embedding": {"values": [null]}}',
     b'{"embedding": {"values": [1e300]}}', b'{"embeddings": []}', b'{"embeddings": [5]}',
     b'{"predictions": [{"embeddings": {}}]}', b'{"predictions": 5}'],
)  # fmt: skip
def test_damaged_replies(body: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        EMBEDDINGS.read_embeddings((body,))


def test_recorded_embeddings() -> None:
    seen = 0
    for exchange in google_exchanges():
        method = exchange.path.rpartition(":")[2]
        if (
            method not in ("batchEmbedContents", "embedContent", "predict")
            or exchange.status != 200
        ):
            continue
        seen += 1
        asked = json.loads(exchange.request)
        provider = EMBEDDINGS if method == "batchEmbedContents" else VERTEX
        first = (asked.get("requests") or asked.get("instances") or [asked])[0]
        contents = [
            one["content"] for one in asked.get("requests", asked.get("instances", [asked]))
        ]
        call = a_call(
            *(one if isinstance(one, str) else one["parts"][0]["text"] for one in contents),
            dialect="gemini",
            task=first.get("taskType") or first.get("task_type"),
            dimensions=first.get("outputDimensionality"),
            extra={"title": first["title"]} if "title" in first else {},
        )
        model = exchange.path.rpartition("/")[2].partition(":")[0]
        (request,) = provider.write_embeddings(call, model).requests
        assert request.path.rpartition("/")[2] == f"{model}:{method}"
        sent = json.loads(request.body)
        if request.dropped == ("task",):
            for one in asked.get("requests", []):
                one.pop("taskType", None)
        assert sent == asked, exchange.at
        _compare(provider, json.loads(exchange.body), exchange.body)
    assert seen >= 10


def _compare(provider: GeminiEmbeddings, raw: dict[str, Any], body: bytes) -> None:
    reply = provider.read_embeddings((body,))
    told = raw.get("embeddings") or [raw.get("embedding") or raw["predictions"][0]["embeddings"]]
    assert reply.vectors == tuple(floats(*one["values"]) for one in told)
    tokens = raw.get("usageMetadata", {}).get("promptTokenCount")
    if "predictions" in raw:
        tokens = raw["predictions"][0]["embeddings"]["statistics"]["token_count"]
    assert (None if reply.usage is None else reply.usage.input_tokens) == tokens
