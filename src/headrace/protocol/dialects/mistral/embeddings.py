"""Mistral's embeddings: POST /v1/embeddings."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import RequestError
from headrace.protocol.dialects.float_vectors import decoded, packed
from headrace.protocol.dialects.json_values import encoded
from headrace.protocol.dialects.mistral.names import DIALECT
from headrace.protocol.dialects.mistral.reply.usage import read_usage
from headrace.protocol.neutral.dialect import DamagedReplyError, EncodedRequest
from headrace.protocol.neutral.embedding import (
    EmbeddingCall,
    EmbeddingExchange,
    EmbeddingReply,
)

_HEADERS = {"content-type": "application/json", "accept": "application/json"}
_OWN_FIELDS = frozenset(("metadata",))


class _Vector(msgspec.Struct):
    embedding: list[float] | str
    index: int | None = None


class _Reply(msgspec.Struct):
    data: list[_Vector]
    model: str = ""
    usage: Any = None


_REPLY = msgspec.json.Decoder(_Reply)


def write_embeddings(call: EmbeddingCall, model: str) -> EmbeddingExchange:
    """One request. Raises RequestError for token ids and for no texts at all.

    An `output_dtype` other than float is dropped, since replies here are float32.
    """
    texts = [entry for entry in call.inputs if isinstance(entry, str)]
    if len(texts) != len(call.inputs):
        raise RequestError(
            "input: Mistral embeds texts, not token ids; send the text", param="input"
        )
    if not texts:
        raise RequestError("input: is empty; send at least one text", param="input")
    body: dict[str, Any] = {"model": model, "input": texts}
    dropped: dict[str, None] = {}
    for name, value in call.extra.items():
        own = call.dialect == DIALECT and name != "output_dtype"
        if own or name in _OWN_FIELDS or (name == "output_dtype" and value == "float"):
            body.setdefault(name, value)
        else:
            dropped[f"extra.{name}"] = None
    if call.dimensions is not None:
        body["output_dimension"] = call.dimensions
    if call.base64:
        body["encoding_format"] = "base64"
    dropped |= {
        name: None
        for name, value in (("task", call.task), ("user", call.user))
        if value is not None
    }
    written = EncodedRequest("/v1/embeddings", _HEADERS, encoded(body), tuple(dropped))
    return EmbeddingExchange((written,))


def read_embeddings(bodies: tuple[bytes, ...]) -> EmbeddingReply:
    """The vectors in the order of `index`, if the reply has it, else as they come."""
    if len(bodies) != 1:
        raise DamagedReplyError(f"expected one reply, not {len(bodies)}")
    try:
        reply = _REPLY.decode(bodies[0])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedReplyError(f"no embeddings: {error}") from None
    ordered = sorted(
        enumerate(reply.data), key=lambda pair: pair[0] if pair[1].index is None else pair[1].index
    )
    vectors = tuple(
        decoded(embedding.embedding)
        if isinstance(embedding.embedding, str)
        else packed(embedding.embedding)
        for _, embedding in ordered
    )
    return EmbeddingReply(model=reply.model, vectors=vectors, usage=read_usage(reply.usage))
