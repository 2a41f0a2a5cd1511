"""Replicate as a provider."""

from __future__ import annotations

from headrace.protocol.dialects.replicate.failures import read_failure
from headrace.protocol.dialects.replicate.prediction import read_reply
from headrace.protocol.dialects.replicate.steps import ReplicateSteps
from headrace.protocol.dialects.replicate.stream_reader import ReplicateStreamReader
from headrace.protocol.dialects.replicate.write_call import write_call
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest, Headers, StreamReader
from headrace.protocol.neutral.event import ReplyStart
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import ChatReply


class ReplicateProvider:
    """A ProviderSide whose answers take several requests: drive them by `steps`.

    Paths begin with /v1. max_tokens_input: the model's name for it, "max_new_tokens" for some.
    own_origin: see `ReplicateSteps`.
    """

    name = "replicate"

    def __init__(self, max_tokens_input: str = "max_tokens", own_origin: str = "") -> None:
        self.max_tokens_input = max_tokens_input
        self.own_origin = own_origin

    def write_call(self, call: ChatCall, model: str) -> EncodedRequest:
        """The first request alone."""
        return write_call(call, model, self.max_tokens_input)

    def steps(self, call: ChatCall, model: str) -> ReplicateSteps:
        """All requests of one answer; raises RequestError as `write_call` does."""
        return ReplicateSteps(call, model, self.max_tokens_input, own_origin=self.own_origin)

    def read_reply(self, body: bytes) -> ChatReply:
        """A prediction that succeeded."""
        return read_reply(body)

    def stream_reader(self, call: ChatCall) -> StreamReader:
        """A reader of the stream alone, which tells neither id nor usage."""
        return ReplicateStreamReader(ReplyStart(id="", model=call.model))

    def read_failure(self, status: int, headers: Headers, body: bytes) -> Failure:
        """The failure in a reply whose status is neither 200 nor 201."""
        return read_failure(status, headers, body)
