"""Finds AWS keys in the order in which AWS's own tools look for them."""

from __future__ import annotations

import configparser
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from headrace.config.text_file import read_text_file
from headrace.errors import ConfigError, shown
from headrace.gateway.credentials.aws_roles import ContainerRole, MachineRole, WebIdentityRole
from headrace.gateway.credentials.endpoint import Endpoint
from headrace.gateway.credentials.renewed import Fresh, Renewed
from headrace.gateway.settings.provider import AwsSettings
from headrace.gateway.settings.secret import Sources, read_secret
from headrace.gateway.upstream.errors import UpstreamError
from headrace.protocol.aws.sigv4 import Credentials

Keys = Callable[[], Awaitable[Credentials]]

_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_ROLE = ("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE")
_CONTAINER = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
_MOST_FILE_BYTES = 1 << 20
# Login tools rewrite the file; it is read again this often.
_FILE_LASTS_S = 900.0


def environment_tells(sources: Sources) -> bool:
    """Whether the environment names keys, other than by the role the machine may have."""
    has = _given(sources.environ)
    return set(_KEYS) <= has or set(_ROLE) <= has or bool(has & {*_CONTAINER, "AWS_PROFILE"})


def keys_of(
    settings: AwsSettings,
    region: str,
    sources: Sources,
    *,
    wall_s: Callable[[], float],
    clock_s: Callable[[], float],
) -> Keys:
    """The keys that the settings name; if they name none, those of the environment, of a profile in
    the shared file, or of the machine's role, in this order. Raises ConfigError."""
    environ, has = sources.environ, _given(sources.environ)
    if settings.access_key_id or settings.secret_access_key:
        return _stated(settings, sources)
    if settings.profile:
        return _of_profile(settings.profile, sources, clock_s)
    if settings.role_arn or settings.web_identity_token_file:
        return _of_role(settings, region, sources, wall_s, clock_s)
    if set(_KEYS) <= has:
        stated = AwsSettings(
            access_key_id=f"env:{_KEYS[0]}",
            secret_access_key=f"env:{_KEYS[1]}",
            session_token="env:AWS_SESSION_TOKEN" if "AWS_SESSION_TOKEN" in has else None,
        )
        return _stated(stated, sources)
    if set(_ROLE) <= has:
        role = AwsSettings(
            role_arn=environ[_ROLE[0]].strip(), web_identity_token_file=environ[_ROLE[1]].strip()
        )
        return _of_role(role, region, sources, wall_s, clock_s)
    if "AWS_PROFILE" in has or any(file.exists() for file in _files(environ)):
        return _of_profile(environ.get("AWS_PROFILE", "").strip() or "default", sources, clock_s)
    if has & set(_CONTAINER):
        container = ContainerRole(environ, wall_s)
        return Renewed(container.ask, "the container's role", clock_s).current
    if environ.get("AWS_EC2_METADATA_DISABLED", "").strip().lower() == "true":
        raise ConfigError(
            f"aws: no keys were found: set {' and '.join(_KEYS)}, or name a profile or a role"
        )
    return Renewed(MachineRole(environ, wall_s).ask, "the machine's role", clock_s).current


def _given(environ: Mapping[str, str]) -> set[str]:
    return {name for name, value in environ.items() if name.startswith("AWS_") and value.strip()}


def _stated(settings: AwsSettings, sources: Sources) -> Keys:
    if not settings.access_key_id or not settings.secret_access_key:
        raise ConfigError("aws: access_key_id and secret_access_key must be set together")
    token = settings.session_token
    credentials = Credentials(
        read_secret(settings.access_key_id, sources).reveal(),
        read_secret(settings.secret_access_key, sources).reveal(),
        None if token is None else read_secret(token, sources).reveal(),
    )

    async def keys() -> Credentials:
        return credentials

    return keys


def _of_role(
    settings: AwsSettings,
    region: str,
    sources: Sources,
    wall_s: Callable[[], float],
    clock_s: Callable[[], float],
) -> Keys:
    if not settings.role_arn or not settings.web_identity_token_file:
        raise ConfigError("aws: role_arn and web_identity_token_file must be set together")
    environ = sources.environ
    stated = environ.get("AWS_ENDPOINT_URL_STS", "").strip()
    end = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    endpoint = Endpoint(stated or f"https://sts.{region}.{end}", "the AWS token service")
    name = environ.get("AWS_ROLE_SESSION_NAME", "").strip()
    role = WebIdentityRole(
        settings.role_arn,
        sources.folder / settings.web_identity_token_file,
        endpoint,
        wall_s,
        **({"session_name": name} if name else {}),
    )
    return Renewed(role.ask, "the AWS role", clock_s).current


def _of_profile(profile: str, sources: Sources, clock_s: Callable[[], float]) -> Keys:
    paths = _files(sources.environ)
    _read_profile(profile, paths)  # errors are reported at the start

    async def ask() -> Fresh[Credentials]:
        try:
            return Fresh(_read_profile(profile, paths), _FILE_LASTS_S)
        except ConfigError as error:
            raise UpstreamError("connect", str(error), unsent=True) from None

    return Renewed(ask, f"the AWS profile {profile}", clock_s).current


def _files(environ: Mapping[str, str]) -> tuple[Path, Path]:
    """The file of keys, and that of settings, which may hold keys as well."""
    home = Path(environ.get("HOME", "/nonexistent")) / ".aws"
    return (
        Path(environ.get("AWS_SHARED_CREDENTIALS_FILE", "").strip() or home / "credentials"),
        Path(environ.get("AWS_CONFIG_FILE", "").strip() or home / "config"),
    )


def _read_profile(profile: str, paths: tuple[Path, Path]) -> Credentials:
    keys, settings = paths
    sections = ((keys, profile), (settings, f"profile {profile}"), (settings, profile))
    without: str | None = None
    for path, name in sections:
        if not path.exists():
            continue
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(read_text_file(path, "aws.profile", _MOST_FILE_BYTES))
        except configparser.Error:
            raise ConfigError(f"aws.profile: {path} is not an INI file") from None
        if not parser.has_section(name):
            continue
        section = parser[name]
        key_id, secret = section.get("aws_access_key_id"), section.get("aws_secret_access_key")
        if key_id and secret:
            return Credentials(key_id, secret, section.get("aws_session_token") or None)
        ways = [
            method
            for method in ("role_arn", "sso_session", "credential_process")
            if method in section
        ]
        without = f"; it has {', '.join(ways)}, which is not supported here" if ways else ""
    if without is not None:
        raise ConfigError(f"aws.profile {shown(profile)}: has no keys{without}")
    raise ConfigError(f"aws.profile {shown(profile)}: is in neither {keys} nor {settings}")
