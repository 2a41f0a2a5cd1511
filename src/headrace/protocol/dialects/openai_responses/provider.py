"""The Responses API as providers speak it."""

from __future__ import annotations

import dataclasses

from headrace.protocol.dialects.openai_responses.reply.failures import read_failure
from headrace.protocol.dialects.openai_responses.reply.read_reply import read_reply
from headrace.protocol.dialects.openai_responses.reply.stream_reader import ResponsesStreamReader
from headrace.protocol.dialects.openai_responses.request.write_call import write_call
from headrace.protocol.dialects.openai_responses.sealed import OPENAI
from headrace.protocol.dialects.openai_responses.values import DIALECT
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest, Headers
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import ChatReply


@dataclasses.dataclass(frozen=True)
class OpenAIResponsesProvider:
    """The ProviderSide of OpenAI's Responses API."""

    name: str = DIALECT
    prompt_cache_field: str | None = "prompt_cache_key"
    origin: str = OPENAI
    """The vendor whose encrypted_content the provider returns and accepts."""
    takes_unsigned_thoughts: bool = False
    """Whether it accepts thoughts without a signature (DeepSeek, vLLM), which OpenAI does not."""

    def write_call(self, call: ChatCall, model: str) -> EncodedRequest:
        """Raises RequestError for media that the API has no place for."""
        return write_call(call, model, origin=self.origin, unsigned=self.takes_unsigned_thoughts)

    def read_reply(self, body: bytes) -> ChatReply:
        """Raises DamagedReplyError for an invalid response, and for one that failed."""
        return read_reply(body, self.origin)

    def stream_reader(self, call: ChatCall) -> ResponsesStreamReader:
        """A reader for one answer."""
        return ResponsesStreamReader(self.origin)

    def read_failure(self, status: int, headers: Headers, body: bytes) -> Failure:
        """Any body at all."""
        return read_failure(status, headers, body)


PROVIDER = OpenAIResponsesProvider()
