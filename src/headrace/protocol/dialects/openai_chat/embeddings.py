"""POST /embeddings: texts or token ids in, vectors out, as numbers or as base64 of float32."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

import msgspec

from headrace.protocol.body_json import decode_object
from headrace.protocol.dialects.float_vectors import decoded, packed
from headrace.protocol.dialects.openai_chat.reply.failures import failure_in
from headrace.protocol.dialects.openai_chat.reply.usage import read_usage
from headrace.protocol.dialects.openai_chat.request.fields import Fields, refuse
from headrace.protocol.dialects.openai_chat.request.write_call import path_for
from headrace.protocol.dialects.openai_chat.values import (
    DIALECT,
    add_missing,
    mapping,
    objects,
    text,
    whole,
)
from headrace.protocol.dialects.openai_chat.variant import Variant
from headrace.protocol.neutral.dialect import DamagedReplyError, EncodedRequest
from headrace.protocol.neutral.embedding import EmbeddingCall, EmbeddingExchange, EmbeddingReply
from headrace.protocol.neutral.usage import TokenUsage


def read_embedding_call(body: bytes) -> EmbeddingCall:
    """The call in a body. Raises RequestError naming the field at fault. Unknown fields are in
    `extra`."""
    fields = Fields(decode_object(body))
    model = fields.string("model")
    if not model:
        raise refuse("model", model, "the name of a model")
    encoding = fields.string("encoding_format")
    if encoding not in (None, "float", "base64"):
        raise refuse("encoding_format", encoding, '"float" or "base64"')
    return EmbeddingCall(
        dialect=DIALECT,
        model=model,
        inputs=_read_inputs(fields.take("input")),
        dimensions=fields.integer("dimensions", 1),
        base64=encoding == "base64",
        user=fields.string("user"),
        extra=fields.left,
    )


def _read_inputs(value: Any) -> tuple[str | tuple[int, ...], ...]:
    if isinstance(value, str):
        return (_read_input(value, "input"),)
    if not isinstance(value, list) or not value:
        raise refuse("input", value, "a text, a list of token ids, or a list of these")
    if whole(value[0]) is not None:
        return (_read_input(value, "input"),)
    return tuple(_read_input(entry, f"input[{at}]") for at, entry in enumerate(value))


def _read_input(value: Any, at: str) -> str | tuple[int, ...]:
    if isinstance(value, str):
        if not value:
            raise refuse(at, value, "a text of at least one character")
        return value
    if not isinstance(value, list) or not value:
        raise refuse(at, value, "a text or a list of token ids")
    for token in value:
        if whole(token) is None or token < 0:
            raise refuse(at, value, "a list of token ids, integers of 0 or more")
    return tuple(value)


def write_embeddings(call: EmbeddingCall, model: str, variant: Variant) -> EmbeddingExchange:
    """One request for all inputs."""
    dropped: list[str] = []
    inputs: list[Any] = [entry if isinstance(entry, str) else list(entry) for entry in call.inputs]
    body: dict[str, Any] = {"model": model, "input": inputs[0] if len(inputs) == 1 else inputs}
    if variant.base64_embeddings:
        body["encoding_format"] = "base64"
    if call.dimensions is not None:
        body["dimensions"] = call.dimensions
    if call.user is not None:
        if "user" in variant.takes:
            body["user"] = call.user
        else:
            dropped.append("user")
    if call.task is not None:
        if variant.embedding_task_field is not None:
            body[variant.embedding_task_field] = call.task
        else:
            dropped.append("task")
    if call.dialect == DIALECT:
        add_missing(body, call.extra)
    else:
        dropped += [f"extra.{name}" for name in call.extra]
    path = path_for(variant.embeddings_path, model)
    headers = {"Content-Type": "application/json"}
    return EmbeddingExchange(
        (EncodedRequest(path, headers, msgspec.json.encode(body), tuple(dropped)),)
    )


def read_embeddings(bodies: tuple[bytes, ...]) -> EmbeddingReply:
    """Raises DamagedReplyError. Vectors are put in order by their index, where they have one."""
    if len(bodies) != 1:
        raise DamagedReplyError(f"{len(bodies)} replies to one request")
    try:
        reply = msgspec.json.decode(bodies[0])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise DamagedReplyError(f"the reply is not JSON: {error}") from None
    if not isinstance(reply, dict):
        raise DamagedReplyError("the reply is not a JSON object")
    data = objects(reply.get("data"))
    failure = failure_in(reply) if not data else None
    if failure is not None:
        raise DamagedReplyError(f"the reply is an error: {failure.message}", failure)
    if not data:
        raise DamagedReplyError("the reply has no embeddings")
    indices = [whole(item.get("index")) for item in data]
    if sorted(index for index in indices if index is not None) == list(range(len(data))):
        data = [item for _, item in sorted(zip(indices, data, strict=True), key=_index_of)]
    return EmbeddingReply(
        model=text(reply.get("model")),
        vectors=tuple(_vector(item.get("embedding"), at) for at, item in enumerate(data)),
        usage=_usage(mapping(reply.get("usage"))),
    )


class _Counted(msgspec.Struct):
    data: list[msgspec.Raw]
    usage: Any = None


_COUNTED = msgspec.json.Decoder(_Counted)


def read_embedding_usage(body: bytes) -> TokenUsage | None:
    """The usage of a reply that is passed through; its vectors are skipped. Raises
    DamagedReplyError."""
    try:
        found = _COUNTED.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return read_embeddings((body,)).usage  # what is wrong with it
    if not found.data:
        raise DamagedReplyError("the reply has no embeddings")
    return _usage(mapping(found.usage))


def _index_of(pair: tuple[int | None, dict[str, Any]]) -> int:
    return pair[0] or 0


def _usage(usage: dict[str, Any]) -> TokenUsage | None:
    """Some count the total alone."""
    if usage and "prompt_tokens" not in usage:
        usage = {**usage, "prompt_tokens": usage.get("total_tokens")}
    return read_usage(usage)


def _vector(value: Any, at: int) -> bytes:
    if isinstance(value, str):
        return decoded(value)
    if not isinstance(value, list) or not value:
        raise DamagedReplyError(f"data[{at}].embedding is not a list of numbers")
    for number in value:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise DamagedReplyError(f"data[{at}].embedding is not a list of numbers")
    return packed(value)


def write_embedding_reply(reply: EmbeddingReply, call: EmbeddingCall) -> bytes:
    """The body of a 200, vectors as `call` wants them."""
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(vector).decode() if call.base64 else shortest(vector),
        }
        for index, vector in enumerate(reply.vectors)
    ]
    tokens = reply.usage.prompt_tokens if reply.usage is not None else 0
    return msgspec.json.encode(
        {
            "object": "list",
            "data": data,
            "model": reply.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )


def shortest(vector: bytes) -> list[float | None]:
    """Numbers that are read back as the same float32, with as few digits as that takes.

    A number that is none becomes null, as JSON has no word for it.
    """
    exact = struct.unpack(f"<{len(vector) // 4}f", vector)
    if not all(map(math.isfinite, exact)):
        return [number if math.isfinite(number) else None for number in exact]
    found: list[float | None] = []
    rounded = [[float(f"{number:.{digits}g}") for number in exact] for digits in (7, 8)]
    again = [struct.unpack(f"<{len(exact)}f", struct.pack(f"<{len(exact)}f", *r)) for r in rounded]
    for at, number in enumerate(exact):
        fit = next((r[at] for r, a in zip(rounded, again, strict=True) if a[at] == number), None)
        found.append(float(f"{number:.9g}") if fit is None else fit)
    return found
