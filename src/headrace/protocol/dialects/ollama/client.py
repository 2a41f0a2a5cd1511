"""Clients that speak Ollama's API: chat and embeddings."""

from __future__ import annotations

from typing import Protocol

from headrace.protocol.dialects.ollama import embeddings
from headrace.protocol.dialects.ollama.reply import write_reply
from headrace.protocol.dialects.ollama.reply.stream_writer import OllamaStreamWriter
from headrace.protocol.dialects.ollama.reply.usage import NO_DURATIONS, Durations
from headrace.protocol.dialects.ollama.request.field_paths import FIELD_PATHS
from headrace.protocol.dialects.ollama.request.read_call import read_call
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.citation import NO_SOURCE, Source
from headrace.protocol.neutral.dialect import Headers, StreamWriter
from headrace.protocol.neutral.embedding import EmbeddingCall, EmbeddingReply
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.losses import FieldPaths
from headrace.protocol.neutral.reply import ChatReply


class TimedWriter(StreamWriter, Protocol):
    """A writer whose last line has the times of the answer, which may be set until then."""

    durations: Durations


class OllamaClient:
    """A ClientSide for one answer; Ollama's answers contain times.

    created_at: RFC 3339; "" for the time in an Ollama provider's own answer, or else 1970.
    durations: written unless the answer comes from an Ollama server; zero if none were given. A
    stream's writer has its own.
    """

    name = "ollama"
    field_paths: FieldPaths = FIELD_PATHS
    cited_sources: frozenset[Source] = NO_SOURCE

    def __init__(self, created_at: str = "", durations: Durations = NO_DURATIONS) -> None:
        self.created_at = created_at
        self.durations = durations

    def read_call(self, body: bytes, path: str, headers: Headers) -> ChatCall:
        """A body of POST /api/chat; see `load` for one without messages."""
        return read_call(body)

    def write_reply(self, reply: ChatReply, call: ChatCall) -> bytes:
        """The first choice: Ollama's answers are one."""
        return write_reply.write_reply(reply, call, self.created_at, self.durations)

    def stream_writer(self, call: ChatCall) -> TimedWriter:
        """A writer of lines."""
        return OllamaStreamWriter(call.model, self.created_at)

    def stream_type(self) -> str:
        """A line of JSON for each chunk."""
        return "application/x-ndjson"

    def write_failure(self, failure: Failure, status: int, request_id: str) -> bytes:
        """A text; Ollama's errors hold neither status nor id."""
        return write_reply.write_failure(failure)

    def read_embedding_call(self, body: bytes, path: str, headers: Headers) -> EmbeddingCall:
        """A body of POST /api/embed."""
        return embeddings.read_embedding_call(body)

    def write_embedding_reply(self, reply: EmbeddingReply, call: EmbeddingCall) -> bytes:
        """The body of a 200."""
        return embeddings.write_embedding_reply(reply, call, self.durations)


CLIENT = OllamaClient()
