"""A model's answer, whole."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headrace.protocol.neutral.part import Part
from headrace.protocol.neutral.usage import TokenUsage

# "pause": the provider stopped for the client to send the same again (Anthropic's pause_turn).
Finish = Literal["stop", "length", "tool_calls", "content_filter", "pause"]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    index: int = 0
    parts: tuple[Part, ...] = ()
    finish: Finish | None = None
    stop_sequence: str | None = None
    """The stop string that ended it, if the provider reports it."""
    logprobs: list[dict[str, Any]] | None = None
    """In OpenAI's form, its `content` list."""
    extra: dict[str, Any] = {}
    """Fields without a neutral form."""


class ChatReply(msgspec.Struct, frozen=True, kw_only=True):
    """A whole reply."""

    dialect: str
    """The provider's."""
    id: str
    model: str
    choices: tuple[Choice, ...]
    usage: TokenUsage | None = None
    """None if it was not reported."""
    created_s: int | None = None
    """Unix time, if reported."""
    service_tier: str | None = None
    extra: dict[str, Any] = {}
