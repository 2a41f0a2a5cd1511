"""The reader of completions. Requests are clients' own, so none is written."""

from __future__ import annotations

from typing import Final

from headrace.protocol.dialects.openai_chat.reply import failures
from headrace.protocol.dialects.openai_completions.read_reply import read_reply
from headrace.protocol.dialects.openai_completions.stream_reader import CompletionStreamReader
from headrace.protocol.dialects.openai_completions.values import DIALECT
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import ChatReply


class OpenAICompletionsReplies:
    """A `ReplySide`."""

    name: str = DIALECT

    def read_reply(self, body: bytes) -> ChatReply:
        """Raises DamagedReplyError if it is none."""
        return read_reply(body)

    def stream_reader(self, call: ChatCall) -> CompletionStreamReader:
        """A reader for one answer."""
        return CompletionStreamReader()

    def read_failure(self, status: int, headers: Headers, body: bytes) -> Failure:
        """Any body at all."""
        return failures.read_failure(status, headers, body)


REPLIES: Final = OpenAICompletionsReplies()
