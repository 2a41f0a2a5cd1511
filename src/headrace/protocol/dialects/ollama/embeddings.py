"""Ollama's /api/embed: for providers that speak it and for clients that do."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from headrace.errors import RequestError
from headrace.protocol.dialects.float_vectors import packed
from headrace.protocol.dialects.ollama.reply.failures import line_failure
from headrace.protocol.dialects.ollama.reply.usage import NO_DURATIONS, Durations
from headrace.protocol.dialects.ollama.request.fields import Fields, encoded, read_fields
from headrace.protocol.dialects.token_count import as_tokens, summed
from headrace.protocol.neutral.dialect import DamagedReplyError, EncodedRequest
from headrace.protocol.neutral.embedding import EmbeddingCall, EmbeddingExchange, EmbeddingReply
from headrace.protocol.neutral.usage import TokenUsage

_HEADERS = {"content-type": "application/json", "accept": "application/json"}


class _Reply(msgspec.Struct):
    embeddings: list[list[float]] | None = None
    model: str = ""
    prompt_eval_count: Any = None
    error: Any = None


_REPLY = msgspec.json.Decoder(_Reply)


def write_embeddings(call: EmbeddingCall, model: str) -> EmbeddingExchange:
    """One request for all inputs; raises RequestError for token ids, which Ollama does not "
    "accept."""
    texts = []
    for number, entry in enumerate(call.inputs):
        if not isinstance(entry, str):
            raise RequestError(
                f"input[{number}]: Ollama embeds texts, not token ids; send text",
                param=f"input[{number}]",
            )
        texts.append(entry)
    body: dict[str, Any] = {"model": model, "input": texts}
    if call.dimensions is not None:
        body["dimensions"] = call.dimensions
    dropped = [name for name in ("task", "user") if getattr(call, name) is not None]
    if call.dialect == "ollama":
        body |= call.extra
    else:
        dropped += [f"extra.{name}" for name in call.extra]
    return EmbeddingExchange(
        (EncodedRequest("/api/embed", _HEADERS, encoded(body), tuple(dropped)),)
    )


def read_embeddings(bodies: tuple[bytes, ...]) -> EmbeddingReply:
    """Raises DamagedReplyError for an invalid reply, and for numbers that float32 cannot hold."""
    vectors: list[bytes] = []
    counts: list[int | None] = []
    model = ""
    for body in bodies:
        reply = _read(body)
        model = reply.model or model
        vectors += [packed(vector) for vector in reply.embeddings or ()]
        counts.append(as_tokens(reply.prompt_eval_count))
    tokens = summed(counts)
    usage = None if tokens is None else TokenUsage(input_tokens=tokens)
    return EmbeddingReply(model=model, vectors=tuple(vectors), usage=usage)


def _read(body: bytes) -> _Reply:
    try:
        reply = _REPLY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedReplyError(f"not an Ollama embedding reply: {error}") from None
    if reply.error is not None:
        failure = line_failure(reply.error)
        raise DamagedReplyError(
            f"the reply is an error without embeddings: {failure.message}", failure
        )
    if reply.embeddings is None:
        raise DamagedReplyError("the reply has no embeddings")
    return reply


def read_embedding_usage(body: bytes) -> TokenUsage | None:
    """The usage of a reply that is passed through. Raises DamagedReplyError."""
    count = as_tokens(_read(body).prompt_eval_count)
    return None if count is None else TokenUsage(input_tokens=count)


def read_embedding_call(body: bytes) -> EmbeddingCall:
    """The call in a body of POST /api/embed; raises RequestError. `input` may be one text or a
    list."""
    fields = read_fields(body)
    model = fields.text("model")
    if not model:
        raise fields.missing("model", "name the model to use")
    inputs = _inputs(fields)
    dimensions = fields.integer("dimensions")
    extra = {name: value for name, value in fields.rest().items() if value is not None}
    return EmbeddingCall(
        dialect="ollama", model=model, inputs=inputs, dimensions=dimensions, extra=extra
    )


def _inputs(fields: Fields) -> tuple[str, ...]:
    value = fields.raw("input")
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if value is None:
        raise fields.missing("input", "send the text to embed, or a list of texts")
    raise fields.wrong("input", value, "a text or a list of texts")


def write_embedding_reply(
    reply: EmbeddingReply, call: EmbeddingCall, durations: Durations = NO_DURATIONS
) -> bytes:
    """The body of a 200. Vectors are written as they are; Ollama's own have length 1."""
    vectors = [struct.unpack(f"<{len(vector) // 4}f", vector) for vector in reply.vectors]
    body: dict[str, Any] = {
        "model": reply.model or call.model,
        "embeddings": vectors,
        "total_duration": durations.total_ns,
        "load_duration": durations.load_ns,
    }
    if reply.usage is not None:
        body["prompt_eval_count"] = reply.usage.prompt_tokens
    return msgspec.json.encode(body)
