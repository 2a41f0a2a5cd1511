"""Providers of the file, with what the catalog knows of each."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping

import msgspec

from headrace.catalog import Catalog
from headrace.catalog.names import plain
from headrace.catalog.rows.provider import Provider as ProviderRow
from headrace.config.load import nearest
from headrace.errors import ConfigError, shown
from headrace.gateway.building.counting import counting_of
from headrace.gateway.building.dialects import (
    embedding_side,
    glance_of,
    in_steps_of,
    provider_side,
)
from headrace.gateway.building.from_environment import with_variables
from headrace.gateway.building.passings import embedding_passings_of, passings_of
from headrace.gateway.settings.cache import CacheScope
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.provider import AwsSettings, ProviderSettings
from headrace.gateway.settings.reliability import TimeoutSettings
from headrace.gateway.settings.secret import Sources, is_plain, read_secret
from headrace.gateway.targets.auth import Auth, InTurn, KeyHeader, NoAuth
from headrace.gateway.targets.provider import Provider
from headrace.gateway.upstream.limits import PoolLimits, Timeouts
from headrace.gateway.upstream.origin import BaseUrl, read_base_url
from headrace.gateway.upstream.pool import Pool
from headrace.gateway.upstream.request import request_bytes
from headrace.protocol.neutral.dialect import PromptCacheSide, ProviderSide

_HEADERS = {
    "bearer": ("authorization", "Bearer "),
    "aws": ("authorization", "Bearer "),
    "google": ("authorization", "Bearer "),
    "none": ("authorization", "Bearer "),
    "token": ("authorization", "Token "),
    "x-api-key": ("x-api-key", ""),
    "api-key": ("api-key", ""),
    "x-goog-api-key": ("x-goog-api-key", ""),
    "x-portkey-api-key": ("x-portkey-api-key", ""),
}
# How a key is sent where no row says it; all others take a bearer.
_AUTH_OF_DIALECT = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# The rows of servers one runs oneself are named after their runtime, whose id is taken.
_OF_RUNTIME = "-server"
_VERTEX = "google-vertex"
# As Anthropic's own package reaches them.
_MULTI_REGIONS = ("us", "eu")
_AWS_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
# The head of a request is the pool's; two of them would be two requests to some.
_POOLS_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "accept-encoding"}
)
_NAME_IN_ADDRESS = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
ANTHROPIC_VERSION = ("anthropic-version", "2023-06-01")


def provider_of(
    name: str,
    settings: ProviderSettings,
    catalog: Catalog,
    timeouts: TimeoutSettings,
    sources: Sources,
    tls: ssl.SSLContext | None,
    prompt_cache_scope: CacheScope = "key",
) -> Provider:
    """Raises ConfigError saying what is missing; secrets are in none of its texts."""
    row = _row(name, settings, catalog)
    try:
        settings = with_variables(settings, sources)
        if row is not None and row.auth == "google" and settings.google is None:
            raise ConfigError("google is missing: write `google: {project: YOURS}`")
        base = read_base_url(_address(name, settings, row, catalog))
        dialect = _dialect(settings, row)
        settings, known = _of_google(settings, sources)
        side = provider_side(dialect, (row.variant if row else None) or "generic", settings)
        local = base.origin.host in _LOOPBACK
        auth = known or _auth(settings, row, dialect, sources, local=local)
        headers = _headers(settings, base)
    except ConfigError as error:
        raise ConfigError(f"providers.{name}: {error}") from error
    own = settings.timeouts or timeouts
    if base.origin.scheme == "https" and tls is None:
        tls = ssl.create_default_context()
    if dialect == "anthropic" and "anthropic-version" not in dict(headers):
        headers += (ANTHROPIC_VERSION,)
    limits = PoolLimits(connections=settings.connections)
    completions, responses = settings.completions, settings.responses
    of_row = row is not None and dialect == row.dialect
    if completions is None:
        completions = of_row and row is not None and row.completions is True
    if responses is None:
        # Servers that copy OpenAI's API stand at other addresses, and few have this part of it.
        at_home = of_row and settings.base_url is None
        responses = at_home and row is not None and row.responses is True
    return Provider(
        name=name,
        side=side,
        base=base,
        auth=auth,
        pool=Pool(base.origin, limits, tls=tls),
        timeouts=Timeouts(own.connect_s, own.first_token_s, own.idle_s),
        first_token_s=own.first_token_s,
        headers=headers,
        embeddings=embedding_side(dialect, side),
        embedding_passes=embedding_passings_of(dialect, side),
        counting=counting_of(side),
        in_steps=in_steps_of(side, limits, tls),
        passes=passings_of(dialect, side, completions=completions, responses=responses),
        glance=glance_of(side),
        prompt_cache_field=_prompt_cache_field(settings, side),
        prompt_cache_scope=prompt_cache_scope,
        region=settings.region,
        keeps_data=settings.keeps_data,
        zero_retention=settings.zero_retention,
        local=local,
        self_hosted=row is not None and row.self_hosted is True,
    )


def _prompt_cache_field(settings: ProviderSettings, side: ProviderSide) -> str | None:
    """The given one, or what is known of its kind."""
    if settings.prompt_cache_field is not None:
        return None if settings.prompt_cache_field == "none" else settings.prompt_cache_field
    return side.prompt_cache_field if isinstance(side, PromptCacheSide) else None


def prompt_cache_warnings(
    settings: GatewaySettings, providers: Mapping[str, Provider]
) -> list[str]:
    """A line for each provider that the file does not say enough of to keep its tenants apart."""
    if settings.prompt_cache.scope == "all" or not settings.access.require_key:
        return []
    return [
        f"providers.{name}: only its dialect is known, so keys are not kept apart in its prompt "
        "cache; name its kind (`kind: vllm-server`) or the field that does "
        "(`prompt_cache_field: cache_salt`), or write `prompt_cache_field: none`"
        for name, provider in providers.items()
        if (given := settings.providers.get(name)) is not None
        and given.dialect is not None
        and given.kind is None
        and given.prompt_cache_field is None
        and provider.prompt_cache_field is None
    ]


def _row(name: str, settings: ProviderSettings, catalog: Catalog) -> ProviderRow | None:
    """The catalog's, by `kind` or by the name; a kind that is not there is an error."""
    wanted = settings.kind or name
    rows = catalog.providers
    found = rows.find(wanted) or rows.find(wanted + _OF_RUNTIME)
    if found is None and settings.kind is not None:
        raise ConfigError(
            f"providers.{name}: kind {shown(wanted)} is not in the catalog"
            f"{nearest(wanted, rows.names())}; `headrace catalog list provider` has them"
        )
    if settings.google is not None and (found is None or found.auth != "google"):
        return rows.find(_VERTEX)
    return found


def _address(
    name: str, settings: ProviderSettings, row: ProviderRow | None, catalog: Catalog
) -> str:
    """The base URL of its API, with values for the names in braces."""
    address = settings.base_url or (row.base_url if row else None)
    if address is None:
        begin = f"{plain(settings.kind or name)}-"
        others = [
            provider.id
            for provider in catalog.providers
            if provider.base_url and provider.id.startswith(begin)
        ]
        kinds = f", or a kind: {' or '.join(others)}" if others else ""
        rows = (one for row in catalog.providers if row.base_url for one in (row.id, *row.aliases))
        meant = "" if others else nearest(name, rows)
        raise ConfigError(
            f"base_url is missing: write the URL at which its API begins{kinds}{meant}"
        )
    given: dict[str, str | None] = {"region": settings.region, **settings.address}
    if unknown := [one for one in settings.address if f"{{{one}}}" not in address]:
        raise ConfigError(f"address: {', '.join(unknown)} is not a name in braces of {address}")
    if settings.google is not None:
        given["location"] = settings.google.location
        location = settings.google.location
        if location == "global":
            address = address.replace("{location}-", "")
        elif location in _MULTI_REGIONS:
            address = address.replace("{location}-aiplatform.", f"aiplatform.{location}.rep.")
    form = address
    for key, value in given.items():
        mark = f"{{{key}}}"
        if value is not None and mark in address:
            if not _NAME_IN_ADDRESS.fullmatch(value):
                raise ConfigError(
                    f"{key} {shown(value)} cannot be part of {form}: use lower-case letters, "
                    "digits and dashes"
                )
            address = address.replace(mark, value)
    if "{" in address:
        region = ", or give its region" if "{region}" in address else ""
        raise ConfigError(
            f"base_url is missing: it has the form {address} with your own names in place of "
            f"those in braces; write it, or only the names, in address{region}"
        )
    return address


def _dialect(settings: ProviderSettings, row: ProviderRow | None) -> str:
    dialect = settings.dialect or (row.dialect if row else None)
    if dialect is None:
        if settings.base_url is None:
            raise ConfigError("dialect is missing: name the API it speaks; most speak openai-chat")
        return "openai-chat"
    return dialect


def _headers(settings: ProviderSettings, base: BaseUrl) -> tuple[tuple[str, str], ...]:
    headers = tuple((key.lower(), value) for key, value in settings.headers.items())
    for key, _ in headers:
        if key in _POOLS_HEADERS:
            raise ConfigError(f"headers: {key} is written by the gateway itself; remove it")
    try:
        request_bytes("POST", base.origin, "/", headers)
    except ValueError as error:
        raise ConfigError(f"headers: {error}") from error
    return headers


def _of_google(
    settings: ProviderSettings, sources: Sources
) -> tuple[ProviderSettings, Auth | None]:
    """The settings with their project, and a token of Google; None where `api_key` is one."""
    google = settings.google
    if google is None:
        return settings, None
    from headrace.gateway.building.signed import google_auth, google_credentials

    auth, project = None, google.project
    given = google.credentials
    credentials = given if settings.api_key else google_credentials(google, sources)
    if credentials is not None:
        if settings.api_key:
            raise ConfigError("api_key and google.credentials are both given: keep one")
        auth, named = google_auth(credentials, sources)
        project = project or named
    if project is None:
        raise ConfigError("google.project is missing: write the id of the project to bill")
    return (
        msgspec.structs.replace(settings, google=msgspec.structs.replace(google, project=project)),
        auth,
    )


def _auth(
    settings: ProviderSettings,
    row: ProviderRow | None,
    dialect: str,
    sources: Sources,
    *,
    local: bool,
) -> Auth:
    kind = _AUTH_OF_DIALECT.get(dialect, "bearer")
    if row is not None and row.auth is not None and dialect == row.dialect:
        kind = row.auth
    if settings.google is not None:
        kind = "google"
    aws = settings.aws
    keys = settings.api_key or _key_of_environment(row, sources)
    if kind == "aws" and aws is None and not keys:
        aws = _aws_of_environment(sources)
    if aws is not None or settings.entra is not None:
        _check_only_one(settings, dialect)
        from headrace.gateway.building.signed import aws_auth, entra_auth

        if aws is not None:
            return aws_auth(aws, settings.region, sources)
        assert settings.entra is not None
        return entra_auth(settings.entra, sources)
    if not keys:
        _check_may_be_none(row, kind, local)
        return NoAuth()
    header, prefix = _HEADERS[kind]
    if any(one.lower() == header for one in settings.headers):
        raise ConfigError(f"headers: {header} and api_key are both given; keep api_key")
    return InTurn(tuple(KeyHeader(read_secret(key, sources), header, prefix) for key in keys))


def _key_of_environment(row: ProviderRow | None, sources: Sources) -> tuple[str, ...]:
    variable = row.key_variable if row is not None else None
    if variable and sources.environ.get(variable, "").strip():
        return (f"env:{variable}",)
    return ()


def _aws_of_environment(sources: Sources) -> AwsSettings | None:
    """The default credentials of AWS's own tools; None if the environment has none."""
    from headrace.gateway.credentials.aws_keys import environment_tells

    return AwsSettings() if environment_tells(sources) else None


def _check_only_one(settings: ProviderSettings, dialect: str) -> None:
    """Raise ConfigError for two kinds of credentials, or signatures that the provider does not
    read."""
    given = [one for one in ("api_key", "entra", "aws", "google") if getattr(settings, one)]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are all given: keep one")
    if settings.aws is not None and dialect != "bedrock":
        raise ConfigError(
            "aws: only providers that speak bedrock accept AWS signatures; remove it, or write "
            "dialect: bedrock"
        )


def _check_may_be_none(row: ProviderRow | None, kind: str, local: bool) -> None:
    """Raise ConfigError where there is no key and nothing is had without one."""
    if local or kind == "none" or (row is not None and row.self_hosted):
        return
    if kind == "google":
        raise ConfigError(
            "google.credentials is missing: write file:PATH of a service account's key, or "
            "`metadata` on a machine of Google's; or give api_key, as `gcloud auth "
            "print-access-token` prints it"
        )
    if kind == "aws":
        raise ConfigError(
            f"aws or api_key is missing: write one of them (`aws: {{}}` uses the default "
            f"credentials of AWS's own tools), or set {' and '.join(_AWS_VARIABLES)}, or "
            f"{(row.key_variable if row else 'a bearer key')}"
        )
    if row is not None and row.key_variable:
        raise ConfigError(
            f"api_key is missing: write it, as `api_key: [env:{row.key_variable}]`, or set "
            f"{row.key_variable}"
        )


def plain_secrets(name: str, settings: ProviderSettings) -> tuple[str, ...]:
    """Fields whose secret is written into the file itself, for a warning."""
    return (f"providers.{name}.api_key",) if any(map(is_plain, settings.api_key)) else ()
