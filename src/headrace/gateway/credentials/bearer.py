"""A renewed token in a header."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.gateway.credentials.renewed import Fresh, Renewed
from headrace.gateway.targets.auth import Outgoing


class BearerToken:
    """A `Credential`. name: whose token, for the log and errors. clock_s: monotonic."""

    def __init__(
        self, ask: Callable[[], Awaitable[Fresh[str]]], name: str, clock_s: Callable[[], float]
    ) -> None:
        self._name = name
        self._token = Renewed(ask, name, clock_s)

    async def headers(self, outgoing: Outgoing) -> tuple[tuple[str, str], ...]:
        """The token that holds now. Raises UpstreamError if there is none to be had."""
        return (("authorization", f"Bearer {await self._token.current()}"),)

    def __repr__(self) -> str:
        return f"<{self._name}>"
