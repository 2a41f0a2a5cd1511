"""A cached answer: in neutral form, so that it can be sent in any dialect."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.neutral.collect import collected, replayed
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Refusal,
    Text,
    Thinking,
    ToolCall,
)
from headrace.protocol.neutral.reply import ChatReply, Choice, Finish
from headrace.protocol.neutral.usage import TokenUsage

MOST_BYTES = 8 * 2**20
"""Limit of one answer. A long text has 100 kB; larger ones are pictures and recordings."""

_KEPT_FINISHES = ("stop", "tool_calls", "length")


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A cached answer."""

    reply: ChatReply
    at_s: float
    """Unix time at which it was complete."""
    model: str
    """The route's name."""
    target: str
    provider: str
    ignored: tuple[str, ...] = ()
    """Parameters that the target does not support."""

    def age_s(self, now_s: float) -> float:
        """Its age; 0 if the clock went back."""
        return max(0.0, now_s - self.at_s)


def is_worth_keeping(reply: ChatReply) -> bool:
    """Whether it is complete, the model's own answer, and can be streamed in full.

    Excluded are answers ended by a filter, answers to be continued (Anthropic's pause), and log
    probabilities of an answer without text.
    """
    return (
        bool(reply.choices)
        and all(choice.finish in _KEPT_FINISHES for choice in reply.choices)
        and collected(reply.dialect, replayed(reply)).choices == reply.choices
    )


# Parts have no tag of their own; these structs add one.
class _Text(msgspec.Struct, tag="text", frozen=True):
    part: Text


class _Refusal(msgspec.Struct, tag="refusal", frozen=True):
    part: Refusal


class _Media(msgspec.Struct, tag="media", frozen=True):
    part: Media


class _Thinking(msgspec.Struct, tag="thinking", frozen=True):
    part: Thinking


class _ToolCall(msgspec.Struct, tag="tool_call", frozen=True):
    part: ToolCall


class _Opaque(msgspec.Struct, tag="opaque", frozen=True):
    part: Opaque


_Tagged = _Text | _Refusal | _Media | _Thinking | _ToolCall | _Opaque
_TAGGED: dict[type, type[Any]] = {
    Text: _Text,
    Refusal: _Refusal,
    Media: _Media,
    Thinking: _Thinking,
    ToolCall: _ToolCall,
    Opaque: _Opaque,
}


class _Choice(msgspec.Struct, frozen=True, kw_only=True):
    parts: tuple[_Tagged, ...]
    index: int
    finish: Finish | None
    stop_sequence: str | None
    logprobs: list[dict[str, Any]] | None
    extra: dict[str, Any]


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    choices: tuple[_Choice, ...]
    dialect: str
    id: str
    model: str
    usage: TokenUsage | None
    created_s: int | None
    service_tier: str | None
    extra: dict[str, Any]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    reply: _Reply
    at_s: float
    model: str
    target: str
    provider: str
    ignored: tuple[str, ...]


_DECODER = msgspec.json.Decoder(_File)
_CANNOT_WRITE = (
    KeyError, TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError,
)  # fmt: skip


def written(kept: Kept) -> bytes | None:
    """The answer as JSON; None if it is too large or would not survive reading."""
    reply = kept.reply
    try:
        choices = tuple(
            _Choice(parts=_tagged(choice), **_but(choice, "parts")) for choice in reply.choices
        )
        file = _File(reply=_Reply(choices=choices, **_but(reply, "choices")), **_but(kept, "reply"))
        data = msgspec.json.encode(file)
    except _CANNOT_WRITE:
        return None
    return data if len(data) <= MOST_BYTES and read(data) == kept else None


def read(data: bytes) -> Kept | None:
    """The answer in bytes from `written`; None for other bytes."""
    try:
        file = _DECODER.decode(data)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None
    choices = tuple(
        Choice(parts=tuple(part.part for part in choice.parts), **_but(choice, "parts"))
        for choice in file.reply.choices
    )
    reply = ChatReply(choices=choices, **_but(file.reply, "choices"))
    return Kept(reply=reply, **_but(file, "reply"))


def _tagged(choice: Choice) -> tuple[_Tagged, ...]:
    return tuple(_TAGGED[type(part)](part) for part in choice.parts)


def _but(of: msgspec.Struct, left_out: str) -> dict[str, Any]:
    """A struct's fields without one of them."""
    return {name: getattr(of, name) for name in of.__struct_fields__ if name != left_out}
