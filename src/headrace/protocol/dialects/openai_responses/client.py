"""The Responses API as clients speak it."""

from __future__ import annotations

import dataclasses

from headrace.protocol.dialects.openai_responses.reply.failures import write_failure
from headrace.protocol.dialects.openai_responses.reply.stream_writer import ResponsesStreamWriter
from headrace.protocol.dialects.openai_responses.reply.write_reply import write_reply
from headrace.protocol.dialects.openai_responses.request.field_paths import FIELD_PATHS
from headrace.protocol.dialects.openai_responses.request.read_call import read_call
from headrace.protocol.dialects.openai_responses.values import DIALECT
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.citation import EVERY_SOURCE, Source
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.losses import FieldPaths
from headrace.protocol.neutral.reply import ChatReply


@dataclasses.dataclass(frozen=True)
class OpenAIResponsesClient:
    """POST /v1/responses."""

    name: str = DIALECT

    @property
    def cited_sources(self) -> frozenset[Source]:
        """All."""
        return EVERY_SOURCE

    @property
    def field_paths(self) -> FieldPaths:
        """Where its clients write the fields of a neutral call."""
        return FIELD_PATHS

    def read_call(self, body: bytes, path: str, headers: Headers) -> ChatCall:
        """Raises RequestError naming the field at fault."""
        return read_call(body)

    def write_reply(self, reply: ChatReply, call: ChatCall) -> bytes:
        """The response object."""
        return write_reply(reply, call)

    def stream_writer(self, call: ChatCall) -> ResponsesStreamWriter:
        """A writer for one answer."""
        return ResponsesStreamWriter(call)

    def stream_type(self) -> str:
        """Content type of a stream."""
        return "text/event-stream; charset=utf-8"

    def write_failure(self, failure: Failure, status: int, request_id: str) -> bytes:
        """OpenAI's error object; the request's id goes into a header."""
        return write_failure(failure)


CLIENT = OpenAIResponsesClient()
