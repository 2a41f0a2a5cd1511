"""How the request log stands."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class LogStanding(msgspec.Struct, frozen=True, kw_only=True):
    """written, lost: records since the start. waiting, waiting_bytes: what is not yet written.
    error: why the last try to write failed, "" if it did not."""

    written: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    lost: int = 0
    error: str = ""


def together(several: Sequence[LogStanding]) -> LogStanding | None:
    """Of processes that write to one store; None where none does."""
    if not several:
        return None
    return LogStanding(
        written=sum(one.written for one in several),
        waiting=sum(one.waiting for one in several),
        waiting_bytes=sum(one.waiting_bytes for one in several),
        lost=sum(one.lost for one in several),
        error=next((one.error for one in several if one.error), ""),
    )
