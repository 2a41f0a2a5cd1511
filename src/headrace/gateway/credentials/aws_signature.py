"""Requests signed for AWS (Signature Version 4, service "bedrock")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.gateway.targets.auth import Outgoing
from headrace.protocol.aws.sigv4 import Credentials, signing_headers


class AwsSignature:
    """A `Credential` that signs requests. `keys` gives the current keys; `wall_s` is Unix time."""

    def __init__(
        self,
        keys: Callable[[], Awaitable[Credentials]],
        region: str,
        wall_s: Callable[[], float],
    ) -> None:
        self._keys = keys
        self._region = region
        self._wall_s = wall_s

    async def headers(self, outgoing: Outgoing) -> tuple[tuple[str, str], ...]:
        """The signature of this request at this time. Raises UpstreamError without keys."""
        signed = signing_headers(
            await self._keys(),
            method=outgoing.method,
            host=outgoing.host,
            path=outgoing.target,
            headers=dict(outgoing.headers),
            body=outgoing.body,
            region=self._region,
            service="bedrock",
            unix_s=self._wall_s(),
        )
        return tuple(signed.items())

    def __repr__(self) -> str:
        return "<AWS signature>"
