"""Anthropic's models on Vertex AI: the same bodies, but for the model, which is in the path.

Source: docs.anthropic.com/en/api/claude-on-vertex-ai, and the Vertex client of Anthropic's own
Python package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import quote

from headrace.protocol.dialects.anthropic.provider import AnthropicProvider
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest

_VERSION: Final = b'"vertex-2023-10-16"'

VERTEX_EDITS: Final[Mapping[str, bytes | None]] = MappingProxyType(
    {"model": None, "anthropic_version": _VERSION}
)
"""What a body for api.anthropic.com becomes: JSON of each field, None for one that goes."""


class VertexPlace(NamedTuple):
    """A Vertex AI project and location."""

    project: str
    location: str

    def path(self, model: str, *, stream: bool) -> str:
        """The path that answers with `model`, as "claude-sonnet-4-5@20250929"."""
        action = "streamRawPredict" if stream else "rawPredict"
        return f"{self._models}/{quote(model, safe='@')}:{action}"

    @property
    def count_path(self) -> str:
        """The path that counts tokens; the model is in the body there."""
        return f"{self._models}/count-tokens:rawPredict"

    @property
    def _models(self) -> str:
        project, location = quote(self.project, safe=""), quote(self.location, safe="")
        return f"/v1/projects/{project}/locations/{location}/publishers/anthropic/models"


@dataclass(frozen=True, kw_only=True)
class VertexAnthropicProvider(AnthropicProvider):
    """A ProviderSide of {location}-aiplatform.googleapis.com."""

    place: VertexPlace

    def write_call(self, call: ChatCall, model: str) -> EncodedRequest:
        """`call` for the provider's `model`; raises RequestError if it cannot be said at all."""
        written = super().write_call(call, model)
        body = JsonObject.read(written.body).edited(VERTEX_EDITS)
        return written._replace(path=self.place.path(model, stream=call.stream), body=body)

    def write_count(self, call: ChatCall, model: str) -> EncodedRequest:
        """A request for the number of tokens of `call`."""
        written = super().write_count(call, model)
        body = JsonObject.read(written.body).edited({"anthropic_version": _VERSION})
        return written._replace(path=self.place.count_path, body=body)
