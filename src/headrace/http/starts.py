"""How many requests begin in one turn of the event loop, so that a flood does not stop the streams.

Thousands of requests that arrive in one moment are read in one turn; if all of them began in the
next, streams would stand still until the last of them is answered. Between two turns the loop looks
at its sockets, the engine's link among them. Used from one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

# A refusal takes some 0.1 ms, so that streams wait for less than 10 ms.
PER_TURN = 64


class Starts:
    """A queue that begins what is put into it, in order: at once as long as the turn has room, else
    later.
    """

    def __init__(self, per_turn: int = PER_TURN) -> None:
        self._per_turn = self._left = per_turn
        self._waiting: deque[Callable[[], None]] = deque()

    def begin(self, start: Callable[[], None]) -> None:
        """Call `start` when its turn comes."""
        if self._left == self._per_turn:
            asyncio.get_running_loop().call_soon(self._turn)
        if self._left and not self._waiting:
            self._left -= 1
            start()
        else:
            self._waiting.append(start)

    def _turn(self) -> None:
        """A new turn of the loop has room again."""
        self._left = self._per_turn
        if self._waiting:
            # Before any of them begins: one that fails ends this turn, and not the others' waiting.
            asyncio.get_running_loop().call_soon(self._turn)
        while self._waiting and self._left:
            self._left -= 1
            self._waiting.popleft()()
