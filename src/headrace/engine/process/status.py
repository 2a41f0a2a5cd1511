"""How an engine is, as whoever watches it says."""

from __future__ import annotations

from typing import Literal, NamedTuple


class EngineStatus(NamedTuple):
    """The state of a supervised engine."""

    state: Literal["ready", "stalled", "restarting", "failed"] = "ready"
    """"ready" serves; "stalled" is there and silent, and is about to be replaced; "restarting"
    loads again or waits to; "failed" is given up and stays so."""
    restarts: int = 0
    """Since the server began."""
    failure: str = ""
    """Of the engine before, "" without one."""
    retry_after_s: float | None = None
    """When a client may try again; None where there is no use."""
    silent_s: float = 0.0
    """For how long nothing was heard of it."""

    @property
    def alive(self) -> bool:
        """Whether requests can be served."""
        return self.state == "ready"
