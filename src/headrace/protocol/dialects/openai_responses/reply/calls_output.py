"""Function calls of a response's output: items of their own, which may be open side by side.

A call is completed only with arguments that are whole: one that the answer's limit cut, or that
broke, is an incomplete item, and no event calls its arguments done.
"""

from __future__ import annotations

import msgspec

from headrace.protocol.dialects.openai_responses.reply.output_items import OpenItem, OutputItems
from headrace.protocol.dialects.openai_responses.sealed import seal_call
from headrace.protocol.neutral.arguments import given_arguments
from headrace.protocol.neutral.carried_id import pack
from headrace.protocol.neutral.event import PartStart
from headrace.protocol.neutral.part import Signature


class _Call:
    """A call while it grows. item: set once the client knows of it."""

    def __init__(self, began: PartStart) -> None:
        self.began = began
        self.pieces: list[str] = []
        self.item: OpenItem | None = None


class CallsOutput:
    """A reader of the calls' events, by the number of their part.

    A client gets a call with its second piece. One that comes in a single piece may be signed
    at its end, and its call_id, which carries the signature, must not change once it was sent.
    """

    def __init__(self, items: OutputItems) -> None:
        self._items = items
        self._calls: dict[int, _Call] = {}

    def __contains__(self, part: int) -> bool:
        return part in self._calls

    def began(self, event: PartStart) -> None:
        """A call's id and name are known."""
        self._calls[event.part] = _Call(event)

    def grew(self, part: int, piece: str) -> None:
        """More of its arguments."""
        if not piece:
            return
        call = self._calls[part]
        call.pieces.append(piece)
        if call.item is not None:
            self._arguments(call.item, piece)
        elif len(call.pieces) > 1:
            self._report(call, None)

    def ended(self, part: int, signature: Signature | None) -> None:
        """Nothing more of a call comes."""
        call = self._calls[part]
        late = signature if call.item is not None else None
        item = call.item or self._report(call, signature)
        del self._calls[part]
        value = item.value
        value["arguments"] = "".join(call.pieces)
        is_whole = _is_json(value["arguments"])
        value["status"] = "completed" if is_whole else "incomplete"
        if is_whole:
            self._items.emit(
                "response.function_call_arguments.done",
                item_id=value["id"],
                output_index=item.index,
                arguments=value["arguments"],
            )
        self._items.done(item)
        if late is not None:
            self._items.add_sealed(seal_call(value["call_id"], late))

    def cut(self) -> None:
        """The stream broke: calls that were reported stay as far as they came."""
        for call in self._calls.values():
            if call.item is not None:
                call.item.value["arguments"] = "".join(call.pieces)
                call.item.value["status"] = "incomplete"

    def _report(self, last: _Call, signature: Signature | None) -> OpenItem:
        """Report `last`, and before it the calls that began before it."""
        for call in self._calls.values():
            if call is last:
                break
            if call.item is None:
                self._add(call, None)
        return self._add(last, signature)

    def _add(self, call: _Call, signature: Signature | None) -> OpenItem:
        extra = dict(call.began.extra) if self._items.own else {}
        value = {
            "id": self._items.id("fc", extra.pop("item_id", None)),
            "type": "function_call",
            "status": "in_progress",
            "arguments": "",
            "call_id": pack(call.began.id, signature),
            "name": call.began.name,
        }
        call.item = self._items.add({**extra, **value})
        if call.pieces:
            self._arguments(call.item, "".join(call.pieces))
        return call.item

    def _arguments(self, item: OpenItem, piece: str) -> None:
        self._items.emit(
            "response.function_call_arguments.delta",
            item_id=item.value["id"],
            output_index=item.index,
            delta=piece,
        )


def _is_json(arguments: str) -> bool:
    """Whether arguments are whole; a call without any is."""
    try:
        msgspec.json.decode(given_arguments(arguments))
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
