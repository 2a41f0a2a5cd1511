"""Ids of tool calls: Ollama's clients and servers know none, or newer ones do.

A call without an id gets one by its place, the same each time it is read: "call_<turn>_<n>", `turn`
counting the turns with tool calls from 0. A result without an id belongs to the first call of the
last turn that waits for one of its name; without a name, or with one that nobody called, to the
first that waits.
"""

from __future__ import annotations

from headrace.protocol.neutral.part import ToolCall


def call_id(turn: int, number: int) -> str:
    """The id of a call by its place."""
    return f"call_{turn}_{number}"


class WaitingCalls:
    """A matcher of calls and results in the order of a conversation."""

    def __init__(self) -> None:
        self._turn = 0
        self._orphans = 0
        self._waiting: list[ToolCall] = []

    @property
    def turn(self) -> int:
        """The number of the next turn with tool calls."""
        return self._turn

    def take(self, calls: list[ToolCall]) -> None:
        """The calls of one turn; those of turns before it wait no longer."""
        if calls:
            self._turn += 1
            self._waiting = list(calls)

    def answered(self, name: str, given: str | None) -> tuple[str, str]:
        """The id and the name of the call that a result belongs to. given: the result's own id."""
        found = next(
            (call for call in self._waiting if given is not None and call.id == given), None
        )
        if found is None and given is None:
            same = (call for call in self._waiting if call.name == name)
            found = next(same, self._waiting[0] if self._waiting else None)
        if found is not None:
            self._waiting.remove(found)
            return found.id, name or found.name
        if given is not None:
            return given, name
        self._orphans += 1
        return f"call_none_{self._orphans}", name
