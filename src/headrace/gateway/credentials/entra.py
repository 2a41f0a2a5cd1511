"""Microsoft Entra tokens by client credentials.

Source: learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow.
"""

from __future__ import annotations

from headrace.gateway.credentials.endpoint import Endpoint
from headrace.gateway.credentials.renewed import Fresh
from headrace.gateway.settings.provider import EntraSettings
from headrace.gateway.settings.secret import Secret


class EntraClient:
    """An application that authenticates by its secret."""

    def __init__(self, settings: EntraSettings, secret: Secret) -> None:
        self._settings = settings
        self._secret = secret
        address = f"{settings.authority.rstrip('/')}/{settings.tenant_id}/oauth2/v2.0/token"
        self._endpoint = Endpoint(address, "Microsoft Entra")

    async def ask(self) -> Fresh[str]:
        """A token. Raises UpstreamError."""
        return await self._endpoint.token(
            {
                "grant_type": "client_credentials",
                "client_id": self._settings.client_id,
                "client_secret": self._secret.reveal(),
                "scope": self._settings.scope,
            }
        )
