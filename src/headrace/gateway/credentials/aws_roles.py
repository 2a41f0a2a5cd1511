"""Temporary AWS keys: of a role by web identity, of a container, of a machine.

Sources: docs.aws.amazon.com/sdkref/latest/guide, "Assume role with web identity", "Container
credential provider", "IMDS credential provider"; docs.aws.amazon.com/STS/latest/APIReference.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

from headrace.config.text_file import read_text_file
from headrace.errors import ConfigError
from headrace.gateway.credentials.endpoint import NEAR, Answer, Endpoint
from headrace.gateway.credentials.renewed import Fresh
from headrace.gateway.upstream.errors import UpstreamError
from headrace.protocol.aws.sigv4 import Credentials

_STS = "{https://sts.amazonaws.com/doc/2011-06-15/}"
_FORM = (("content-type", "application/x-www-form-urlencoded"),)
_SESSION_NAME = "headrace"
_MOST_TOKEN_BYTES = 64 * 1024
_CONTAINER_ADDRESS = "http://169.254.170.2"
# The agent of EKS is reached without TLS.
_CONTAINER_HOSTS = ("169.254.170.2", "169.254.170.23", "fd00:ec2::23")
_MACHINE_ADDRESS = "http://169.254.169.254"
_ROLE_PATH = "/latest/meta-data/iam/security-credentials/"
_SESSION_LASTS_S = 21_600


class WebIdentityRole:
    """A role assumed with a token in a file, which the platform renews (EKS)."""

    def __init__(
        self,
        role_arn: str,
        token_file: Path,
        endpoint: Endpoint,
        wall_s: Callable[[], float],
        session_name: str = _SESSION_NAME,
    ) -> None:
        self._role_arn = role_arn
        self._token_file = token_file
        self._endpoint = endpoint
        self._wall_s = wall_s
        self._session_name = session_name

    async def ask(self) -> Fresh[Credentials]:
        """Request keys. Raises UpstreamError."""
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": self._role_arn,
            "RoleSessionName": self._session_name,
            "WebIdentityToken": _read_file(self._token_file),
        }
        answer = await self._endpoint.ask("POST", "/", _FORM, urlencode(form).encode())
        try:
            found = ElementTree.fromstring(answer.body).find(f".//{_STS}Credentials")
        except ElementTree.ParseError:
            found = None
        if answer.status != 200 or found is None:
            raise self._endpoint.refused(answer)
        fields = {element.tag.removeprefix(_STS): element.text for element in found}
        fields["Token"] = fields.get("SessionToken")
        return _read(fields, self._endpoint, answer, self._wall_s())


class ContainerRole:
    """The role of an ECS task or an EKS pod."""

    def __init__(self, environ: Mapping[str, str], wall_s: Callable[[], float]) -> None:
        relative = environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "").strip()
        whole = environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "").strip()
        address = _CONTAINER_ADDRESS + relative if relative else whole
        _check_near(address)
        parts = urlsplit(address)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._endpoint = Endpoint(
            f"{parts.scheme}://{parts.netloc}", "the AWS container endpoint", NEAR
        )
        self._token = environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "").strip()
        self._token_file = environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "").strip()
        self._wall_s = wall_s

    async def ask(self) -> Fresh[Credentials]:
        """Request keys. Raises UpstreamError."""
        token = _read_file(Path(self._token_file)) if self._token_file else self._token
        headers = (("authorization", token),) if token else ()
        answer = await self._endpoint.ask("GET", self._path, headers)
        fields = self._endpoint.read_object(answer)
        return _read(fields, self._endpoint, answer, self._wall_s())


class MachineRole:
    """The role of an EC2 machine, requested with a session (IMDSv2)."""

    def __init__(self, environ: Mapping[str, str], wall_s: Callable[[], float]) -> None:
        address = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "").strip()
        self._endpoint = Endpoint(
            (address or _MACHINE_ADDRESS).rstrip("/"), "the AWS metadata service", NEAR
        )
        self._wall_s = wall_s

    async def ask(self) -> Fresh[Credentials]:
        """Request keys. Raises UpstreamError."""
        ask = self._endpoint.ask
        lasts = (("x-aws-ec2-metadata-token-ttl-seconds", str(_SESSION_LASTS_S)),)
        session = await ask("PUT", "/latest/api/token", lasts)
        if session.status != 200:
            raise self._endpoint.refused(session)
        by = (("x-aws-ec2-metadata-token", _first_line(session)),)
        roles = await ask("GET", _ROLE_PATH, by)
        role = _first_line(roles)
        if roles.status != 200 or not role:
            raise self._endpoint.refused(roles)
        answer = await ask("GET", _ROLE_PATH + quote(role, safe=""), by)
        fields = self._endpoint.read_object(answer)
        return _read(fields, self._endpoint, answer, self._wall_s())


def _read(
    told: Mapping[str, Any], endpoint: Endpoint, answer: Answer, now_s: float
) -> Fresh[Credentials]:
    key_id, secret, token = (told.get(name) for name in ("AccessKeyId", "SecretAccessKey", "Token"))
    try:
        ends_s = dt.datetime.fromisoformat(str(told.get("Expiration"))).timestamp()
    except (ValueError, OverflowError):
        raise endpoint.refused(answer) from None
    if not isinstance(key_id, str) or not isinstance(secret, str) or not isinstance(token, str):
        raise endpoint.refused(answer)
    return Fresh(Credentials(key_id, secret, token), ends_s - now_s)


def _first_line(answer: Answer) -> str:
    return answer.body.decode("latin-1").partition("\n")[0].strip()


def _read_file(path: Path) -> str:
    """Read a token. The file is small, and others renew it while the gateway runs."""
    try:
        text = read_text_file(path, "an AWS token file", _MOST_TOKEN_BYTES).strip()
    except ConfigError as error:
        raise UpstreamError("connect", str(error), unsent=True) from None
    if not text.isascii() or not text.isprintable():
        raise UpstreamError("connect", f"{path}: not an AWS token", unsent=True)
    return text


def _check_near(address: str) -> None:
    """Raise ConfigError for an address to which the token would travel unencrypted."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    near = host in _CONTAINER_HOSTS or host == "localhost"
    with contextlib.suppress(ValueError):
        near = near or ipaddress.ip_address(host).is_loopback
    if parts.scheme != "https" and not near:
        raise ConfigError(
            "AWS_CONTAINER_CREDENTIALS_FULL_URI: must be https, or an address of this machine or "
            "of an AWS agent"
        )
