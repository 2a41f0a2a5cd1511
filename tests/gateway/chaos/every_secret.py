"""A file with a secret of every kind, and a provider that quotes all that it is sent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.gateway.openai_provider import answers, body_of, reply

CLIENT_KEY = "hr-client-key-of-the-file-0123456789"
MASTER_KEY = "hr-master-key-of-the-file-9876543210"
METRICS_KEY = "hr-metrics-key-of-the-file-1029384756"
ADMIN_KEY = "admin-key-of-the-file-55667788990011"
# A short key: it is read for each file, and one of 2,048 bits takes seven times as long.
PEM = (
    rsa.generate_private_key(65537, 1024)
    .private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    .decode()
)
# What stands in the file, in files beside it and in the environment, and tokens that it is
# exchanged for. Of the private key each line, wherever it may have been cut.
SECRETS = {
    "client key": CLIENT_KEY,
    "master key": MASTER_KEY,
    "metrics key": METRICS_KEY,
    "admin key": ADMIN_KEY,
    "provider key of the file": "sk-plain-provider-key-0123456789",
    "provider key of the environment": "sk-env-provider-key-0123456789",
    "provider key beside the file": "sk-file-provider-key-0123456789",
    "provider header": "provider-header-secret-246813579",
    "aws secret access key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYSECRETKEY0",
    "aws session token": "IQoJb3JpZ2luX2VjEHoaCXVzLWVhc3QtMSJSESSION0123",
    "entra client secret": "entra~client.secret_0123456789abcdef",
    "entra token": "eyJ0eXAiOiJKV1QiLCJhbGciOiJFTlRSQSJ9.entra-token.0123",
    "google token": "ya29.google-access-token-0123456789",
    "redis password": "redis-password-1357924680",
    "postgresql password": "postgresql-password-0864297531",
    "alert secret": "alert-webhook-secret-0123456789",
    "alert address": "T0HOOK/B0HOOK/slack-webhook-token-0123",
    "guardrail secret": "guardrail-webhook-secret-0123456789",
    "guardrail header": "guardrail-header-secret-0123456789",
    **{f"google private key {number}": line for number, line in enumerate(PEM.splitlines()[1:-1])},
}
AWS_KEY_ID = "AKIAIOSFODNN7EXAMPLE"
PRICE = {"input": 1000, "output": 1000}
# An answer costs 0.015 dollars of 1000: each but the first goes over one of these.
ALERTS = [round(number * 15e-6, 6) for number in range(2, 11)]
MODELS = ("good", "keys", "aws", "entra", "entra-refused", "google", "google-refused", "guarded")


class Quoting:
    """Answers the model `m` well, and everything else with an error that quotes the request."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self._well = answers("Hello there")

    async def answer(self, number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        """As `served` asks for it."""
        self.requests.append(request)
        target = request.split(b" ", 2)[1].decode()
        quoted = request.decode(errors="replace")
        if "/oauth2/" in target or "/token" in target:
            self._token(target, quoted, writer)
        elif target == "/hook":
            writer.write(reply(500, {"error": quoted}, f"x-quoted: {_line(quoted)}"))
        elif "/chat/completions" in target and body_of(request).get("model") == "m":
            await self._well(number, request, writer)
        else:
            status = 401 if "/chat/completions" in target else 400
            said = {"message": quoted, "code": quoted, "status": quoted}
            writer.write(reply(status, {"error": said, **said}, f"x-request-id: {_line(quoted)}"))

    def _token(self, target: str, quoted: str, writer: asyncio.StreamWriter) -> None:
        if "refused" in target:
            said = {"error": "invalid_client", "error_description": quoted}
            writer.write(reply(401, said))
            return
        of = "entra token" if "oauth2" in target else "google token"
        writer.write(reply(200, {"access_token": SECRETS[of], "expires_in": 3599}))


def _line(text: str) -> str:
    return " ".join(text.split())[:4000]


def environment() -> dict[str, str]:
    """What the file names of it."""
    return {"SECRETS_PROVIDER_KEY": SECRETS["provider key of the environment"]}


def write_files(folder: Path, origin: str) -> list[str]:
    """What the settings name beside the file; their names."""
    (folder / "provider-key").write_text(SECRETS["provider key beside the file"] + "\n")
    for name in ("google", "google-refused"):
        account = {
            "type": "service_account", "project_id": "acme-1", "private_key_id": "kid-1",
            "private_key": PEM, "client_email": "gate@acme-1.iam.gserviceaccount.com",
            "token_uri": f"{origin}/{name}/token",
        }  # fmt: skip
        (folder / f"{name}.json").write_text(json.dumps(account))
    return ["provider-key", "google.json", "google-refused.json"]


def settings(
    origin: str, *, redis: str, request_log: dict[str, Any], alerts: str
) -> dict[str, Any]:
    """redis: its URL, with its password. alerts: the receiver's origin."""
    plain = {"base_url": f"{origin}/v1", "dialect": "openai-chat"}
    keys = [SECRETS["provider key of the file"], "env:SECRETS_PROVIDER_KEY", "file:provider-key"]
    aws = {
        "access_key_id": AWS_KEY_ID, "secret_access_key": SECRETS["aws secret access key"],
        "session_token": SECRETS["aws session token"],
    }  # fmt: skip

    def entra(tenant: str) -> dict[str, Any]:
        known = {
            "tenant_id": tenant, "client_id": "app-1", "authority": origin,
            "client_secret": SECRETS["entra client secret"],
        }  # fmt: skip
        return {"kind": "azure-openai", "base_url": f"{origin}/openai/v1", "entra": known}

    def google(name: str) -> dict[str, Any]:
        known = {"credentials": f"file:{name}.json", "location": "global"}
        return {"kind": "google-vertex", "base_url": origin, "google": known}

    headers = {"x-extra-key": SECRETS["provider header"]}
    return {
        "access": {
            "master_key": MASTER_KEY, "metrics_key": METRICS_KEY,
            "redis": redis, "store": "keys.sqlite3",
            "keys": {
                "k": {
                    "key": CLIENT_KEY, "when_stores_are_down": "open",
                    "budgets": [{"usd": 1000, "per": "1d", "alerts": ALERTS}],
                }
            },
        },
        "providers": {
            "p": {**plain, "api_key": keys, "headers": headers},
            "keys": {**plain, "api_key": keys, "headers": headers},
            "aws": {"kind": "aws-bedrock", "base_url": origin, "region": "us-east-1", "aws": aws},
            "entra": entra("tenant"),
            "entra-refused": entra("refused"),
            "google": google("google"),
            "google-refused": google("google-refused"),
        },
        "models": {
            "good": [{"model": "p/m", "price": PRICE}],
            "guarded": {
                "targets": [{"model": "p/m", "price": PRICE}], "guardrails": ["asked"],
            },
            **{name: [{"model": f"{name}/x", "price": PRICE}] for name in MODELS[1:-1]},
        },
        "guardrails": {
            "asked": {
                "kind": "webhook", "url": f"{origin}/hook", "on": "input", "on_error": "block",
                "secret": SECRETS["guardrail secret"],
                "headers": {"x-guard-key": SECRETS["guardrail header"]},
            }
        },
        "alerts": {
            "url": f"{alerts}/services/{SECRETS['alert address']}",
            "secret": SECRETS["alert secret"],
        },
        "admin": {"port": 0, "key": ADMIN_KEY},
        "request_log": {"enabled": True, **request_log},
        "retries": {"attempts": 3, "backoff_s": 0.01},
        "breaker": {"min_attempts": 1000},
        "ledger": {"path": "ledger.sqlite3"},
        "log": {"level": "debug"},
    }  # fmt: skip
