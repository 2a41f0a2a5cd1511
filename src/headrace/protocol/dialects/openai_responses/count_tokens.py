"""POST /responses/input_tokens, for clients and providers. Source: OpenAI's API description."""

from __future__ import annotations

import msgspec

from headrace.protocol.dialects.json_values import encoded, read_object
from headrace.protocol.dialects.openai_responses.provider import OpenAIResponsesProvider
from headrace.protocol.dialects.token_count import read_count
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest

COUNT_PATH = "/responses/input_tokens"
_COUNTED = (
    "model", "input", "previous_response_id", "tools", "text", "reasoning", "truncation",
    "instructions", "personality", "conversation", "tool_choice", "parallel_tool_calls",
)  # fmt: skip


class ResponsesTokenCounter:
    """A `TokenCounter` of OpenAI's."""

    def __init__(self) -> None:
        self._side = OpenAIResponsesProvider()

    def write_count(self, call: ChatCall, model: str) -> EncodedRequest:
        """Raises RequestError if it cannot be said."""
        whole = msgspec.structs.replace(call, stream=False)
        written = self._side.write_call(whole, model)
        body = read_object(written.body)
        counted = {name: body[name] for name in _COUNTED if name in body}
        return written._replace(path=COUNT_PATH, body=encoded(counted))

    def read_token_count(self, body: bytes) -> int:
        """Raises DamagedReplyError if it is none."""
        return read_count(body, "input_tokens")


def write_token_count(tokens: int) -> bytes:
    """The body of a 200."""
    return msgspec.json.encode({"object": "response.input_tokens", "input_tokens": tokens})
