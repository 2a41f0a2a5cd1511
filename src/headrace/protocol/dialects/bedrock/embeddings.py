"""Embeddings on Bedrock, by InvokeModel: Amazon's Titan and Cohere's models.

Titan takes one text a request, Cohere 96. Cohere wants to know what vectors are for (`input_type`);
a call that does not say gets "search_document", which is for texts that are searched for. Cohere
tells tokens in a header alone (x-amzn-bedrock-input-token-count), so its usage is not told here.

Sources: https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-embed-text.html
and model-parameters-embed.html beside it.
"""

from __future__ import annotations

import struct
from typing import Any
from urllib.parse import quote

import msgspec

from headrace.errors import RequestError
from headrace.protocol.dialects.bedrock.reply.failures import read_failure
from headrace.protocol.dialects.bedrock.reply.usage import count
from headrace.protocol.dialects.bedrock.values import DIALECT, NOT_JSON
from headrace.protocol.dialects.token_count import summed
from headrace.protocol.neutral.dialect import DamagedReplyError, EncodedRequest, Headers
from headrace.protocol.neutral.embedding import EmbeddingCall, EmbeddingExchange, EmbeddingReply
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.usage import TokenUsage

MAX_COHERE_TEXTS = 96
DEFAULT_INPUT_TYPE = "search_document"

_HEADERS = {"content-type": "application/json"}
_INPUT_TYPES = {
    "query": "search_query",
    "search_query": "search_query",
    "retrieval_query": "search_query",
    "question_answering": "search_query",
    "document": "search_document",
    "search_document": "search_document",
    "retrieval_document": "search_document",
    "classification": "classification",
    "clustering": "clustering",
}


class _Reply(msgspec.Struct):
    """A reply: Titan has the first two fields, Cohere the third: a list, or lists by their type."""

    embedding: list[float] | None = None
    inputTextTokenCount: Any = None
    embeddings: list[list[float]] | dict[str, Any] | None = None


class BedrockEmbeddings:
    """An `EmbeddingProvider`."""

    name = DIALECT

    def write_embeddings(self, call: EmbeddingCall, model: str) -> EmbeddingExchange:
        """Raises RequestError for token ids, and for models that are neither Titan's nor Cohere's.

        call.extra: fields of the model's own request, passed on as they are.
        """
        texts = _texts(call)
        if "cohere." in model:
            bodies, dropped = _cohere(call, texts)
        elif "titan-embed" in model:
            bodies, dropped = _titan(call, texts, model)
        else:
            raise RequestError(
                f"model: {model} is not an embedding model that headrace supports on Bedrock; "
                "use a model of amazon.titan-embed or cohere.embed",
                param="model",
                code="unsupported_model",
            )
        if call.user is not None:
            dropped.append("user")
        path = f"/model/{quote(model, safe='')}/invoke"
        return EmbeddingExchange(
            tuple(
                EncodedRequest(
                    path, _HEADERS, msgspec.json.encode(body | call.extra), tuple(dropped)
                )
                for body in bodies
            )
        )

    def read_embeddings(self, bodies: tuple[bytes, ...]) -> EmbeddingReply:
        """The vectors. Raises DamagedReplyError. The reply does not name the model: ""."""
        vectors: list[bytes] = []
        counts: list[int | None] = []
        for body in bodies:
            try:
                reply = msgspec.json.decode(body, type=_Reply)
            except NOT_JSON as error:
                raise DamagedReplyError(f"no embeddings: {error}") from None
            vectors += map(_packed, _vectors(reply))
            counts.append(count(reply.inputTextTokenCount))
        tokens = summed(counts)
        usage = None if tokens is None else TokenUsage(input_tokens=tokens)
        return EmbeddingReply(model="", vectors=tuple(vectors), usage=usage)

    def read_failure(self, status: int, headers: Headers, body: bytes) -> Failure:
        """As for a chat."""
        return read_failure(status, headers, body)


def _texts(call: EmbeddingCall) -> list[str]:
    texts: list[str] = []
    for number, entry in enumerate(call.inputs):
        if not isinstance(entry, str) or not entry:
            what = "token ids" if entry and not isinstance(entry, str) else "an empty input"
            raise RequestError(
                f"input[{number}]: Bedrock does not embed {what}; send text",
                param="input",
                code="invalid_value",
            )
        texts.append(entry)
    return texts


def _titan(
    call: EmbeddingCall, texts: list[str], model: str
) -> tuple[list[dict[str, Any]], list[str]]:
    dropped = [] if call.task is None else ["task"]
    options: dict[str, Any] = {}
    if call.dimensions is not None:
        if "embed-image" in model:
            options["embeddingConfig"] = {"outputEmbeddingLength": call.dimensions}
        elif "embed-text-v2" in model:
            options["dimensions"] = call.dimensions
        else:
            dropped.append("dimensions")
    return [{"inputText": text, **options} for text in texts], dropped


def _cohere(call: EmbeddingCall, texts: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    dropped = []
    kind = DEFAULT_INPUT_TYPE
    if call.task is not None:
        kind = _INPUT_TYPES.get(call.task.lower(), "")
        if not kind:
            dropped.append("task")
            kind = DEFAULT_INPUT_TYPE
    options: dict[str, Any] = {"input_type": kind}
    if call.dimensions is not None:
        options["output_dimension"] = call.dimensions
    return [
        {"texts": texts[at : at + MAX_COHERE_TEXTS], **options}
        for at in range(0, len(texts), MAX_COHERE_TEXTS)
    ], dropped


def _vectors(reply: _Reply) -> list[list[float]]:
    if reply.embedding is not None:
        return [reply.embedding]
    found = reply.embeddings
    if isinstance(found, dict):
        try:
            found = msgspec.convert(found.get("float"), list[list[float]])
        except msgspec.ValidationError as error:
            raise DamagedReplyError(f"embeddings.float: {error}") from None
    if found is None:
        raise DamagedReplyError("the reply has neither embedding nor embeddings")
    return found


def _packed(vector: list[float]) -> bytes:
    if not vector:
        raise DamagedReplyError("an embedding is empty")
    try:
        return struct.pack(f"<{len(vector)}f", *vector)
    except (struct.error, OverflowError):
        raise DamagedReplyError("an embedding has numbers that no float32 holds") from None
