"""What can go wrong between the gateway and a provider, before the provider's reply is known."""

from __future__ import annotations

from typing import Literal

from headrace.protocol.neutral.failure import Failure

Problem = Literal["connect", "timeout", "cut", "protocol", "too_large", "busy"]

_KINDS = {"timeout": "timeout", "protocol": "damaged", "too_large": "reply_too_large"}


class UpstreamError(Exception):
    """A failed call: no reply, or an incomplete one.

    `problem` is "connect" before a connection was made, "busy" if all were taken for too long,
    "cut" if one ended. `unsent` says that the provider cannot have seen the request, so that it may
    be sent again without happening twice.
    """

    def __init__(self, problem: Problem, message: str, *, unsent: bool = False) -> None:
        super().__init__(message)
        self.problem = problem
        self.unsent = unsent

    @property
    def failure(self) -> Failure:
        """The same as a Failure."""
        kind = _KINDS.get(self.problem, "network")
        return Failure(kind=kind, message=str(self))  # type: ignore[arg-type]
