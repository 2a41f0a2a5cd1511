"""OpenAI chat completions and embeddings as clients speak them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from headrace.protocol.dialects.openai_chat import embeddings
from headrace.protocol.dialects.openai_chat.reply import write_failure, write_reply
from headrace.protocol.dialects.openai_chat.reply.citations import WEB_PAGES
from headrace.protocol.dialects.openai_chat.reply.stream_writer import ChatStreamWriter
from headrace.protocol.dialects.openai_chat.request import read_call
from headrace.protocol.dialects.openai_chat.request.field_paths import FIELD_PATHS
from headrace.protocol.dialects.openai_chat.values import DIALECT
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.citation import Source
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.embedding import EmbeddingCall, EmbeddingReply
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.losses import FieldPaths
from headrace.protocol.neutral.reply import ChatReply

NO_HEADERS: Final[Headers] = MappingProxyType({})


class OpenAIChatClient:
    """A `ClientSide`, and the same for embeddings."""

    name: str = DIALECT
    field_paths: FieldPaths = FIELD_PATHS
    cited_sources: frozenset[Source] = WEB_PAGES

    def read_call(self, body: bytes, path: str, headers: Headers) -> ChatCall:
        """Raises RequestError naming the field at fault."""
        return read_call.read_call(body)

    def write_reply(self, reply: ChatReply, call: ChatCall) -> bytes:
        """The body of a 200."""
        return write_reply.write_reply(reply, call)

    def stream_writer(self, call: ChatCall) -> ChatStreamWriter:
        """A writer for one answer to `call`."""
        return ChatStreamWriter(call)

    def stream_type(self) -> str:
        """Content type of a stream."""
        return "text/event-stream; charset=utf-8"

    def write_failure(self, failure: Failure, status: int, request_id: str) -> bytes:
        """The body of a reply with `status`."""
        return write_failure.write_failure(failure, request_id)

    def read_embedding_call(
        self, body: bytes, path: str = "", headers: Headers = NO_HEADERS
    ) -> EmbeddingCall:
        """Raises RequestError naming the field at fault."""
        return embeddings.read_embedding_call(body)

    def write_embedding_reply(self, reply: EmbeddingReply, call: EmbeddingCall) -> bytes:
        """The body of a 200."""
        return embeddings.write_embedding_reply(reply, call)


CLIENT: Final = OpenAIChatClient()
