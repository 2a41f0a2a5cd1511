"""Google Cloud tokens: by a service account's key, a user's refresh token, or the machine.

Sources: developers.google.com/identity/protocols/oauth2/service-account (the JWT bearer grant of
RFC 7523), cloud.google.com/docs/authentication/application-default-credentials, and
cloud.google.com/compute/docs/metadata/querying-metadata.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from headrace.errors import ConfigError
from headrace.gateway.credentials.endpoint import NEAR, Endpoint
from headrace.gateway.credentials.renewed import Fresh

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_TOKEN_URI = "https://oauth2.googleapis.com/token"
_BY_JWT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
# The most that Google accepts.
_JWT_LASTS_S = 3600
_METADATA_HOST = "metadata.google.internal"
_METADATA_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"
_METADATA_FLAVOR = (("metadata-flavor", "Google"),)


class GoogleIdentity(NamedTuple):
    """An account at Google Cloud."""

    ask: Callable[[], Awaitable[Fresh[str]]]
    """Requests a token."""
    project: str | None
    """The project that the file names; None if it names none."""


class _File(msgspec.Struct, frozen=True):
    type: str
    project_id: str | None = None
    quota_project_id: str | None = None
    client_email: str | None = None
    private_key: str | None = None
    private_key_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    refresh_token: str | None = None
    token_uri: str | None = None

    def __repr__(self) -> str:
        return "<Google credentials>"


def identity_of_file(text: str, source: str, wall_s: Callable[[], float]) -> GoogleIdentity:
    """The identity in JSON from the Cloud console or `gcloud auth application-default login`.

    `source` names the origin in errors, which contain nothing of it. Raises ConfigError.
    """
    try:
        file = msgspec.json.decode(text, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ConfigError(
            f"{source}: not Google credentials in JSON; use the file that the Cloud console "
            "creates for a key of a service account"
        ) from None
    if file.type == "service_account":
        return GoogleIdentity(_ServiceAccount(file, source, wall_s).ask, file.project_id)
    if file.type == "authorized_user":
        return GoogleIdentity(_User(file, source).ask, file.quota_project_id)
    raise ConfigError(
        f"{source}: credentials of type {file.type[:40]!r} are not supported; use a "
        "service_account or an authorized_user"
    )


def identity_of_machine(environ: Mapping[str, str]) -> GoogleIdentity:
    """The account that a Google machine, pod or function runs as."""
    host = environ.get("GCE_METADATA_HOST", "").strip() or _METADATA_HOST
    endpoint = Endpoint(f"http://{host}", "Google's metadata server", NEAR)

    async def ask() -> Fresh[str]:
        answer = await endpoint.ask("GET", _METADATA_PATH, _METADATA_FLAVOR)
        return endpoint.read_token(answer)

    return GoogleIdentity(ask, None)


class _ServiceAccount:
    def __init__(self, file: _File, source: str, wall_s: Callable[[], float]) -> None:
        if not file.client_email or not file.private_key:
            raise ConfigError(f"{source}: client_email and private_key are missing")
        self._email = file.client_email
        self._key = _read_key(file.private_key, source)
        self._key_id = file.private_key_id
        self._audience = file.token_uri or _TOKEN_URI
        self._endpoint = Endpoint(self._audience, "Google")
        self._wall_s = wall_s

    async def ask(self) -> Fresh[str]:
        """Request a token. Raises UpstreamError."""
        return await self._endpoint.token({"grant_type": _BY_JWT, "assertion": self._assertion()})

    def _assertion(self) -> str:
        import jwt

        now_s = int(self._wall_s())
        claims: dict[str, Any] = {
            "iss": self._email,
            "scope": SCOPE,
            "aud": self._audience,
            "iat": now_s,
            "exp": now_s + _JWT_LASTS_S,
        }
        named = {"kid": self._key_id} if self._key_id else None
        return jwt.encode(claims, self._key, algorithm="RS256", headers=named)


class _User:
    def __init__(self, file: _File, source: str) -> None:
        if not file.client_id or not file.client_secret or not file.refresh_token:
            raise ConfigError(f"{source}: client_id, client_secret and refresh_token are missing")
        self._form = {
            "grant_type": "refresh_token",
            "client_id": file.client_id,
            "client_secret": file.client_secret,
            "refresh_token": file.refresh_token,
        }
        self._endpoint = Endpoint(file.token_uri or _TOKEN_URI, "Google")

    async def ask(self) -> Fresh[str]:
        """Request a token. Raises UpstreamError."""
        return await self._endpoint.token(self._form)


def _read_key(pem: str, source: str) -> RSAPrivateKey:
    try:
        import jwt  # noqa: F401
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise ConfigError(
            "Google service accounts need PyJWT and cryptography: pip install 'headrace[google]'"
        ) from error
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise ConfigError(f"{source}: its private_key is not an RSA key in PEM format")
    return key
