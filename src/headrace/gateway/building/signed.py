"""Ways to be known that need more than a key: signatures of AWS, tokens of Microsoft Entra."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from urllib.parse import urlencode

import msgspec

from headrace.errors import ConfigError
from headrace.gateway.settings.provider import EntraSettings, ProviderSettings
from headrace.gateway.settings.secret import Secret, Sources, read_secret
from headrace.gateway.targets.auth import Auth, InTurn, Outgoing
from headrace.gateway.upstream.errors import UpstreamError
from headrace.gateway.upstream.limits import Timeouts
from headrace.gateway.upstream.origin import read_base_url
from headrace.gateway.upstream.pool import Pool
from headrace.gateway.upstream.request import request_bytes
from headrace.protocol.aws.sigv4 import Credentials, signing_headers

# A token is asked for anew so long before it ends, so that none ends under way.
_EARLY_S = 300.0
_MOST_TOKEN_BYTES = 64 * 1024


def signed_auth(settings: ProviderSettings, sources: Sources) -> Auth:
    """Of the settings' `aws` or `entra`; a key where there is only one of those."""
    if settings.aws is not None:
        if settings.region is None:
            raise ConfigError("region is missing: AWS signs for one, as us-east-1")
        given = settings.aws
        token = given.session_token
        credentials = Credentials(
            read_secret(given.access_key_id, sources).reveal(),
            read_secret(given.secret_access_key, sources).reveal(),
            None if token is None else read_secret(token, sources).reveal(),
        )
        return InTurn((AwsSignature(credentials, settings.region),))
    assert settings.entra is not None
    secret = read_secret(settings.entra.client_secret, sources)
    return InTurn((EntraToken(settings.entra, secret),))


class AwsSignature:
    """Signs each request (Signature Version 4, service "bedrock")."""

    def __init__(
        self,
        credentials: Credentials,
        region: str,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._credentials = credentials
        self._region = region
        self._wall_s = wall_s

    async def headers(self, outgoing: Outgoing) -> tuple[tuple[str, str], ...]:
        """Of this very request at this time."""
        found = signing_headers(
            self._credentials,
            method=outgoing.method,
            host=outgoing.host,
            path=outgoing.target,
            headers=dict(outgoing.headers),
            body=outgoing.body,
            region=self._region,
            service="bedrock",
            unix_s=self._wall_s(),
        )
        return tuple(found.items())

    def __repr__(self) -> str:
        return "<signature of AWS>"


class EntraToken:
    """A token by client credentials, kept until shortly before it ends; asked for one at a time."""

    def __init__(
        self,
        settings: EntraSettings,
        secret: Secret,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._secret = secret
        self._clock_s = clock_s
        base = read_base_url(settings.authority)
        self._target = base.joined(f"/{settings.tenant_id}/oauth2/v2.0/token")
        tls = ssl.create_default_context() if base.origin.scheme == "https" else None
        self._pool = Pool(base.origin, tls=tls)
        self._token = ""
        self._good_until_s = 0.0
        self._asking: asyncio.Lock | None = None

    async def headers(self, outgoing: Outgoing) -> tuple[tuple[str, str], ...]:
        """The token that holds now. Raises UpstreamError if there is none to be had."""
        if self._clock_s() >= self._good_until_s:
            self._asking = self._asking or asyncio.Lock()
            async with self._asking:
                if self._clock_s() >= self._good_until_s:
                    await self._ask()
        return (("authorization", f"Bearer {self._token}"),)

    async def _ask(self) -> None:
        form = {
            "grant_type": "client_credentials",
            "client_id": self._settings.client_id,
            "client_secret": self._secret.reveal(),
            "scope": self._settings.scope,
        }
        headers = (("content-type", "application/x-www-form-urlencoded"),)
        request = request_bytes(
            "POST", self._pool.origin, self._target, headers, urlencode(form).encode()
        )
        reply = await self._pool.send(request, Timeouts(5.0, 20.0, 20.0))
        body = await reply.body(_MOST_TOKEN_BYTES)
        try:
            told = msgspec.json.decode(body)
            token, lasts_s = told["access_token"], float(told["expires_in"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            # The body may repeat what was sent, so it is not shown.
            raise UpstreamError(
                "connect", f"Microsoft Entra gave no token (status {reply.status})", unsent=True
            ) from None
        self._token = str(token)
        self._good_until_s = self._clock_s() + max(30.0, lasts_s - _EARLY_S)

    def __repr__(self) -> str:
        return "<token of Microsoft Entra>"
