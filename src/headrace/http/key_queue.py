"""Items that wait, by the key they came with: no key has to wait for all items of another.

Within a key it is first come, first served. Keys are in the order of their turns: one that is
served goes behind those that wait, and so does one that comes anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class KeyQueue(Generic[Item]):
    """A queue of items, each at most once, with a turn for each key."""

    def __init__(self) -> None:
        self._items: dict[str, dict[Item, None]] = {}
        """In the order of the keys' turns; none is empty."""

    def __bool__(self) -> bool:
        return bool(self._items)

    def keys(self) -> Iterator[str]:
        """Keys with items, the one whose turn it is first."""
        return iter(self._items)

    def add(self, key: str, item: Item) -> None:
        """Queue an item behind those of its key."""
        self._items.setdefault(key, {})[item] = None

    def take(self, key: str) -> Item:
        """Take out the first item of a key, whose turn it was; KeyError where none waits."""
        items = self._items.pop(key)
        item = next(iter(items))
        del items[item]
        if items:
            self._items[key] = items
        return item

    def discard(self, key: str, item: Item) -> None:
        """Take out an item, wherever it is; the key keeps its turn for the others."""
        items = self._items.get(key)
        if items is None:
            return
        items.pop(item, None)
        if not items:
            del self._items[key]
