"""Embeddings: texts in, vectors out."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import msgspec

from headrace.protocol.neutral.dialect import EncodedRequest, Headers
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.usage import TokenUsage


class EmbeddingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request for embeddings."""

    dialect: str
    model: str
    inputs: tuple[str | tuple[int, ...], ...]
    """Texts, or lists of token ids."""
    dimensions: int | None = None
    base64: bool = False
    """Whether the client expects vectors as base64 of little-endian float32."""
    task: str | None = None
    """As Gemini and Cohere name it ("query", ...)."""
    user: str | None = None
    extra: dict[str, Any] = {}


class EmbeddingReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a request for embeddings."""

    model: str
    vectors: tuple[bytes, ...]
    """In the order of the inputs, little-endian float32 bytes each."""
    usage: TokenUsage | None = None


class EmbeddingExchange(NamedTuple):
    """An exchange of more than one request where a provider takes one text at a time; replies in
    their order.
    """

    requests: tuple[EncodedRequest, ...]


class EmbeddingProvider(Protocol):
    """A dialect in which providers make embeddings."""

    @property
    def name(self) -> str:
        """The name of the dialect."""

    def write_embeddings(self, call: EmbeddingCall, model: str) -> EmbeddingExchange:
        """Raises RequestError if it cannot be said."""

    def read_embeddings(self, bodies: tuple[bytes, ...]) -> EmbeddingReply:
        """Raises DamagedReplyError if they are none."""

    def read_failure(self, status: int, headers: Headers, body: bytes) -> Failure:
        """As for a chat."""
