"""A model's answer as it comes: events in order, the same from every provider.

The grammar, which readers keep and writers rely on:

    Began  (PartBegan  PartGrew*  PartEnded | CompletePart)*  Finished*  Counted?  Ended
    ... or Failed at any place, which ends the stream.

Parts of one choice do not overlap, except tool calls, which may be open side by side; `part` is the
part's number within its choice, counted from 0 without gaps. Counted comes once: a provider that
tells usage again and again is summed up by its reader.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import Part, Signature
from headrace.protocol.neutral.reply import Finish
from headrace.protocol.neutral.usage import TokenUsage

Kind = Literal["text", "thinking", "refusal", "tool_call"]


class Began(msgspec.Struct, frozen=True, kw_only=True):
    """The provider answers. No content yet: nothing is lost if another is asked instead.

    usage: what is known of it by now (Anthropic tells the input first). service_tier: as told by
    now; where Counted tells one too, that one holds. dialect: of the provider, "" if its reader
    does not say; it tells whose words the answer's extras are.
    """

    id: str
    model: str
    created_s: int | None = None
    usage: TokenUsage | None = None
    service_tier: str | None = None
    extra: dict[str, Any] = {}
    dialect: str = ""


class PartBegan(msgspec.Struct, frozen=True, kw_only=True):
    """id, name: of a tool call; id also of a thought. summary: of a thought, as in Thinking.

    extra: what is known of the part before it grows.
    """

    choice: int
    part: int
    kind: Kind
    id: str = ""
    name: str = ""
    summary: bool = False
    extra: dict[str, Any] = {}


class PartGrew(msgspec.Struct, frozen=True, kw_only=True):
    """text: of the part, or a piece of a tool call's arguments. Joined they are the part."""

    choice: int
    part: int
    text: str
    logprobs: list[dict[str, Any]] | None = None
    extra: dict[str, Any] = {}


class PartEnded(msgspec.Struct, frozen=True, kw_only=True):
    """signature: of the whole part, for the turn after."""

    choice: int
    part: int
    signature: Signature | None = None


class CompletePart(msgspec.Struct, frozen=True, kw_only=True):
    """A part that came in one piece: a picture, hidden thoughts, what only its dialect knows."""

    choice: int
    part: int
    value: Part


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """A choice is whole; once for each."""

    choice: int
    reason: Finish
    stop_sequence: str | None = None
    extra: dict[str, Any] = {}


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer took. extra: what else the provider said of the whole answer by then."""

    usage: TokenUsage
    service_tier: str | None = None
    extra: dict[str, Any] = {}


class Ended(msgspec.Struct, frozen=True):
    """The provider said that this was all. A stream that stops without it was cut."""


class Failed(msgspec.Struct, frozen=True):
    """The provider gave up in the middle."""

    failure: Failure


Event: TypeAlias = (
    Began | PartBegan | PartGrew | PartEnded | CompletePart | Finished | Counted | Ended | Failed
)


def has_content(event: Event) -> bool:
    """Whether a client may see something of the model in it: after it nobody else can be asked."""
    if isinstance(event, PartGrew):
        return bool(event.text)
    if isinstance(event, PartBegan):
        return event.kind == "tool_call"
    return isinstance(event, CompletePart | Finished)
