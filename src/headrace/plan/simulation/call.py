"""One request of a user, from its arrival to its last token, whatever replicas it goes through."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.simulation.arrival import Arrival


@dataclass(slots=True, eq=False)
class Call:
    """Times are seconds of the simulation; None until they are known.

    admitted_s, first_token_s: of the attempt that went to its end. transfer_s: between a prefill
    and a decode replica. preemptions, cached_tokens: of all attempts. retries: after failures.
    """

    number: int
    arrival: Arrival
    admitted_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    transfer_s: float = 0.0
    preemptions: int = 0
    cached_tokens: int = 0
    retries: int = 0

    def begin_again(self) -> None:
        """After a failure: what was streamed is lost, and the user still waits."""
        self.retries += 1
        self.admitted_s = self.first_token_s = None
