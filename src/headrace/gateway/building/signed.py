"""Ways to be known that need more than a key, of a provider's settings."""

from __future__ import annotations

import time
from pathlib import Path

from headrace.errors import ConfigError
from headrace.gateway.credentials.bearer import BearerToken
from headrace.gateway.settings.provider import AwsSettings, EntraSettings, GoogleSettings
from headrace.gateway.settings.secret import Sources, read_document, read_secret
from headrace.gateway.targets.auth import Auth, InTurn

_GOOGLE_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
_OF_MACHINE = "metadata"
# Where `gcloud auth application-default login` leaves them.
_GCLOUD_FILE = Path(".config") / "gcloud" / "application_default_credentials.json"


def aws_auth(settings: AwsSettings, region: str | None, sources: Sources) -> Auth:
    """Signatures. Raises ConfigError."""
    from headrace.gateway.credentials.aws_keys import keys_of
    from headrace.gateway.credentials.aws_signature import AwsSignature

    if region is None:
        raise ConfigError("region is missing: AWS signatures need one, such as us-east-1")
    keys = keys_of(settings, region, sources, wall_s=time.time, clock_s=time.monotonic)
    return InTurn((AwsSignature(keys, region, time.time),))


def entra_auth(settings: EntraSettings, sources: Sources) -> Auth:
    """A token of Microsoft Entra. Raises ConfigError."""
    from headrace.gateway.credentials.entra import EntraClient

    client = EntraClient(settings, read_secret(settings.client_secret, sources))
    return InTurn((BearerToken(client.ask, "the token of Microsoft Entra", time.monotonic),))


def google_credentials(settings: GoogleSettings, sources: Sources) -> str | None:
    """The place of the credentials: from the settings, else the one that Google's own tools read;
    None if there is none."""
    if settings.credentials is not None:
        return settings.credentials
    environ = sources.environ
    if path := environ.get(_GOOGLE_VARIABLE, "").strip():
        return f"file:{Path(path).resolve()}"  # of the process, not of the settings' folder
    home = environ.get("HOME", "").strip()
    if home and (Path(home) / _GCLOUD_FILE).exists():
        return f"file:{Path(home) / _GCLOUD_FILE}"
    return None


def google_auth(credentials: str, sources: Sources) -> tuple[Auth, str | None]:
    """A token of Google, and the project that the credentials name. Raises ConfigError."""
    from headrace.gateway.credentials.google import identity_of_file, identity_of_machine

    if credentials == _OF_MACHINE:
        identity = identity_of_machine(sources.environ)
    else:
        try:
            text, source = read_document(credentials, sources)
        except ConfigError as error:
            raise ConfigError(f"google.credentials: {error}") from None
        identity = identity_of_file(text, source, time.time)
    token = BearerToken(identity.ask, "the token of Google", time.monotonic)
    return InTurn((token,)), identity.project
