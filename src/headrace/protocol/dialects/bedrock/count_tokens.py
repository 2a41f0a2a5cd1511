"""Bedrock's CountTokens for a Converse request. Source: the service's description."""

from __future__ import annotations

import msgspec

from headrace.protocol.dialects.bedrock.request.write_call import write_call
from headrace.protocol.dialects.json_values import encoded, read_object
from headrace.protocol.dialects.token_count import read_count
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest

_COUNTED = ("messages", "system", "toolConfig", "additionalModelRequestFields")


class BedrockTokenCounter:
    """A `TokenCounter` for Bedrock. vendor: see `family_of`."""

    def __init__(self, vendor: str = "") -> None:
        self._vendor = vendor

    def write_count(self, call: ChatCall, model: str) -> EncodedRequest:
        """Raises RequestError if it cannot be said."""
        whole = msgspec.structs.replace(call, stream=False)
        written = write_call(whole, model, self._vendor)
        body = read_object(written.body)
        asked = {name: body[name] for name in _COUNTED if name in body}
        return written._replace(
            path=f"{written.path.removesuffix('/converse')}/count-tokens",
            body=encoded({"input": {"converse": asked}}),
        )

    def read_token_count(self, body: bytes) -> int:
        """Raises DamagedReplyError if it is none."""
        return read_count(body, "inputTokens")
