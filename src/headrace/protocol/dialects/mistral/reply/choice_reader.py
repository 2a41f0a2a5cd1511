"""A reader of one choice, whole or streamed: its messages become events.

The `content` of a message or a delta is a text, or chunks of several types.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from headrace.protocol.dialects.json_values import json_text, mapping, objects, text
from headrace.protocol.dialects.mistral.names import DIALECT, SIGNER
from headrace.protocol.dialects.mistral.reply.citations import read_citations
from headrace.protocol.neutral.arguments import GrowingArguments
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.event import (
    CompletePart,
    Event,
    Kind,
    PartDelta,
    PartEnd,
    PartStart,
)
from headrace.protocol.neutral.part import Opaque, Signature


class Piece(NamedTuple):
    """A piece of text or of thoughts."""

    kind: Kind
    text: str
    signature: Signature | None = None


class Sources(NamedTuple):
    """The sources of the text before them."""

    citations: tuple[Citation, ...]


def read_content(content: Any) -> list[Piece | Sources | Opaque]:
    """The pieces in order. Chunks that only Mistral knows are Opaque.

    Chunks among thoughts that are not text come after them.
    """
    if isinstance(content, str):
        return [Piece("text", content)] if content else []
    found: list[Piece | Sources | Opaque] = []
    for chunk in objects(content):
        kind = chunk.get("type", "text")
        if kind == "text":
            if text(chunk.get("text")):
                found.append(Piece("text", text(chunk.get("text"))))
        elif kind == "thinking":
            found += _thinking(chunk)
        elif citations := read_citations(chunk):
            found.append(Sources(citations))
        else:
            found.append(Opaque(DIALECT, chunk))
    return found


def _thinking(chunk: dict[str, Any]) -> list[Piece | Opaque]:
    thoughts = chunk.get("thinking")
    signed = text(chunk.get("signature"))
    signature = Signature(SIGNER, signed) if signed else None
    inner = objects(thoughts)
    words = text(thoughts) or "".join(
        text(inner_chunk.get("text")) for inner_chunk in inner if _is_text(inner_chunk)
    )
    found: list[Piece | Opaque] = []
    if words or signature is not None:
        found.append(Piece("thinking", words, signature))
    return found + [
        Opaque(DIALECT, inner_chunk) for inner_chunk in inner if not _is_text(inner_chunk)
    ]


def _is_text(chunk: dict[str, Any]) -> bool:
    return bool(chunk.get("type", "text") == "text")


# Far more than answers have; a provider must not fill our memory.
_MOST_OPEN_CALLS = 1024
_MOST_CITATIONS = 1000


class _Call(NamedTuple):
    part: int
    id: str
    name: str
    arguments: GrowingArguments


class ChoiceReader:
    """A reader that keeps which part is open. Pieces of one kind that follow each other are one
    part. Sources are of the text since those before them; they come before the end of their part.
    """

    def __init__(self, index: int) -> None:
        self._choice = index
        self._parts = 0
        self._kind: Kind | None = None
        self._signature: Signature | None = None
        self._characters = 0
        """Of the open text, as the next two."""
        self._span = (0, 0)
        self._citations: list[Citation] = []
        self._calls: dict[int, _Call] = {}
        self.finished = False

    def take(self, message: dict[str, Any], events: list[Event], *, whole: bool) -> None:
        """A delta, or a whole message, in which every tool call is one of its own.

        Raises DamagedReplyError for a tool call without a name.
        """
        for piece in read_content(message.get("content")):
            if isinstance(piece, Opaque):
                self.close(events)
                events.append(CompletePart(choice=self._choice, part=self._parts, value=piece))
                self._parts += 1
            elif isinstance(piece, Sources):
                self._cite(piece, events)
            else:
                self._grow(piece, events)
        for number, call in enumerate(objects(message.get("tool_calls"))):
            self._take_call(call, number, events, whole)

    def close(self, events: list[Event]) -> None:
        """Ends what is open."""
        self._close_text(events)
        for call in self._calls.values():
            self._close_call(call, events)
        self._calls.clear()

    def _close_call(self, call: _Call, events: list[Event]) -> None:
        if rest := call.arguments.end():
            events.append(PartDelta(choice=self._choice, part=call.part, text=rest))
        events.append(PartEnd(choice=self._choice, part=call.part))

    def _close_text(self, events: list[Event]) -> None:
        if self._kind is not None:
            self._kind = None
            if self._citations:
                cited, self._citations = tuple(self._citations), []
                at = self._parts - 1
                events.append(PartDelta(choice=self._choice, part=at, text="", citations=cited))
            events.append(
                PartEnd(choice=self._choice, part=self._parts - 1, signature=self._signature)
            )
            self._signature = None

    def _grow(self, piece: Piece, events: list[Event]) -> None:
        # A second signature is of other thoughts; one that comes late is of those before it.
        signed_anew = None not in (piece.signature, self._signature) and (
            piece.signature != self._signature
        )
        if self._kind != piece.kind or signed_anew:
            self.close(events)
            events.append(PartStart(choice=self._choice, part=self._parts, kind=piece.kind))
            self._kind = piece.kind
            self._parts += 1
            self._characters, self._span = 0, (0, 0)
        self._characters += len(piece.text)
        if piece.text:
            events.append(PartDelta(choice=self._choice, part=self._parts - 1, text=piece.text))
        self._signature = piece.signature or self._signature

    def _cite(self, sources: Sources, events: list[Event]) -> None:
        if self._kind != "text":
            self._grow(Piece("text", ""), events)
        if self._characters > self._span[1]:
            self._span = self._span[1], self._characters
        start, end = self._span if self._span[1] else (None, None)
        self._citations += (
            msgspec.structs.replace(citation, start=start, end=end)
            for citation in sources.citations[: _MOST_CITATIONS - len(self._citations)]
        )

    def _take_call(
        self, call: dict[str, Any], number: int, events: list[Event], whole: bool
    ) -> None:
        function = mapping(call.get("function"))
        name = text(function.get("name"))
        id = text(call.get("id"))
        if id == "null":  # the description's default
            id = ""
        index = call.get("index")
        key = index if isinstance(index, int) and not isinstance(index, bool) else number
        opened = self._calls.get(key)
        # Mistral sends calls whole, at times all of them with the index 0.
        if opened is None or whole or (id and id != opened.id) or (name and name != opened.name):
            opened = self._open_call(_Call(self._parts, id, name, GrowingArguments()), key, events)
        piece = opened.arguments.take(json_text(function.get("arguments")))
        if piece:
            events.append(PartDelta(choice=self._choice, part=opened.part, text=piece))

    def _open_call(self, call: _Call, key: int, events: list[Event]) -> _Call:
        if not call.name:
            raise DamagedReplyError("a tool call has no name")
        if len(self._calls) >= _MOST_OPEN_CALLS:
            raise DamagedReplyError(f"more than {_MOST_OPEN_CALLS} tool calls are open")
        self._close_text(events)
        before = self._calls.pop(key, None)
        if before is not None:
            self._close_call(before, events)
        events.append(
            PartStart(
                choice=self._choice,
                part=call.part,
                kind="tool_call",
                id=call.id,
                name=call.name,
            )
        )
        self._calls[key] = call
        self._parts += 1
        return call
