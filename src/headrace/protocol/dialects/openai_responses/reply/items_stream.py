"""The items of a provider's stream, reported as parts: numbered, and one after the other."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headrace.protocol.dialects.openai_responses.ids import foreign_id
from headrace.protocol.dialects.openai_responses.reply.read_reply import (
    call_extra,
    encrypted,
    item_parts,
)
from headrace.protocol.dialects.openai_responses.text_parts import content_part, message_extra
from headrace.protocol.dialects.openai_responses.thoughts import sealed_thought
from headrace.protocol.dialects.openai_responses.values import objects, text
from headrace.protocol.neutral.arguments import GrowingArguments
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.event import (
    CompletePart,
    Event,
    Kind,
    PartDelta,
    PartEnd,
    PartStart,
)
from headrace.protocol.neutral.part import Part, Refusal, Text, Thinking, ToolCall

Sort = Literal["text", "refusal", "thought", "summary"]

# A stream of more items and parts, or with more to hold back, is an attack or a fault.
_MOST_PARTS = 2**16
_MOST_HELD_BYTES = 64 * 2**20
_MOST_ID_CHARACTERS = 512

_KINDS: dict[Sort, Kind] = {
    "text": "text",
    "refusal": "refusal",
    "thought": "thinking",
    "summary": "thinking",
}
_SORTS: dict[str, Sort] = {
    "output_text": "text",
    "refusal": "refusal",
    "reasoning_text": "thought",
    "summary_text": "summary",
}


class _Part:
    """A text that was reported. emitted_chars: how much of it. arguments: of a function call."""

    def __init__(self, number: int, arguments: GrowingArguments | None = None) -> None:
        self.number = number
        self.arguments = arguments
        self.emitted_chars = 0
        self.extra: dict[str, Any] = {}
        self.ended = False


class _Item:
    """An item that is not complete yet. call: the number of its part, if it is an open function
    call.

    held: something of it arrived while function calls were open; all of it is reported at its end.
    """

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value
        self.parts: dict[tuple[Sort, int], _Part] = {}
        self.call: _Part | None = None
        self.held = False


class ItemsStream:
    """A reader that puts neutral events into `out`."""

    def __init__(self, origin: str) -> None:
        self.out: list[Event] = []
        self.has_tool_calls = False
        self.too_many = False
        self._origin = origin
        self._numbers = 0
        self._items: dict[int, _Item] = {}
        self._done: set[int] = set()
        self._done_ids: set[str] = set()
        self._live: _Part | None = None
        self._open_calls = 0
        self._held: list[_Item] = []
        self._held_bytes = 0

    def added(self, index: int, value: dict[str, Any]) -> None:
        """An item began."""
        if index in self._items or index in self._done:
            return
        item = self._item(index, value)
        name, call_id = text(value.get("name")), text(value.get("call_id"))
        if value.get("type") == "function_call" and name and call_id:
            self._end_live()
            item.call = _Part(self._next(), GrowingArguments())
            self._open_calls += 1
            self.has_tool_calls = True
            self.out.append(
                PartStart(
                    choice=0,
                    part=item.call.number,
                    kind="tool_call",
                    id=call_id,
                    name=name,
                    extra=call_extra(value),
                )
            )
            self._emit(item.call, text(value.get("arguments")))

    def arguments(self, index: int, piece: str) -> None:
        """More of a function call."""
        item = self._items.get(index)
        if item is not None and item.call is not None:
            self._emit(item.call, piece)

    def grew(
        self,
        index: int,
        sort: Sort,
        at: int,
        piece: str,
        logprobs: list[dict[str, Any]] | None,
    ) -> None:
        """More of a text. at: its index within the item."""
        if index in self._done:
            return
        item = self._items.get(index) or self._item(index, {})
        if item.held or item.call is not None:
            return
        part = item.parts.get((sort, at))
        if part is None or (part.ended and piece):
            part = self._open(item, sort, at)
            if part is None:
                return
        if piece or logprobs:
            self._emit(part, piece, logprobs)

    def part_done(self, index: int, at: int, content: dict[str, Any]) -> None:
        """A text is whole."""
        item = self._items.get(index)
        if item is not None and not item.held:
            self._finish_part(item, at, content)

    def done(self, index: int, value: dict[str, Any]) -> None:
        """An item is whole."""
        if index in self._done:
            return
        self._done.add(index)
        self.too_many |= len(self._done) > _MOST_PARTS
        id = text(value.get("id"))
        if id and len(id) <= _MOST_ID_CHARACTERS:
            self._done_ids.add(id)
        item = self._items.pop(index, None) or _Item({})
        item.value = {**item.value, **value}
        if item.call is not None:
            self._end_call(item.call, text(value.get("arguments")))
        elif self._open_calls and not self._is_call(item):
            self._hold(item)
        else:
            self._finish(item)

    def end(self, output: list[dict[str, Any]]) -> None:
        """The response is whole. output: all of its items, for those that no event ended."""
        for index, value in enumerate(output):
            id = text(value.get("id"))
            if index not in self._done and not (id and id in self._done_ids):
                self.done(index, value)
        for item in [*self._items.values()]:
            if item.call is not None:
                self._end_call(item.call, "")
        self._items.clear()
        self._end_live()

    def _hold(self, item: _Item) -> None:
        self._held.append(item)
        self._held_bytes += len(msgspec.json.encode(item.value))
        self.too_many |= self._held_bytes > _MOST_HELD_BYTES

    def _item(self, index: int, value: dict[str, Any]) -> _Item:
        # All else of it comes again with its end.
        known = {name: text(value.get(name)) for name in ("type", "id", "phase")}
        ids = {name: id for name, id in known.items() if 0 < len(id) <= _MOST_ID_CHARACTERS}
        self._items[index] = item = _Item(ids)
        self.too_many |= len(self._items) + len(self._done) > _MOST_PARTS
        return item

    def _next(self) -> int:
        self._numbers += 1
        self.too_many |= self._numbers > _MOST_PARTS
        return self._numbers - 1

    @staticmethod
    def _is_call(item: _Item) -> bool:
        return item.value.get("type") == "function_call" and bool(text(item.value.get("name")))

    def _emit(
        self,
        part: _Part,
        piece: str,
        logprobs: list[dict[str, Any]] | None = None,
    ) -> None:
        if piece or logprobs:
            part.emitted_chars += len(piece)
            if part.arguments is not None:
                piece = part.arguments.take(piece)
        if piece or logprobs:
            self.out.append(PartDelta(choice=0, part=part.number, text=piece, logprobs=logprobs))

    def _open(self, item: _Item, sort: Sort, at: int) -> _Part | None:
        """Begins a text, or goes on with one that another cut off; None while it may not."""
        if self._open_calls:
            item.held = not item.parts
            return None
        self._end_live()
        before = item.parts.get((sort, at))
        part = _Part(self._next())
        if before is not None:
            part.emitted_chars = before.emitted_chars
        item.parts[sort, at] = self._live = part
        thinking = sort in ("thought", "summary")
        id = foreign_id(text(item.value.get("id"))) if thinking else None
        part.extra = {} if thinking else message_extra(item.value)
        self.out.append(
            PartStart(
                choice=0,
                part=part.number,
                kind=_KINDS[sort],
                id=id or "",
                summary=sort == "summary",
                extra=dict(part.extra),
            )
        )
        return part

    def _end_live(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.ended = True
            self.out.append(PartEnd(choice=0, part=live.number))

    def _end_call(self, call: _Part, arguments: str) -> None:
        self._emit(call, arguments[call.emitted_chars :])
        if call.arguments is not None and (rest := call.arguments.end()):
            self.out.append(PartDelta(choice=0, part=call.number, text=rest))
        self.out.append(PartEnd(choice=0, part=call.number))
        self._open_calls -= 1
        if self._open_calls == 0:
            held, self._held, self._held_bytes = self._held, [], 0
            for item in held:
                self._finish(item)

    def _finish(self, item: _Item) -> None:
        """Report the rest of a complete item."""
        if not item.parts:
            for part in item_parts(item.value, self._origin):
                self._emit_whole(part)
            return
        for name in ("summary", "content"):
            for at, content in enumerate(objects(item.value.get(name))):
                self._finish_part(item, at, content)
        if item.value.get("type") == "reasoning":
            self._end_live()
            signature = encrypted(item.value, self._origin)
            if signature is not None:
                id = foreign_id(text(item.value.get("id")))
                self._emit_whole(sealed_thought(signature, id))

    def _finish_part(self, item: _Item, at: int, content: dict[str, Any]) -> None:
        sort = _SORTS.get(text(content.get("type")))
        if sort is None:
            return
        words = text(content.get("refusal" if sort == "refusal" else "text"))
        part = item.parts.get((sort, at))
        if part is not None and part.ended and len(words) <= part.emitted_chars:
            return
        if part is None or part.ended:
            part = self._open(item, sort, at)
            if part is None:
                return
        self._emit(part, words[part.emitted_chars :])
        if sort == "text":
            whole = content_part(content, item.value)
            more = {
                name: value
                for name, value in (whole.extra if isinstance(whole, Text) else {}).items()
                if part.extra.get(name) != value
            }
            citations = whole.citations if isinstance(whole, Text) else ()
            if more or citations:
                self.out.append(
                    PartDelta(choice=0, part=part.number, text="", citations=citations, extra=more)
                )
        if self._live is part:
            self._end_live()

    def _emit_whole(self, part: Part) -> None:
        self._end_live()
        number = self._next()
        began: PartStart | None = None
        words = ""
        citations: tuple[Citation, ...] = ()
        if isinstance(part, Text):
            began = PartStart(choice=0, part=number, kind="text", extra=part.extra)
            words, citations = part.text, part.citations
        elif isinstance(part, Refusal):
            began = PartStart(choice=0, part=number, kind="refusal")
            words = part.text
        elif isinstance(part, Thinking) and not part.redacted and part.signature is None:
            id = part.id or ""
            began = PartStart(choice=0, part=number, kind="thinking", id=id, summary=part.summary)
            words = part.text
        elif isinstance(part, ToolCall):
            self.has_tool_calls = True
            began = PartStart(
                choice=0,
                part=number,
                kind="tool_call",
                id=part.id,
                name=part.name,
                extra=part.extra,
            )
            words = part.arguments
        if began is None:
            self.out.append(CompletePart(choice=0, part=number, value=part))
            return
        self.out.append(began)
        if words or citations:
            self.out.append(PartDelta(choice=0, part=number, text=words, citations=citations))
        self.out.append(PartEnd(choice=0, part=number))
