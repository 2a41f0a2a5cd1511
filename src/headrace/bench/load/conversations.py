"""The workload as a load takes it: conversation by conversation, over again where it is too short.

A request that belongs to no session is a conversation of one turn. One of several clients takes
every k-th conversation, so that turns of one stay together and no two clients send the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.bench.workload import AWAITED_ANSWER, WorkItem

Conversation = tuple[WorkItem, ...]


class Taken(NamedTuple):
    """A conversation and its number in the run, which no other has."""

    number: int
    turns: Conversation


def conversations(items: Iterable[WorkItem]) -> list[Conversation]:
    """Items in their order, those of one session together where its first one is."""
    found: dict[object, list[WorkItem]] = {}
    for at, item in enumerate(items):
        key = ("single", at) if item.session is None else ("session", item.session)
        found.setdefault(key, []).append(item)
    return [tuple(sorted(turns, key=lambda item: item.turn)) for turns in found.values()]


def share(items: Sequence[Conversation], worker: int, workers: int) -> Sequence[Conversation]:
    """What client number `worker` of so many takes: every workers-th one, and where there are fewer
    than clients one that another takes too."""
    if workers == 1 or not items:
        return items
    return items[worker::workers] or items[worker % len(items) :][:1]


class Supply:
    """An endless source of the conversations of a client's share; `repeats` once one
    was given again.

    in_all: how many conversations all clients have; None: these.
    """

    def __init__(
        self,
        items: Sequence[Conversation],
        *,
        worker: int = 0,
        workers: int = 1,
        in_all: int | None = None,
    ) -> None:
        self._items = items
        self._next = worker
        self._step = workers
        self._taken = 0
        self._in_all = len(items) if in_all is None else in_all

    @property
    def repeats(self) -> bool:
        """Whether a conversation was given a second time, by this client or another."""
        return self._taken > 0 and self._next - self._step >= self._in_all

    def take(self) -> Taken | None:
        """The next one; None where there are none at all."""
        if not self._items:
            return None
        number = self._next
        found = self._items[self._taken % len(self._items)]
        self._next += self._step
        self._taken += 1
        return Taken(number, found)


def with_answers(item: WorkItem, answers: Sequence[str]) -> WorkItem:
    """A turn with the answers to those before it in the places that were kept for them."""
    messages = item.prompt.messages
    if messages is None or not waits_for_answers(item):
        return item
    left = iter(answers)
    filled: list[dict[str, Any]] = [
        {**message, "content": next(left, "")} if _waits(message) else message
        for message in messages
    ]
    prompt = msgspec.structs.replace(item.prompt, messages=tuple(filled))
    return msgspec.structs.replace(item, prompt=prompt)


def waits_for_answers(item: WorkItem) -> bool:
    """Whether a turn has places for the answers to those before it."""
    return any(_waits(message) for message in item.prompt.messages or ())


def _waits(message: dict[str, Any]) -> bool:
    return bool(message.get("content") == AWAITED_ANSWER)
