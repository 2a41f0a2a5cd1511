"""The client side of the Messages API: POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.protocol.dialects.anthropic.reply.failures import write_failure
from headrace.protocol.dialects.anthropic.reply.stream_writer import AnthropicStreamWriter
from headrace.protocol.dialects.anthropic.reply.write_reply import write_reply, write_token_count
from headrace.protocol.dialects.anthropic.request.field_paths import FIELD_PATHS
from headrace.protocol.dialects.anthropic.request.read_call import read_call
from headrace.protocol.dialects.anthropic.values import NAME
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.citation import EVERY_SOURCE, Source
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.losses import FieldPaths
from headrace.protocol.neutral.reply import ChatReply


@dataclass(frozen=True)
class AnthropicClient:
    """A ClientSide; beside it what count_tokens needs."""

    name: str = NAME

    @property
    def cited_sources(self) -> frozenset[Source]:
        """All."""
        return EVERY_SOURCE

    @property
    def field_paths(self) -> FieldPaths:
        """Where its clients write the fields of a neutral call."""
        return FIELD_PATHS

    def read_call(self, body: bytes, path: str, headers: Headers) -> ChatCall:
        """Raises RequestError naming the field at fault.

        path: one that ends in /count_tokens is a request to count, without max_tokens.
        """
        return read_call(body, headers, counting=is_count(path))

    def write_reply(self, reply: ChatReply, call: ChatCall) -> bytes:
        """The body of a 200."""
        return write_reply(reply)

    def stream_writer(self, call: ChatCall) -> AnthropicStreamWriter:
        """A writer for one answer to `call`."""
        return AnthropicStreamWriter()

    def stream_type(self) -> str:
        """Content type of a stream."""
        return "text/event-stream; charset=utf-8"

    def write_failure(self, failure: Failure, status: int, request_id: str) -> bytes:
        """The body of a reply with `status`, an error in this dialect."""
        return write_failure(failure, request_id)

    def write_token_count(self, tokens: int) -> bytes:
        """The body of a 200 of count_tokens."""
        return write_token_count(tokens)


def is_count(path: str) -> bool:
    """Whether a request's path is count_tokens'."""
    return path.partition("?")[0].rstrip("/").endswith("/count_tokens")


CLIENT = AnthropicClient()
