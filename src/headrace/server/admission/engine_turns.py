"""Which rows the engine gets next, where several keys share it.

A row is one choice of one prompt. The engine serves rows in the order in which it gets them, so
what it has not begun yet bounds how long a newcomer waits: a few rows, and one for each key below
its share that has none waiting there. All others wait here. The lower priority comes first, as in
the engine; then the key that has the fewest rows in the engine, begun or not; of equals the one
whose last turn is the longest ago. Within a key and a priority it is first come, first served.

So a key may use all of the engine while no other waits, and then gives the others their share back
as its rows end: no slot stays free for somebody who may come. Rows do not count for those of a
lower priority number, which may take their places in the engine.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Literal, TypeVar

from headrace.http.key_queue import KeyQueue

# Of the slots, as many rows wait in a full engine: a slot is filled in the step after it is free.
AHEAD_DIVISOR = 8

State = Literal["waiting", "given", "begun", "over"]
Counted = TypeVar("Counted", str, int)


class EngineTurns:
    """The rows that the engine has, and those that wait for it. Used from one event loop."""

    def __init__(self, slots: int) -> None:
        """slots: rows that the engine runs at a time."""
        self._slots = slots
        self._ahead = max(1, slots // AHEAD_DIVISOR)
        self._waiting: dict[int, KeyQueue[EngineTurn]] = {}
        """By priority; none is empty."""
        self._waiting_in_engine: Counter[int] = Counter()
        """Rows that the engine has not begun, by priority."""
        self._running: Counter[int] = Counter()
        """Rows that it has begun, preempted ones among them, by priority."""
        self._held: Counter[str] = Counter()
        """Rows that the engine has, by key."""
        self._not_begun: Counter[str] = Counter()
        """Those of them that it has not begun."""

    def ask(self, key: str, priority: int = 0) -> EngineTurn:
        """A turn for a row, behind those of its key and priority; it may be given at once."""
        turn = EngineTurn(self, key, priority)
        self._waiting.setdefault(priority, KeyQueue()).add(key, turn)
        self._give()
        return turn

    def held(self, key: str) -> int:
        """Rows of a key that the engine has."""
        return self._held[key]

    def has_room(self, priority: int) -> bool:
        """Whether the engine is to get one more row of this priority, whoever's it is.

        Free slots alone would not say so: the cache may hold fewer rows than there are slots. So
        no more rows wait for free slots than run.
        """
        running = sum(count for level, count in self._running.items() if level <= priority)
        waiting = sum(
            count for level, count in self._waiting_in_engine.items() if level <= priority
        )
        free = max(0, self._slots - running)
        return waiting < self._ahead + min(free, max(self._ahead, self._running.total()))

    def _give(self) -> None:
        """Give turns to all who may have one."""
        while self._waiting:
            priority = min(self._waiting)
            queue = self._waiting[priority]
            keys = list(queue.keys())
            if not self.has_room(priority):
                # What others have in the engine's queue may wait for their own prefixes.
                share = self._share()
                keys = [key for key in keys if not self._not_begun[key] and self._held[key] < share]
                if not keys:
                    return
            turn = queue.take(min(keys, key=self._held.__getitem__))
            if not queue:
                del self._waiting[priority]
            self._held[turn.key] += 1
            self._not_begun[turn.key] += 1
            self._waiting_in_engine[priority] += 1
            turn._given()

    def _share(self) -> int:
        """Slots of each key that has rows, here or in the engine."""
        keys = set(self._held).union(*(queue.keys() for queue in self._waiting.values()))
        return max(1, self._slots // len(keys))

    def _begun(self, turn: EngineTurn) -> None:
        _take_one(self._not_begun, turn.key)
        _take_one(self._waiting_in_engine, turn.priority)
        self._running[turn.priority] += 1
        self._give()

    def _left(self, turn: EngineTurn, state: State) -> None:
        """A row is over that was in this state."""
        if state == "waiting":
            queue = self._waiting[turn.priority]
            queue.discard(turn.key, turn)
            if not queue:
                del self._waiting[turn.priority]
        else:
            _take_one(self._held, turn.key)
            if state == "given":
                _take_one(self._not_begun, turn.key)
                _take_one(self._waiting_in_engine, turn.priority)
            else:
                _take_one(self._running, turn.priority)
        self._give()


class EngineTurn:
    """A row's place in the engine, or in the queue for one."""

    def __init__(self, turns: EngineTurns, key: str, priority: int) -> None:
        self.key = key
        self.priority = priority
        self.state: State = "waiting"
        """"given" from when the engine may have it, "begun" from when it runs."""
        self._turns = turns
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Return when the engine may have the row. One that is given up has to be cancelled."""
        if self.state == "waiting":
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def begun(self) -> None:
        """The engine runs the row."""
        if self.state == "given":
            self.state = "begun"
            self._turns._begun(self)

    def leave(self) -> None:
        """The row is over, or was never wanted; its turn goes to the next."""
        state, self.state = self.state, "over"
        if state != "over":
            self._turns._left(self, state)

    def _given(self) -> None:
        self.state = "given"
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _take_one(counts: Counter[Counted], of: Counted) -> None:
    """One fewer of it; what has none left takes no memory."""
    counts[of] -= 1
    if not counts[of]:
        del counts[of]
