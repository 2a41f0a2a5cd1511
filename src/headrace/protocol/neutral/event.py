"""A model's answer as it comes: events in order, the same from every provider.

The grammar, which readers keep and writers rely on:

    ReplyStart (PartStart PartDelta* PartEnd | CompletePart)* ChoiceEnd* ReplyUsage? ReplyEnd
    ... or ReplyFailure at any place, which ends the stream.

Parts of one choice do not overlap, except tool calls, which may be open side by side; `part` is the
part's number within its choice, counted from 0 without gaps. ReplyUsage comes once: a reader sums
up what a provider reports several times.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import Part, Signature
from headrace.protocol.neutral.reply import Finish
from headrace.protocol.neutral.usage import TokenUsage

Kind = Literal["text", "thinking", "refusal", "tool_call"]


class ReplyStart(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a reply, before its content: another provider can still be tried without
    loss."""

    id: str
    model: str
    created_s: int | None = None
    usage: TokenUsage | None = None
    """What is known by now (Anthropic reports the input first)."""
    service_tier: str | None = None
    """As reported by now; one in ReplyUsage takes precedence."""
    extra: dict[str, Any] = {}
    dialect: str = ""
    """The provider's, "" if its reader does not set it; it names the dialect of the answer's
    extras."""


class PartStart(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a part of a choice."""

    choice: int
    part: int
    kind: Kind
    id: str = ""
    """Of a tool call or a thought."""
    name: str = ""
    """Of a tool call."""
    summary: bool = False
    """Of a thought, as in Thinking."""
    extra: dict[str, Any] = {}
    """What is known of the part before it grows."""


class PartDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a part of a choice."""

    choice: int
    part: int
    text: str
    """A piece of the text, or of a tool call's arguments; joined, the pieces are the part."""
    logprobs: list[dict[str, Any]] | None = None
    citations: tuple[Citation, ...] = ()
    """Sources of the part so far; spans count from its beginning."""
    extra: dict[str, Any] = {}


class PartEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a part of a choice."""

    choice: int
    part: int
    signature: Signature | None = None
    """Of the whole part, for the next turn."""


class CompletePart(msgspec.Struct, frozen=True, kw_only=True):
    """A part that came in one piece: a picture, hidden thoughts, what only its dialect knows."""

    choice: int
    part: int
    value: Part


class ChoiceEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a choice, once for each."""

    choice: int
    reason: Finish
    stop_sequence: str | None = None
    extra: dict[str, Any] = {}


class ReplyUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of the answer."""

    usage: TokenUsage
    service_tier: str | None = None
    extra: dict[str, Any] = {}
    """What else the provider reported about the whole answer by then."""


class ReplyEnd(msgspec.Struct, frozen=True):
    """The end that the provider declared. A stream that stops without it was cut."""


class ReplyFailure(msgspec.Struct, frozen=True):
    """The provider's failure in the middle of a reply."""

    failure: Failure


Event: TypeAlias = (
    ReplyStart
    | PartStart
    | PartDelta
    | PartEnd
    | CompletePart
    | ChoiceEnd
    | ReplyUsage
    | ReplyEnd
    | ReplyFailure
)


def has_content(event: Event) -> bool:
    """Whether a client may see something of the model in it: after it no other target can be "
    "tried."""
    if isinstance(event, PartDelta):
        return bool(event.text)
    if isinstance(event, PartStart):
        return event.kind == "tool_call"
    return isinstance(event, CompletePart | ChoiceEnd)
