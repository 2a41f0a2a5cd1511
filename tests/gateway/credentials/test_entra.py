"""Tokens of Microsoft Entra, and requests to Azure that carry them."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers, reply
from tests.gateway.upstream.scripted import served

SECRET = "azure-client-secret"


async def test_azure_is_asked_with_a_token_that_is_asked_for_once() -> None:
    async def gives(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        # Older endpoints tell the seconds as a text.
        writer.write(reply(200, {"access_token": "entra-token", "expires_in": "3599"}))

    entries: list[Entry] = []
    async with served(gives) as entra, served(answers()) as azure:
        built = gateway(
            {
                "providers": {
                    "azure": {
                        "base_url": str(azure.origin),
                        "entra": {
                            "tenant_id": "acme", "client_id": "app", "client_secret": "env:SECRET",
                            "authority": str(entra.origin),
                        },
                    }
                },
                "models": {"chat": {"targets": ["azure/gpt-5"]}},
            },
            entries,
            environ={"SECRET": SECRET},
        )  # fmt: skip
        body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
        told = await asyncio.gather(*(ask(built.app, body) for _ in range(8)))
        built.close()
        assert [one.status for one in told] == [200] * 8
        assert len(entra.requests) == 1
        head, _, form = entra.requests[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /acme/oauth2/v2.0/token HTTP/1.1")
        assert parse_qs(form.decode()) == {
            "grant_type": ["client_credentials"], "client_id": ["app"], "client_secret": [SECRET],
            "scope": ["https://cognitiveservices.azure.com/.default"],
        }  # fmt: skip
        assert all(b"\r\nauthorization: Bearer entra-token\r\n" in one for one in azure.requests)


async def test_a_refusal_is_another_targets_turn_and_tells_no_secret() -> None:
    async def refuses(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        said = request.partition(b"\r\n\r\n")[2].decode()
        writer.write(reply(401, {"error": "invalid_client", "error_description": said}))

    entries: list[Entry] = []
    async with served(refuses) as entra, served(answers("of another")) as other:
        azure = {
            "base_url": "http://127.0.0.1:9",
            "entra": {"tenant_id": "t", "client_id": "c", "client_secret": SECRET,
                      "authority": str(entra.origin)},
        }  # fmt: skip
        built = gateway(
            {
                "providers": {"azure": azure, "other": f"{other.origin}/v1"},
                "models": {"chat": {"targets": ["azure/m", "other/m"], "strategy": "ordered"}},
            },
            entries,
        )
        body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
        told = await ask(built.app, body)
        built.close()
    assert told.json["choices"][0]["message"]["content"] == "of another"
    (entry,) = entries
    failed = entry.attempts[0]
    assert "invalid_client" in failed.message and SECRET not in repr(entry)
