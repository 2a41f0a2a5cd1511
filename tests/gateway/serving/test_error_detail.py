"""What clients read of failures that are not theirs, and that operators read all of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import fails
from tests.gateway.test_accounts_of_the_file import KEY, accounts
from tests.gateway.upstream.scripted import served

MASTER_KEY = "a-master-key-of-these-tests"
SECRET_WORDS = ("disk /dev/sdb3 is full", "127.0.0.1", "own/m", "500")
PATHS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8},
    "/v1/responses": {"input": "Hi"},
    "/v1/embeddings": {"input": "Hi"},
}


async def told(
    path: str, *, key: str | None, errors: dict[str, Any] | None = None, require: bool = True
) -> tuple[int, str, str]:
    """Status and body of a failed request, and the ledger's error."""
    entries: list[Entry] = []
    async with served(fails(500, "disk /dev/sdb3 is full")) as provider:
        settings: dict[str, Any] = {
            "providers": {"own": {"base_url": f"{provider.origin}/v1", "dialect": "openai-chat"}},
            "models": {"m": {"targets": ["own/m"], "retries": {"attempts": 1}}},
            "errors": errors or {},
            "access": {"require_key": require},
        }
        if require:
            settings["access"] = {"keys": {"k": {"key": "env:KEY"}}, "master_key": MASTER_KEY}
        book = await accounts(settings) if require else None
        built = gateway(settings, entries, accounts=book)
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        body = {"model": "m", **PATHS[path]}
        reply = await ask(built.app, body, path=path, headers=headers)
        built.close()
    return reply.status, json.dumps(json.loads(reply.body)), entries[-1].error


@pytest.mark.parametrize("path", PATHS)
async def test_a_key_reads_the_kind_of_a_failure_and_the_ledger_all_of_it(path: str) -> None:
    status, body, error = await told(path, key=KEY)
    assert status == 502
    assert "no answer: the model cannot be reached" in body
    assert not [word for word in SECRET_WORDS if word in body]
    assert "own/m: server 500" in error and "disk /dev/sdb3 is full" in error


async def test_names_are_targets_and_kinds() -> None:
    _, body, _ = await told("/v1/chat/completions", key=KEY, errors={"detail": "names"})
    assert "no target answered: own/m: server" in body and "disk" not in body


@pytest.mark.parametrize(
    ("key", "errors", "require"),
    [
        (KEY, {"detail": "full"}, True),
        (MASTER_KEY, {"detail": "none"}, True),
        (None, {}, False),
    ],
)
async def test_operators_read_all_of_it(
    key: str | None, errors: dict[str, Any], require: bool
) -> None:
    _, body, _ = await told("/v1/chat/completions", key=key, errors=errors, require=require)
    assert "own/m: server 500" in body and "disk /dev/sdb3 is full" in body


async def test_a_gateway_without_keys_can_be_silent_too() -> None:
    _, body, _ = await told(
        "/v1/chat/completions", key=None, errors={"detail": "none"}, require=False
    )
    assert not [word for word in SECRET_WORDS if word in body]


async def test_a_fault_of_the_request_is_named_to_everyone() -> None:
    entries: list[Entry] = []
    async with served(fails(400, "temperature is too high")) as provider:
        settings = {
            "providers": {"own": {"base_url": f"{provider.origin}/v1", "dialect": "openai-chat"}},
            "models": {"m": ["own/m"]},
            "errors": {"detail": "none"},
            "access": {"require_key": False},
        }
        built = gateway(settings, entries)
        reply = await ask(built.app, {"model": "m", **PATHS["/v1/messages"]}, path="/v1/messages")
        built.close()
    assert reply.status == 400 and "temperature is too high" in reply.json["error"]["message"]
