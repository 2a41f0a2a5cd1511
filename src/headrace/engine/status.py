"""How an engine is, as whoever watches it says."""

from __future__ import annotations

from typing import Literal, NamedTuple


class EngineStatus(NamedTuple):
    """What a watched engine does.

    state: "ready" serves; "stalled" is there and silent, and is about to be replaced; "restarting"
        loads again or waits to; "failed" is given up and stays so.
    restarts: since the server began. failure: of the engine before, "" without one.
    retry_after_s: when a client may try again; None where there is no use.
    silent_s: for how long nothing was heard of it.
    """

    state: Literal["ready", "stalled", "restarting", "failed"] = "ready"
    restarts: int = 0
    failure: str = ""
    retry_after_s: float | None = None
    silent_s: float = 0.0

    @property
    def alive(self) -> bool:
        """Whether requests can be served."""
        return self.state == "ready"
