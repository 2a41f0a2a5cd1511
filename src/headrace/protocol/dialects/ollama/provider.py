"""Ollama as a provider: chat and embeddings."""

from __future__ import annotations

from headrace.protocol.dialects.ollama.embeddings import read_embeddings, write_embeddings
from headrace.protocol.dialects.ollama.reply.failures import read_failure
from headrace.protocol.dialects.ollama.reply.read_reply import read_reply
from headrace.protocol.dialects.ollama.reply.stream_reader import OllamaStreamReader
from headrace.protocol.dialects.ollama.request.write_call import write_call
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest, Headers, StreamReader
from headrace.protocol.neutral.embedding import EmbeddingCall, EmbeddingExchange, EmbeddingReply
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import ChatReply


class OllamaProvider:
    """A ProviderSide and an EmbeddingProvider. Paths begin with /api."""

    name = "ollama"

    def write_call(self, call: ChatCall, model: str) -> EncodedRequest:
        """As `write_call.write_call`."""
        return write_call(call, model)

    def read_reply(self, body: bytes) -> ChatReply:
        """As `read_reply.read_reply`."""
        return read_reply(body)

    def stream_reader(self, call: ChatCall) -> StreamReader:
        """A reader of lines."""
        return OllamaStreamReader()

    def read_failure(self, status: int, headers: Headers, body: bytes) -> Failure:
        """As `failures.read_failure`."""
        return read_failure(status, headers, body)

    def write_embeddings(self, call: EmbeddingCall, model: str) -> EmbeddingExchange:
        """As `embeddings.write_embeddings`."""
        return write_embeddings(call, model)

    def read_embeddings(self, bodies: tuple[bytes, ...]) -> EmbeddingReply:
        """As `embeddings.read_embeddings`."""
        return read_embeddings(bodies)


PROVIDER = OllamaProvider()
