"""One request of a user, from its arrival to its last token, whatever replicas it goes through."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.simulation.arrival import Arrival


@dataclass(slots=True, eq=False)
class Call:
    """Times are seconds of the simulation; None until they are known."""

    number: int
    arrival: Arrival
    admitted_s: float | None = None
    first_token_s: float | None = None
    """With `admitted_s`: of the attempt that went to its end."""
    finished_s: float | None = None
    transfer_s: float = 0.0
    """Between a prefill and a decode replica."""
    preemptions: int = 0
    cached_tokens: int = 0
    """With `preemptions`: of all attempts."""
    retries: int = 0
    """After failures."""

    def begin_again(self) -> None:
        """After a failure: what was streamed is lost, and the user still waits."""
        self.retries += 1
        self.admitted_s = self.first_token_s = None
