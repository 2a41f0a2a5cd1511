"""Gemini's countTokens. Source: generative_service.proto; Vertex AI's reference of countTokens."""

from __future__ import annotations

import msgspec

from headrace.protocol.dialects.gemini.place import Place, VertexAi
from headrace.protocol.dialects.gemini.request.write_call import write_call
from headrace.protocol.dialects.json_values import encoded, read_object
from headrace.protocol.dialects.token_count import read_count
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest

# Of a request to Vertex AI; the Gemini API takes all of it, as one object.
_COUNTED = ("contents", "systemInstruction", "tools", "generationConfig")


class GeminiTokenCounter(msgspec.Struct, frozen=True, kw_only=True):
    """A `TokenCounter` of the Gemini API or of Vertex AI."""

    place: Place

    def write_count(self, call: ChatCall, model: str) -> EncodedRequest:
        """Raises RequestError if it cannot be said."""
        path = self.place.path(model, "countTokens")
        whole = msgspec.structs.replace(call, stream=False)
        written = write_call(whole, model, self.place)
        body = read_object(written.body)
        if isinstance(self.place, VertexAi):
            body = {name: body[name] for name in _COUNTED if name in body}
        else:
            _, _, name = path.removesuffix(":countTokens").removeprefix("/").partition("/")
            body = {"generateContentRequest": {"model": name, **body}}
        return written._replace(path=path, body=encoded(body))

    def read_token_count(self, body: bytes) -> int:
        """Raises DamagedReplyError if it is none."""
        return read_count(body, "totalTokens")
