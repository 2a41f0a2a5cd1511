"""Tokens of Google, by each kind of credentials, from a token endpoint on loopback."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.gateway.building.providers import provider_of
from headrace.gateway.credentials.google import SCOPE, identity_of_file, identity_of_machine
from headrace.gateway.settings.provider import GoogleSettings, ProviderSettings
from headrace.gateway.settings.reliability import TimeoutSettings
from headrace.gateway.settings.secret import Sources
from headrace.gateway.targets.auth import Outgoing
from headrace.gateway.upstream.errors import UpstreamError
from tests.gateway.openai_provider import reply
from tests.gateway.upstream.scripted import served

NOW_S = 1_790_000_000.0
KEY = rsa.generate_private_key(65537, 2048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()
CATALOG = Catalog.load(())


def service_account(token_uri: str, **more: Any) -> str:
    return json.dumps(
        {"type": "service_account", "project_id": "acme-1", "private_key_id": "kid-1",
         "private_key": PEM, "client_email": "gate@acme-1.iam.gserviceaccount.com",
         "client_id": "1", "auth_uri": "https://accounts.google.com/o/oauth2/auth",
         "token_uri": token_uri, **more}
    )  # fmt: skip


def form_of(request: bytes) -> dict[str, str]:
    return {
        name: one[0] for name, one in parse_qs(request.partition(b"\r\n\r\n")[2].decode()).items()
    }


async def gives_token(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    told = {"access_token": "ya29.token", "expires_in": 3599, "token_type": "Bearer"}
    writer.write(reply(200, told))


async def test_a_service_account_signs_for_its_token() -> None:
    async with served(gives_token) as google:
        uri = f"{google.origin}/token"
        identity = identity_of_file(service_account(uri), "the file x", lambda: NOW_S)
        fresh = await identity.ask()
        assert fresh == ("ya29.token", 3599.0) and identity.project == "acme-1"
        assert google.requests[0].startswith(b"POST /token HTTP/1.1\r\n")
        form = form_of(google.requests[0])
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert jwt.get_unverified_header(form["assertion"]) == {
        "alg": "RS256", "kid": "kid-1", "typ": "JWT",
    }  # fmt: skip
    claims = jwt.decode(
        form["assertion"], KEY.public_key(), algorithms=["RS256"], audience=uri,
        options={"verify_exp": False, "verify_iat": False},
    )  # fmt: skip
    assert claims == {
        "iss": "gate@acme-1.iam.gserviceaccount.com", "scope": SCOPE, "aud": uri,
        "iat": int(NOW_S), "exp": int(NOW_S) + 3600,
    }  # fmt: skip


async def test_a_users_refresh_token() -> None:
    async with served(gives_token) as google:
        text = json.dumps(
            {"type": "authorized_user", "client_id": "c", "client_secret": "s",
             "refresh_token": "r", "quota_project_id": "p-2", "token_uri": f"{google.origin}/t"}
        )  # fmt: skip
        identity = identity_of_file(text, "x", lambda: NOW_S)
        assert (await identity.ask()).value == "ya29.token" and identity.project == "p-2"
        assert form_of(google.requests[0])["refresh_token"] == "r"


async def test_the_machines_own_account() -> None:
    async with served(gives_token) as google:
        environ = {"GCE_METADATA_HOST": google.origin.host_header}
        assert (await identity_of_machine(environ).ask()).value == "ya29.token"
        head = google.requests[0].decode().lower()
    assert head.startswith("get /computemetadata/v1/instance/service-accounts/default/token ")
    assert "metadata-flavor: google\r\n" in head


async def test_a_machine_that_is_none_of_googles_is_noticed() -> None:
    async with served(gives_token) as nobody:
        gone = nobody.origin.host_header
    with pytest.raises(UpstreamError):
        await identity_of_machine({"GCE_METADATA_HOST": gone}).ask()


async def test_a_refusal_shows_the_code_and_nothing_that_was_sent() -> None:
    async def refuses(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        body = request.partition(b"\r\n\r\n")[2].decode()
        writer.write(reply(400, {"error": "invalid_grant", "error_description": body}))

    async with served(refuses) as google:
        identity = identity_of_file(service_account(f"{google.origin}/t"), "x", lambda: NOW_S)
        with pytest.raises(UpstreamError) as caught:
            await identity.ask()
    assert str(caught.value) == "Google issued no token (status 400, invalid_grant)"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not Google credentials in JSON"),
        ("[1]", "not Google credentials in JSON"),
        (service_account("https://x", type="external_account"), "use a service_account"),
        (service_account("https://x", client_email=None), "client_email and private_key"),
        (service_account("https://x", private_key="-----BEGIN"), "is not an RSA key in PEM format"),
        (json.dumps({"type": "authorized_user", "client_secret": PEM}), "refresh_token"),
    ],
)
def test_bad_files_are_told_without_their_secrets(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        identity_of_file(text, "the file key.json", lambda: NOW_S)
    told = str(caught.value)
    assert told.startswith("the file key.json: ") and says in told
    assert PEM.splitlines()[1] not in told


@pytest.mark.parametrize("by", ["file", "env", "variable", "gcloud"])
async def test_vertex_of_the_settings(by: str, tmp_path: Path) -> None:
    """By a file of the settings' folder, a variable, GOOGLE_APPLICATION_CREDENTIALS, gcloud's."""
    async with served(gives_token) as google:
        text = service_account(f"{google.origin}/t")
        (tmp_path / "sa.json").write_text(text)
        folder = tmp_path / ".config" / "gcloud"
        folder.mkdir(parents=True)
        (folder / "application_default_credentials.json").write_text(text)
        environ, credentials = {
            "file": ({}, "file:sa.json"),
            "env": ({"SA": text}, "env:SA"),
            "variable": ({"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "sa.json")}, None),
            "gcloud": ({"HOME": str(tmp_path)}, None),
        }[by]
        given = GoogleSettings(location="europe-west4", credentials=credentials)
        provider = provider_of(
            "vertex", ProviderSettings(google=given), CATALOG, TimeoutSettings(),
            Sources(environ, tmp_path), None,
        )  # fmt: skip
        assert provider.base.origin.host == "europe-west4-aiplatform.googleapis.com"
        credential = provider.auth.pick(0.0)
        assert credential is not None
        outgoing = Outgoing("POST", "h", "/", (), b"")
        assert await credential.headers(outgoing) == (("authorization", "Bearer ya29.token"),)
        assert repr(credential) == "<the token of Google>" and "ya29" not in repr(provider)
        assert len(google.requests) == 1
    place = provider.side.place  # type: ignore[attr-defined]
    assert place.project == "acme-1"


def test_two_ways_to_be_known_are_one_too_many(tmp_path: Path) -> None:
    (tmp_path / "sa.json").write_text(service_account("https://x"))
    given = GoogleSettings(project="p", credentials="file:sa.json")
    settings = ProviderSettings(google=given, api_key=("key",))
    with pytest.raises(
        ConfigError, match=r"api_key and google\.credentials are both given: keep one"
    ):
        provider_of("vertex", settings, CATALOG, TimeoutSettings(), Sources({}, tmp_path), None)


@pytest.mark.parametrize(
    "told",
    [
        {"access_token": "a\r\nx: y", "expires_in": 9},
        {"access_token": "", "expires_in": 9},
        {"access_token": "a", "expires_in": "soon"},
        {"access_token": "a", "expires_in": True},
        {"expires_in": 9},
        [],
    ],
)
async def test_what_is_no_token_is_refused(told: Any) -> None:
    async def gives(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(200, told))

    async with served(gives) as google:
        identity = identity_of_file(service_account(f"{google.origin}/t"), "x", lambda: NOW_S)
        with pytest.raises(UpstreamError, match="Google issued no token"):
            await identity.ask()
