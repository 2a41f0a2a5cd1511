"""Cohere's embeddings: POST /v2/embed, at most 96 texts at a time."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import RequestError, shown
from headrace.protocol.dialects.cohere.names import DIALECT
from headrace.protocol.dialects.float_vectors import decoded, packed
from headrace.protocol.dialects.json_values import encoded, mapping
from headrace.protocol.dialects.token_count import reported_tokens, summed
from headrace.protocol.neutral.dialect import DamagedReplyError, EncodedRequest
from headrace.protocol.neutral.embedding import (
    EmbeddingCall,
    EmbeddingExchange,
    EmbeddingReply,
)
from headrace.protocol.neutral.usage import TokenUsage

MOST_TEXTS = 96
_HEADERS = {"content-type": "application/json", "accept": "application/json"}
_OWN_FIELDS = frozenset(("max_tokens", "priority", "truncate"))

# Cohere requires an input_type, and nobody else does. Without a word of the client's it is the one
# of texts to be found later, which most texts are embedded for; queries have to say that they are.
_DEFAULT = "search_document"
_INPUT_TYPES = {
    "search_document": "search_document",
    "document": "search_document",
    "passage": "search_document",
    "retrieval_document": "search_document",
    "search_query": "search_query",
    "query": "search_query",
    "retrieval_query": "search_query",
    "code_retrieval_query": "search_query",
    "question_answering": "search_query",
    "fact_verification": "search_query",
    "classification": "classification",
    "clustering": "clustering",
    "semantic_similarity": "clustering",
}


class _Vectors(msgspec.Struct):
    numbers: list[list[float]] | None = msgspec.field(default=None, name="float")
    base64: list[str] | None = None


class _Reply(msgspec.Struct):
    embeddings: _Vectors
    meta: Any = None


_REPLY = msgspec.json.Decoder(_Reply)


def write_embeddings(call: EmbeddingCall, model: str) -> EmbeddingExchange:
    """The requests, as many as needed. `task`, else `extra.input_type`, is Cohere's input_type.

    Without either it is "search_document". Raises RequestError for token ids, for no texts at all
    and for a task that Cohere has no input_type for.
    """
    texts = [entry for entry in call.inputs if isinstance(entry, str)]
    if len(texts) != len(call.inputs):
        raise RequestError(
            "input: Cohere embeds texts, not token ids; send the text", param="input"
        )
    if not texts:
        raise RequestError("input: is empty; send at least one text", param="input")
    extra = dict(call.extra)
    dropped: dict[str, None] = {}
    said = extra.pop("input_type", None)
    body: dict[str, Any] = {
        "model": model,
        "input_type": _input_type(call.task if call.task is not None else said),
        "embedding_types": ["base64" if call.base64 else "float"],
    }
    if call.dimensions is not None:
        body["output_dimension"] = call.dimensions
    for name, value in extra.items():
        if call.dialect == DIALECT or name in _OWN_FIELDS:
            body.setdefault(name, value)
        else:
            dropped[f"extra.{name}"] = None
    if call.user is not None:
        dropped["user"] = None
    requests = (
        EncodedRequest("/v2/embed", _HEADERS, encoded(body | {"texts": some}), tuple(dropped))
        for some in (texts[at : at + MOST_TEXTS] for at in range(0, len(texts), MOST_TEXTS))
    )
    return EmbeddingExchange(tuple(requests))


def read_embeddings(bodies: tuple[bytes, ...]) -> EmbeddingReply:
    """All vectors in one row. model: "", for Cohere tells none. Usage: what is billed."""
    vectors: list[bytes] = []
    counts: list[int | None] = []
    for body in bodies:
        try:
            reply = _REPLY.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DamagedReplyError(f"no embeddings: {error}") from None
        if reply.embeddings.numbers is not None:
            vectors += [packed(vector) for vector in reply.embeddings.numbers]
        elif reply.embeddings.base64 is not None:
            vectors += [decoded(vector) for vector in reply.embeddings.base64]
        else:
            raise DamagedReplyError("no embeddings of type float or base64")
        billed = mapping(mapping(reply.meta).get("billed_units"))
        told = reported_tokens(billed, "input_tokens", "image_tokens")
        counts.append(None if told is None else sum(told))
    tokens = summed(counts)
    usage = None if tokens is None else TokenUsage(input_tokens=tokens)
    return EmbeddingReply(model="", vectors=tuple(vectors), usage=usage)


def _input_type(task: Any) -> str:
    if task is None:
        return _DEFAULT
    known = _INPUT_TYPES.get(task.lower()) if isinstance(task, str) else None
    if known is None:
        raise RequestError(
            f"task: {shown(task)} is not one of Cohere's; send one of "
            f"{', '.join(sorted(set(_INPUT_TYPES.values())))}",
            param="task",
        )
    return known
