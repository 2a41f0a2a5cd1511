"""The items of a response's output in order, and their events."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.openai_responses.ids import ItemPrefix, item_id


class OpenItem:
    """An item of the output. key: shared by the parts of one item."""

    def __init__(self, index: int, value: dict[str, Any], key: object) -> None:
        self.index = index
        self.value = value
        self.key = key


class OutputItems:
    """The items of an output, by output_index, and the events about them.

    own: the provider speaks this dialect, so its ids are kept.
    events: those that have not been taken yet, without sequence numbers.
    """

    def __init__(self, response: str, *, own: bool) -> None:
        self.values: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.own = own
        self._response = response

    def emit(self, kind: str, **fields: Any) -> None:
        """Add one event."""
        self.events.append({"type": kind, **fields})

    def take_events(self) -> list[dict[str, Any]]:
        """The events since the last call."""
        events, self.events = self.events, []
        return events

    def id(self, prefix: ItemPrefix, given: object = None) -> str:
        """The id of the next item. given: the provider's own."""
        if self.own and isinstance(given, str) and given:
            return given
        return item_id(prefix, self._response, len(self.values))

    def add(self, value: dict[str, Any], key: object = None) -> OpenItem:
        """An item that is to grow."""
        item = OpenItem(len(self.values), value, key)
        self.values.append(value)
        begun = {name: [] if isinstance(field, list) else field for name, field in value.items()}
        self.emit("response.output_item.added", output_index=item.index, item=begun)
        return item

    def done(self, item: OpenItem) -> None:
        """An item is whole."""
        self.emit("response.output_item.done", output_index=item.index, item=dict(item.value))

    def add_whole(self, value: dict[str, Any]) -> None:
        """An item that came in one piece."""
        self.done(self.add(value))

    def add_sealed(self, encrypted: str) -> None:
        """A reasoning item for a signature that is of no thought."""
        value: dict[str, Any] = {"id": self.id("rs"), "type": "reasoning", "summary": []}
        self.add_whole(value | {"encrypted_content": encrypted})
