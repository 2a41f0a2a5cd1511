"""The number of tokens of a prompt, counted by its provider."""

from __future__ import annotations

from typing import Protocol

from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest


class TokenCounter(Protocol):
    """A dialect in which providers count."""

    def write_count(self, call: ChatCall, model: str) -> EncodedRequest:
        """Raises RequestError if it cannot be said."""

    def read_token_count(self, body: bytes) -> int:
        """Raises DamagedReplyError if it is none."""
