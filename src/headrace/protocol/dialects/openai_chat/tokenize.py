"""POST /tokenize of engines: vLLM's, and our own. Source: vLLM's API description."""

from __future__ import annotations

import msgspec

from headrace.protocol.dialects.json_values import encoded, read_object
from headrace.protocol.dialects.openai_chat.request.write_call import write_call
from headrace.protocol.dialects.openai_chat.variant import Variant
from headrace.protocol.dialects.token_count import read_count
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest

_COUNTED = ("model", "messages", "tools", "chat_template_kwargs")


class EngineTokenCounter:
    """A `TokenCounter`; its path lies beside /v1, not below it."""

    def __init__(self, variant: Variant) -> None:
        self._variant = variant

    def write_count(self, call: ChatCall, model: str) -> EncodedRequest:
        """Raises RequestError if it cannot be said."""
        whole = msgspec.structs.replace(call, stream=False)
        written = write_call(whole, model, self._variant)
        body = read_object(written.body)
        asked = {name: body[name] for name in _COUNTED if name in body}
        return written._replace(path="/tokenize", body=encoded(asked))

    def read_token_count(self, body: bytes) -> int:
        """Raises DamagedReplyError if it is none."""
        return read_count(body, "count")
