"""What clients read of failures that are not theirs, and that operators read all of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import END, STREAM_HEAD, chunk, fails, framed
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


async def broken_off(path: str, *, whole: bool, detail: str | None = None) -> tuple[Told, Entry]:
    """A stream that the provider ends with an error; whole: with a word in the same piece."""

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        error = b'data: {"error":{"message":"disk /dev/sdb3 at 10.0.0.7 is full"}}\n\n'
        writer.write(STREAM_HEAD + framed(chunk({"role": "assistant", "content": "Hello"})))
        await writer.drain()
        await asyncio.sleep(0.02)
        if whole:
            error = chunk({"content": " there"}) + error
        writer.write(framed(error + b"data: [DONE]\n\n") + END)

    entries: list[Entry] = []
    async with served(answer) as provider:
        settings: dict[str, Any] = {
            "providers": {"own": {"base_url": f"{provider.origin}/v1", "dialect": "openai-chat"}},
            "models": {"m": ["own/m"]},
            "access": {"keys": {"k": {"key": "env:KEY"}}},
            "errors": {} if detail is None else {"detail": detail},
        }
        built = gateway(settings, entries, accounts=await accounts(settings))
        body = {"model": "m", "stream": True, **PATHS.get(path, PATHS["/v1/chat/completions"])}
        found = await ask(built.app, body, path=path, headers={"authorization": f"Bearer {KEY}"})
        built.close()
    return found, entries[-1]


@pytest.mark.parametrize("path", [*(path for path in PATHS if "embed" not in path), "/api/chat"])
@pytest.mark.parametrize("whole", [True, False])
async def test_a_failure_within_a_stream_is_told_like_one_before_it(path: str, whole: bool) -> None:
    """Passed through or translated: the words before it arrive, its own are for operators."""
    found, entry = await broken_off(path, whole=whole)
    text = found.body.decode()
    assert "Hello" in text and ("there" in text) == whole
    assert "the answer broke off: the model cannot be reached" in text
    assert "disk" not in text and "10.0.0.7" not in text and "own/m" not in text
    assert entry.outcome == "cut" and "disk /dev/sdb3 at 10.0.0.7 is full" in entry.error


async def test_within_a_stream_names_are_the_target_and_the_kind() -> None:
    found, _ = await broken_off("/v1/messages", whole=False, detail="names")
    assert "the answer broke off: own/m: server" in found.body.decode()
    found, _ = await broken_off("/v1/chat/completions", whole=False, detail="full")
    assert "disk /dev/sdb3 at 10.0.0.7 is full" in found.body.decode()


async def refused(detail: str | None, **wish: Any) -> str:
    """The message of a request that no target may take."""
    settings: dict[str, Any] = {
        "providers": {"own": {"base_url": "http://127.0.0.1:9/v1", "dialect": "openai-chat"}},
        "models": {"m": ["own/m"]},
        "access": {"keys": {"k": {"key": "env:KEY"}}},
        "errors": {} if detail is None else {"detail": detail},
    }
    built = gateway(settings, [], accounts=await accounts(settings))
    body = {"model": "m", **PATHS["/v1/chat/completions"], "provider": wish}
    found = await ask(built.app, body, headers={"authorization": f"Bearer {KEY}"})
    built.close()
    assert found.status == 400
    message: str = found.json["error"]["message"]
    return message


async def test_what_an_operator_can_do_is_not_told_to_clients() -> None:
    assert "set `providers.own.zero_retention: true`" in await refused("full", zdr=True)
    names = await refused("names", zdr=True)
    assert names == (
        "no target can serve this request: own/m: it is unknown whether it promises not to keep "
        "data"
    )
    assert "own/m" not in await refused(None, zdr=True)
    assert await refused(None, only=["x"]) == (
        "no target can serve this request: it is not in provider.only"
    )


async def test_a_model_that_a_provider_lacks_is_called_that() -> None:
    async with served(fails(404, "no such deployment")) as provider:
        settings: dict[str, Any] = {
            "providers": {"own": {"base_url": f"{provider.origin}/v1", "dialect": "openai-chat"}},
            "models": {"m": ["own/m"]},
            "access": {"keys": {"k": {"key": "env:KEY"}}},
        }
        built = gateway(settings, [], accounts=await accounts(settings))
        headers = {"authorization": f"Bearer {KEY}"}
        body = {"model": "m", **PATHS["/v1/chat/completions"]}
        found = await ask(built.app, body, headers=headers)
        built.close()
    assert found.status == 404
    assert "no answer: its provider does not have the model" in found.json["error"]["message"]
