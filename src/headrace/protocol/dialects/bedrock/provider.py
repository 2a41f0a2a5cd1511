"""Bedrock as a provider of chats."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.protocol.dialects.bedrock.reply.failures import read_failure
from headrace.protocol.dialects.bedrock.reply.read_reply import read_reply
from headrace.protocol.dialects.bedrock.reply.stream_reader import ConverseStreamReader
from headrace.protocol.dialects.bedrock.request.write_call import write_call
from headrace.protocol.dialects.bedrock.values import DIALECT
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest, Headers
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import ChatReply


@dataclass(frozen=True)
class BedrockProvider:
    """A `ProviderSide` for Bedrock. vendor: the vendor of a model behind an ARN that does not show
    it."""

    vendor: str = ""

    name = DIALECT

    def write_call(self, call: ChatCall, model: str) -> EncodedRequest:
        """`call` for a model id, an inference profile or an ARN."""
        return write_call(call, model, self.vendor)

    def read_reply(self, body: bytes) -> ChatReply:
        """Raises DamagedReplyError if it is none."""
        return read_reply(body)

    def stream_reader(self, call: ChatCall) -> ConverseStreamReader:
        """A reader for one answer."""
        return ConverseStreamReader()

    def read_failure(self, status: int, headers: Headers, body: bytes) -> Failure:
        """Any body at all."""
        return read_failure(status, headers, body)
