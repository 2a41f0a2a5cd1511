"""Providers of the file, with what the catalog knows of each."""

from __future__ import annotations

import re
import ssl

import msgspec

from headrace.catalog import Catalog
from headrace.catalog.names import plain
from headrace.catalog.rows.provider import Provider as ProviderRow
from headrace.config.load import nearest
from headrace.errors import ConfigError, shown
from headrace.gateway.building.dialects import embedding_side, passed_path, provider_side
from headrace.gateway.settings.provider import AwsSettings, ProviderSettings
from headrace.gateway.settings.reliability import TimeoutSettings
from headrace.gateway.settings.secret import Sources, is_plain, read_secret
from headrace.gateway.targets.auth import Auth, InTurn, KeyHeader, NoAuth
from headrace.gateway.targets.provider import Provider
from headrace.gateway.upstream.limits import PoolLimits, Timeouts
from headrace.gateway.upstream.origin import BaseUrl, read_base_url
from headrace.gateway.upstream.pool import Pool
from headrace.gateway.upstream.request import request_bytes

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
_AWS_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
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
) -> Provider:
    """Raises ConfigError saying what is missing; secrets are in none of its texts."""
    row = _row(name, settings, catalog)
    try:
        if row is not None and row.auth == "google" and settings.google is None:
            raise ConfigError("google is missing: write `google: {project: YOURS}`")
        base = read_base_url(_address(name, settings, row, catalog))
        dialect = _dialect(settings, row)
        side = provider_side(dialect, (row.variant if row else None) or "generic", settings)
        local = base.origin.host in _LOOPBACK
        auth = _auth(settings, row, dialect, sources, local=local)
        headers = _headers(settings, base)
    except ConfigError as error:
        raise ConfigError(f"providers.{name}: {error}") from error
    own = settings.timeouts or timeouts
    if base.origin.scheme == "https" and tls is None:
        tls = ssl.create_default_context()
    if dialect == "anthropic" and "anthropic-version" not in dict(headers):
        headers += (ANTHROPIC_VERSION,)
    passed = passed_path(dialect, side)
    return Provider(
        name=name,
        side=side,
        base=base,
        auth=auth,
        pool=Pool(base.origin, PoolLimits(connections=settings.connections), tls=tls),
        timeouts=Timeouts(own.connect_s, own.first_token_s, own.idle_s),
        first_token_s=own.first_token_s,
        headers=headers,
        embeddings=embedding_side(dialect, side),
        client_dialect=dialect if passed else None,
        passed_path=passed,
        region=settings.region,
        keeps_data=settings.keeps_data,
        zero_retention=settings.zero_retention,
        local=local,
    )


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
    """Where its API begins, with what the settings say in place of names in braces."""
    address = settings.base_url or (row.base_url if row else None)
    if address is None:
        begin = f"{plain(settings.kind or name)}-"
        others = [one.id for one in catalog.providers if one.base_url and one.id.startswith(begin)]
        kinds = f", or a kind: {' or '.join(others)}" if others else ""
        raise ConfigError(f"base_url is missing: where does its API begin?{kinds}")
    given = {"region": settings.region}
    if settings.google is not None:
        given["location"] = settings.google.location
        if settings.google.location == "global":
            address = address.replace("{location}-", "")
    form = address
    for key, value in given.items():
        mark = f"{{{key}}}"
        if value is not None and mark in address:
            if not _NAME_IN_ADDRESS.fullmatch(value):
                raise ConfigError(
                    f"{key} {shown(value)} cannot stand in {form}: small letters, digits and "
                    "dashes are expected"
                )
            address = address.replace(mark, value)
    if "{" in address:
        region = ", or give its region" if "{region}" in address else ""
        raise ConfigError(
            f"base_url is missing: it is of the form {address} with your own names in place of "
            f"those in braces{region}"
        )
    return address


def _dialect(settings: ProviderSettings, row: ProviderRow | None) -> str:
    dialect = settings.dialect or (row.dialect if row else None)
    if dialect is None:
        if settings.base_url is None:
            raise ConfigError("dialect is missing: what does it speak? openai-chat is what most do")
        return "openai-chat"
    return dialect


def _headers(settings: ProviderSettings, base: BaseUrl) -> tuple[tuple[str, str], ...]:
    headers = tuple((key.lower(), value) for key, value in settings.headers.items())
    for key, _ in headers:
        if key in _POOLS_HEADERS:
            raise ConfigError(f"headers: {key} is written by the gateway itself; leave it out")
    try:
        request_bytes("POST", base.origin, "/", headers)
    except ValueError as error:
        raise ConfigError(f"headers: {error}") from error
    return headers


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
        from headrace.gateway.building.signed import signed_auth

        return signed_auth(msgspec.structs.replace(settings, aws=aws), sources)
    if not keys:
        _check_may_be_none(row, kind, local)
        return NoAuth()
    header, prefix = _HEADERS[kind]
    if any(one.lower() == header for one in settings.headers):
        raise ConfigError(f"headers: {header} is there and api_key too; keep api_key")
    return InTurn(tuple(KeyHeader(read_secret(one, sources), header, prefix) for one in keys))


def _key_of_environment(row: ProviderRow | None, sources: Sources) -> tuple[str, ...]:
    variable = row.key_variable if row is not None else None
    if variable and sources.environ.get(variable, "").strip():
        return (f"env:{variable}",)
    return ()


def _aws_of_environment(sources: Sources) -> AwsSettings | None:
    """What AWS's own tools read; None where half of it is missing."""
    known = [one for one in _AWS_VARIABLES if sources.environ.get(one, "").strip()]
    if not set(_AWS_VARIABLES[:2]) <= set(known):
        return None
    token = _AWS_VARIABLES[2]
    return AwsSettings(
        access_key_id=f"env:{_AWS_VARIABLES[0]}",
        secret_access_key=f"env:{_AWS_VARIABLES[1]}",
        session_token=f"env:{token}" if token in known else None,
    )


def _check_only_one(settings: ProviderSettings, dialect: str) -> None:
    """Raise ConfigError for two ways to be known, or signatures where nobody reads them."""
    given = [one for one in ("api_key", "entra", "aws", "google") if getattr(settings, one)]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are there: keep one")
    if settings.aws is not None and dialect != "bedrock":
        raise ConfigError("aws: only providers that speak bedrock take signatures of AWS")


def _check_may_be_none(row: ProviderRow | None, kind: str, local: bool) -> None:
    """Raise ConfigError where there is no key and nothing is had without one."""
    if local or kind == "none" or (row is not None and row.self_hosted):
        return
    if kind == "google":
        raise ConfigError(
            "api_key is missing: an access token, as `gcloud auth print-access-token` prints it"
        )
    if kind == "aws":
        raise ConfigError(
            f"aws or api_key is missing: write one of them, or set {_AWS_VARIABLES[0]} and "
            f"{_AWS_VARIABLES[1]}, or {row.key_variable if row else 'a bearer key'}"
        )
    if row is not None and row.key_variable:
        raise ConfigError(
            f"api_key is missing: write it, as `api_key: [env:{row.key_variable}]`, or set "
            f"{row.key_variable}"
        )


def plain_secrets(name: str, settings: ProviderSettings) -> tuple[str, ...]:
    """Fields whose secret stands in the file itself, for a warning."""
    return (f"providers.{name}.api_key",) if any(map(is_plain, settings.api_key)) else ()
