"""Keys of AWS from each place its own tools look at; botocore reads the same from the files."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import botocore.session
import pytest

from headrace.errors import ConfigError
from headrace.gateway.credentials.aws_keys import environment_tells, keys_of
from headrace.gateway.credentials.aws_signature import AwsSignature
from headrace.gateway.settings.provider import AwsSettings
from headrace.gateway.settings.secret import Sources
from headrace.gateway.targets.auth import Outgoing
from headrace.gateway.upstream.errors import UpstreamError
from headrace.protocol.aws.sigv4 import Credentials
from tests.gateway.credentials.clock import Clock
from tests.gateway.openai_provider import reply
from tests.gateway.upstream.scripted import served

NOW_S = 1_790_000_000.0
SECRET = "wJalrXUtnFEMI-secret"
TEMPORARY = Credentials("ASIATEMP", SECRET, "session-token")
ENDS = dt.datetime.fromtimestamp(NOW_S + 3600, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
ROLE = {"AccessKeyId": "ASIATEMP", "SecretAccessKey": SECRET, "Token": "session-token",
        "Expiration": ENDS}  # fmt: skip
FILE = f"""
[default]
aws_access_key_id = AKIADEFAULT
aws_secret_access_key = {SECRET}

[work]
aws_access_key_id=AKIAWORK
aws_secret_access_key={SECRET}
aws_session_token=a-session
"""


async def keys(
    given: AwsSettings, environ: dict[str, str], clock: Clock | None = None, folder: Path = Path()
) -> Credentials:
    sources = Sources(environ, folder)
    return await keys_of(
        given, "eu-west-1", sources, wall_s=lambda: NOW_S, clock_s=clock or Clock()
    )()


async def test_keys_of_the_environment() -> None:
    environ = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": SECRET}
    assert environment_tells(Sources(environ, Path()))
    assert await keys(AwsSettings(), environ) == Credentials("AKIA", SECRET)
    found = await keys(AwsSettings(), {**environ, "AWS_SESSION_TOKEN": "t"})
    assert found.session_token == "t"


@pytest.mark.parametrize("profile", ["default", "work"])
async def test_profiles_as_botocore_reads_them(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "credentials"
    path.write_text(FILE)
    environ = {"AWS_SHARED_CREDENTIALS_FILE": str(path), "AWS_CONFIG_FILE": str(tmp_path / "no")}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    theirs = botocore.session.Session(profile=profile).get_credentials()
    expected = Credentials(theirs.access_key, theirs.secret_key, theirs.token)
    assert await keys(AwsSettings(profile=profile), environ) == expected
    assert await keys(AwsSettings(), {**environ, "AWS_PROFILE": profile}) == expected


async def test_a_profile_that_somebody_logs_in_to_again(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    path = tmp_path / ".aws" / "config"
    path.write_text(FILE.replace("[work]", "[profile work]"))
    clock, sources = Clock(), Sources({"HOME": str(tmp_path)}, Path())
    current = keys_of(
        AwsSettings(profile="work"), "eu-west-1", sources, wall_s=lambda: NOW_S, clock_s=clock
    )
    assert (await current()).access_key_id == "AKIAWORK"
    path.write_text("[profile work]\naws_access_key_id=AKIANEW\naws_secret_access_key=x\n")
    assert (await current()).access_key_id == "AKIAWORK"
    clock.now_s += 901
    assert (await current()).access_key_id == "AKIANEW"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is in neither"),
        ("[work]\nregion = x\n", "has no keys"),
        ("[work]\nrole_arn = x\nsource_profile = y\n", "it has role_arn, which is not supported"),
        ("no ini", "is not an INI file"),
    ],
)
async def test_profiles_that_help_nobody(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text(text)
    environ = {"AWS_SHARED_CREDENTIALS_FILE": str(path)}
    with pytest.raises(ConfigError, match=says):
        await keys(AwsSettings(profile="work"), environ)


async def test_a_role_by_web_identity(tmp_path: Path) -> None:
    async def sts(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        body = (
            '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            "<AssumeRoleWithWebIdentityResult><Credentials>"
            f"<SessionToken>session-token</SessionToken><SecretAccessKey>{SECRET}</SecretAccessKey>"
            f"<Expiration>{ENDS}</Expiration><AccessKeyId>ASIATEMP</AccessKeyId></Credentials>"
            "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        ).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/xml\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    (tmp_path / "token").write_text("web.identity.token\n")
    async with served(sts) as aws:
        environ = {
            "AWS_ROLE_ARN": "arn:aws:iam::1:role/r", "AWS_ENDPOINT_URL_STS": str(aws.origin),
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
            "AWS_ROLE_SESSION_NAME": "gate",
        }  # fmt: skip
        assert environment_tells(Sources(environ, Path()))
        assert await keys(AwsSettings(), environ) == TEMPORARY
        given = AwsSettings(role_arn="arn:aws:iam::1:role/r", web_identity_token_file="token")
        address = {"AWS_ENDPOINT_URL_STS": str(aws.origin)}
        assert await keys(given, address, folder=tmp_path) == TEMPORARY
        form = parse_qs(aws.requests[0].partition(b"\r\n\r\n")[2].decode())
    assert form == {
        "Action": ["AssumeRoleWithWebIdentity"], "Version": ["2011-06-15"],
        "RoleArn": ["arn:aws:iam::1:role/r"], "RoleSessionName": ["gate"],
        "WebIdentityToken": ["web.identity.token"],
    }  # fmt: skip


async def test_a_containers_role_and_its_renewal(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("container-token")

    async def agent(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        known = b"authorization: container-token\r\n" in request
        writer.write(reply(200, ROLE) if known else reply(401, {}))

    async with served(agent) as aws:
        environ = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{aws.origin}/v1/credentials?a=b",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
        }
        clock, sources = Clock(), Sources(environ, Path())
        current = keys_of(AwsSettings(), "eu-west-1", sources, wall_s=lambda: NOW_S, clock_s=clock)
        assert await current() == TEMPORARY and await current() == TEMPORARY
        assert len(aws.requests) == 1
        assert aws.requests[0].startswith(b"GET /v1/credentials?a=b HTTP/1.1")
        clock.now_s += 3601
        assert await current() == TEMPORARY and len(aws.requests) == 2


async def test_a_container_token_goes_to_nobody_far_away() -> None:
    environ = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://evil.example/x"}
    with pytest.raises(ConfigError, match="must be https, or an address of this machine"):
        await keys(AwsSettings(), environ)


async def test_a_machines_role_is_asked_for_with_a_session() -> None:
    async def imds(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        path = request.split(b" ")[1].decode()
        folder = "/latest/meta-data/iam/security-credentials/"
        if path == "/latest/api/token":
            put = request.startswith(b"PUT ") and b"token-ttl-seconds: 21600" in request
            writer.write(text(b"imds-session") if put else reply(405, {}))
        elif b"x-aws-ec2-metadata-token: imds-session\r\n" not in request:
            writer.write(reply(401, {}))
        else:
            writer.write(text(b"my-role\n") if path == folder else reply(200, ROLE))

    def text(body: bytes) -> bytes:
        return f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body

    async with served(imds) as aws:
        environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": str(aws.origin)}
        assert not environment_tells(Sources(environ, Path()))
        assert await keys(AwsSettings(), environ) == TEMPORARY
        assert aws.requests[-1].startswith(
            b"GET /latest/meta-data/iam/security-credentials/my-role "
        )


async def test_no_keys_anywhere() -> None:
    with pytest.raises(ConfigError, match="no keys were found"):
        await keys(AwsSettings(), {"AWS_EC2_METADATA_DISABLED": "true"})
    async with served(lambda *_: asyncio.sleep(0)) as nobody:
        address = str(nobody.origin)
    with pytest.raises(UpstreamError, match="the machine's role"):
        await keys(AwsSettings(), {"AWS_EC2_METADATA_SERVICE_ENDPOINT": address})


@pytest.mark.parametrize(
    "given", [{"access_key_id": "a"}, {"role_arn": "a"}, {"web_identity_token_file": "a"}]
)
async def test_halves_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be set together"):
        await keys(AwsSettings(**given), {})


async def test_a_signature_is_of_the_keys_of_the_moment() -> None:
    now = [Credentials("AKIAONE", "x"), Credentials("AKIATWO", "x", "session")]

    async def current() -> Credentials:
        return now.pop(0)

    signature = AwsSignature(current, "eu-west-1", lambda: NOW_S)
    outgoing = Outgoing("POST", "h.example", "/model/m/converse", (), b"{}")
    first, second = dict(await signature.headers(outgoing)), dict(await signature.headers(outgoing))
    assert "AKIAONE" in first["Authorization"] and "X-Amz-Security-Token" not in first
    assert "AKIATWO" in second["Authorization"] and second["X-Amz-Security-Token"] == "session"
