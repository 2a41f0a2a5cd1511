"""A finished request on its way to the log, before anything is looked at or replaced in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.gateway.request_log.record import WithoutBodies
from headrace.gateway.serving.entry import Entry


class Heard(NamedTuple):
    """The body of an answer as the client got it."""

    pieces: Sequence[bytes]
    bytes: int
    """The size of all of it."""
    cut: bool
    """Whether `pieces` are only its beginning."""


class Line(NamedTuple):
    """A finished request on its way into the log."""

    entry: Entry
    """The line of the ledger."""
    path: str
    session: str
    trace_id: str
    without_bodies: WithoutBodies
    request: bytes | None
    """None if bodies are not kept."""
    reply: Heard | None
    """None if bodies are not kept."""

    @property
    def size_bytes(self) -> int:
        """Its approximate size in memory."""
        own = 2048
        if self.request is not None:
            own += len(self.request)
        if self.reply is not None:
            own += sum(map(len, self.reply.pieces))
        return own
