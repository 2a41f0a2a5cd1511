"""A guardrail's action and its refusal: all that requests without guardrails know of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from headrace.errors import RequestError

if TYPE_CHECKING:
    from headrace.gateway.guards.guard import Guard

Action = Literal["block", "redact", "warn", "monitor", "cap"]

FIELD = "guardrails"
"""Of a request's body: names of more guardrails. Source: docs.litellm.ai/docs/proxy/guardrails."""

_FAILED = "guardrail_failed"


class Acted(NamedTuple):
    """A guardrail found something, and this was done."""

    guard: str
    action: Action | Literal["failed"]
    reason: str = ""


class GuardBlockedError(RequestError):
    """A refusal by a guardrail.

    acted: what to count. told: whether the client has been informed. passed: for a stream, what may
    be sent before it ends.
    """

    def __init__(self, guard: Guard, reason: str, *, failed: bool = False) -> None:
        message = reason if failed or guard.message is None else guard.message
        code = _FAILED if failed else None
        super().__init__(f"refused by the guardrail {guard.name}: {message}", code=code)
        self.acted = Acted(guard.name, "failed" if failed else "block", reason)
        self.told = False
        self.passed = b""
