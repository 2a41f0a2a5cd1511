"""Cohere as a provider of chats and of embeddings."""

from __future__ import annotations

from headrace.protocol.dialects.cohere import embeddings
from headrace.protocol.dialects.cohere.names import DIALECT
from headrace.protocol.dialects.cohere.reply.failures import read_failure
from headrace.protocol.dialects.cohere.reply.read_reply import read_reply
from headrace.protocol.dialects.cohere.reply.stream_reader import CohereStreamReader
from headrace.protocol.dialects.cohere.request.write_call import write_call
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest, Headers
from headrace.protocol.neutral.embedding import (
    EmbeddingCall,
    EmbeddingExchange,
    EmbeddingReply,
)
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import ChatReply


class CohereProvider:
    """A `ProviderSide` and an `EmbeddingProvider`."""

    name = DIALECT

    def write_call(self, call: ChatCall, model: str) -> EncodedRequest:
        """`call` for Cohere's `model`; its base URL has no version in it."""
        return write_call(call, model)

    def read_reply(self, body: bytes) -> ChatReply:
        """Raises DamagedReplyError if it is none."""
        return read_reply(body)

    def stream_reader(self, call: ChatCall) -> CohereStreamReader:
        """A reader for one answer."""
        return CohereStreamReader()

    def write_embeddings(self, call: EmbeddingCall, model: str) -> EmbeddingExchange:
        """One request for every 96 texts."""
        return embeddings.write_embeddings(call, model)

    def read_embeddings(self, bodies: tuple[bytes, ...]) -> EmbeddingReply:
        """Raises DamagedReplyError if they are none."""
        return embeddings.read_embeddings(bodies)

    def read_failure(self, status: int, headers: Headers, body: bytes) -> Failure:
        """Any body at all."""
        return read_failure(status, headers, body)
