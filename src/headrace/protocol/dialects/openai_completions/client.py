"""OpenAI's completions as clients speak them."""

from __future__ import annotations

from typing import Final

from headrace.protocol.dialects.openai_chat.reply.write_failure import write_failure
from headrace.protocol.dialects.openai_chat.request.field_paths import FIELD_PATHS
from headrace.protocol.dialects.openai_completions.read_call import read_call
from headrace.protocol.dialects.openai_completions.stream_writer import CompletionStreamWriter
from headrace.protocol.dialects.openai_completions.values import DIALECT
from headrace.protocol.dialects.openai_completions.write_reply import write_reply
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.citation import NO_SOURCE, Source
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.losses import FieldPaths
from headrace.protocol.neutral.reply import ChatReply


class OpenAICompletionsClient:
    """A `ClientSide`."""

    name: str = DIALECT
    field_paths: FieldPaths = FIELD_PATHS
    cited_sources: frozenset[Source] = NO_SOURCE

    def read_call(self, body: bytes, path: str, headers: Headers) -> ChatCall:
        """Raises RequestError naming the field at fault."""
        return read_call(body)

    def write_reply(self, reply: ChatReply, call: ChatCall) -> bytes:
        """The body of a 200."""
        return write_reply(reply)

    def stream_writer(self, call: ChatCall) -> CompletionStreamWriter:
        """A writer for one answer to `call`."""
        return CompletionStreamWriter(call)

    def stream_type(self) -> str:
        """Content type of a stream."""
        return "text/event-stream; charset=utf-8"

    def write_failure(self, failure: Failure, status: int, request_id: str) -> bytes:
        """The body of a reply with `status`: the same as of a chat."""
        return write_failure(failure, request_id)


CLIENT: Final = OpenAICompletionsClient()
