"""A renewed token in a header."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.gateway.credentials.renewed import Fresh, Renewed
from headrace.gateway.targets.auth import Outgoing


class BearerToken:
    """A `Credential` with a renewed token. `name` appears in the log and in errors; `clock_s` is
    monotonic."""

    def __init__(
        self, ask: Callable[[], Awaitable[Fresh[str]]], name: str, clock_s: Callable[[], float]
    ) -> None:
        self._name = name
        self._token = Renewed(ask, name, clock_s)

    async def headers(self, outgoing: Outgoing) -> tuple[tuple[str, str], ...]:
        """The current token. Raises UpstreamError if there is no valid one."""
        return (("authorization", f"Bearer {await self._token.current()}"),)

    def __repr__(self) -> str:
        return f"<{self._name}>"
