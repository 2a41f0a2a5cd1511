"""What an answer is made of, piece by piece: content, reasoning and tool calls.

Joined in order, the pieces are the answer. A call is a start, the pieces of its arguments and an
end, with nothing of another call between them; calls are numbered from 0 without gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """A piece of what the model says to the user."""

    text: str
    """Never empty."""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning."""

    text: str
    """Never empty."""


@dataclass(frozen=True, slots=True)
class CallStart:
    """The start of a tool call."""

    index: int
    """The call's number in the answer."""
    name: str
    """The function's name."""
    id: str
    """As the model wrote it before the arguments; "" if it wrote none there."""


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a call's arguments."""

    index: int
    """The call's number in the answer."""
    arguments: str
    """A piece of JSON text, never empty."""


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The end of a tool call."""

    index: int
    """The call's number in the answer."""
    fault: str
    """Why the arguments are not a JSON object, "" if they are."""


Delta: TypeAlias = ContentDelta | ReasoningDelta | CallStart | CallDelta | CallEnd


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as a whole."""

    name: str
    """The function's name."""
    arguments: str
    """JSON text."""
    id: str
    """As in CallStart."""
    fault: str
    """As in CallEnd."""


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """An answer as a whole."""

    content: str
    """What the model says to the user."""
    reasoning: str
    """The model's reasoning."""
    calls: tuple[ToolCall, ...]
    """In the order in which they were written."""


def joined(deltas: list[Delta]) -> ParsedAnswer:
    """The answer that deltas are the pieces of."""
    content: list[str] = []
    reasoning: list[str] = []
    arguments: list[str] = []
    calls: list[ToolCall] = []
    start = CallStart(0, "", "")
    for delta in deltas:
        match delta:
            case ContentDelta(text):
                content.append(text)
            case ReasoningDelta(text):
                reasoning.append(text)
            case CallStart():
                start, arguments = delta, []
            case CallDelta(_, piece):
                arguments.append(piece)
            case CallEnd(_, fault):
                calls.append(ToolCall(start.name, "".join(arguments), start.id, fault))
    return ParsedAnswer("".join(content), "".join(reasoning), tuple(calls))
