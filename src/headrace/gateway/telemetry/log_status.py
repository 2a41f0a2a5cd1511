"""The state of the request log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class LogStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a request log."""

    written: int = 0
    """Records written since the start."""
    waiting: int = 0
    """Records that wait to be written."""
    waiting_bytes: int = 0
    """Memory used by them."""
    lost: int = 0
    """Records lost since the start."""
    error: str = ""
    """Why the last attempt to write failed; "" if it did not."""


def together(several: Sequence[LogStanding]) -> LogStanding | None:
    """The combined state of processes that write to one store; None if none does."""
    if not several:
        return None
    return LogStanding(
        written=sum(state.written for state in several),
        waiting=sum(state.waiting for state in several),
        waiting_bytes=sum(state.waiting_bytes for state in several),
        lost=sum(state.lost for state in several),
        error=next((state.error for state in several if state.error), ""),
    )
