"""A model's answer, whole."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headrace.protocol.neutral.part import Part
from headrace.protocol.neutral.usage import TokenUsage

# "pause": the provider stopped for the client to send the same again (Anthropic's pause_turn).
Finish = Literal["stop", "length", "tool_calls", "content_filter", "pause"]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. stop_sequence: the stop string that ended it, where the provider says so.

    logprobs: in OpenAI's form, its `content` list. extra: fields without a neutral form.
    """

    index: int = 0
    parts: tuple[Part, ...] = ()
    finish: Finish | None = None
    stop_sequence: str | None = None
    logprobs: list[dict[str, Any]] | None = None
    extra: dict[str, Any] = {}


class ChatReply(msgspec.Struct, frozen=True, kw_only=True):
    """dialect: of the provider. usage: None if it was not told. created_s: Unix time, if told."""

    dialect: str
    id: str
    model: str
    choices: tuple[Choice, ...]
    usage: TokenUsage | None = None
    created_s: int | None = None
    service_tier: str | None = None
    extra: dict[str, Any] = {}
