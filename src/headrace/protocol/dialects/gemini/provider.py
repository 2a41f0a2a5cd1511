"""Gemini and Vertex AI as providers of chat."""

from __future__ import annotations

import msgspec

from headrace.protocol.dialects.gemini.place import GeminiApi, Place
from headrace.protocol.dialects.gemini.reply.failures import failure_of, read_failure
from headrace.protocol.dialects.gemini.reply.read_reply import AnswerReader
from headrace.protocol.dialects.gemini.reply.stream_reader import GeminiStreamReader
from headrace.protocol.dialects.gemini.request.write_call import write_call
from headrace.protocol.dialects.gemini.values import DIALECT
from headrace.protocol.dialects.json_values import mapping, read_object
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.dialect import (
    DamagedReplyError,
    EncodedRequest,
    Headers,
    StreamReader,
)
from headrace.protocol.neutral.event import Event, ReplyFailure
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import ChatReply


class GeminiProvider(msgspec.Struct, frozen=True, kw_only=True):
    """The ProviderSide of Gemini models."""

    place: Place = GeminiApi()
    """The Gemini API, or Vertex AI with project and location."""

    @property
    def name(self) -> str:
        """The dialect's name, the origin of its signatures: the same for both places."""
        return DIALECT

    def write_call(self, call: ChatCall, model: str) -> EncodedRequest:
        """`call` for the provider's `model`; raises RequestError if it cannot be said at all."""
        return write_call(call, model, self.place)

    def read_reply(self, body: bytes) -> ChatReply:
        """The answer; raises DamagedReplyError if it is none, also if the model broke off."""
        reply = read_object(body)
        error = mapping(reply.get("error"))
        if error:
            failure = failure_of(error, None)
            raise DamagedReplyError(failure.message, failure)
        events: list[Event] = []
        reader = AnswerReader()
        reader.take(reply, events)
        events += reader.finish()
        last = events[-1]
        if isinstance(last, ReplyFailure):
            raise DamagedReplyError(last.failure.message, last.failure)
        return collected(DIALECT, events)

    def stream_reader(self, call: ChatCall) -> StreamReader:
        """A reader for one answer."""
        return GeminiStreamReader()

    def read_failure(self, status: int, headers: Headers, body: bytes) -> Failure:
        """Any body at all: what does not parse gives a Failure by the status alone."""
        return read_failure(status, headers, body)
