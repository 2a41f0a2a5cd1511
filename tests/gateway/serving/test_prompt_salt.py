"""Prompt caches do not tell one tenant what another sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.building.accounts import records_of
from headrace.gateway.building.providers import provider_of
from headrace.gateway.serving.prompt_salt import tenant_salt
from headrace.gateway.settings.access import AccessSettings, KeySettings, TeamSettings
from headrace.gateway.settings.provider import ProviderSettings
from headrace.gateway.settings.reliability import TimeoutSettings
from headrace.gateway.settings.secret import Sources
from tests.gateway.engines.scripted_engine import ScriptedEngine
from tests.gateway.harness import CATALOG, ask, gateway
from tests.gateway.openai_provider import body_of, completion, reply
from tests.gateway.upstream.scripted import served

NAMES = ("ann", "bob", "cid")
KEYS = {name: f"hr-key-{name}-0123456789abcdef0123456789" for name in NAMES}
ACCESS = AccessSettings(
    teams={"red": TeamSettings()},
    keys={
        name: KeySettings(key=KEYS[name], team="red" if name != "cid" else None) for name in NAMES
    },
)
HI = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}


def accounts() -> Accounts:
    return Accounts(
        MemoryCounters(),
        now_ns=lambda: 10**18,
        random_bytes=bytes,
        configured=records_of(ACCESS, Sources({}, Path())),
    )


async def sent(
    provider: dict[str, Any],
    *requests: tuple[str, dict[str, Any]],
    scope: str | None = None,
    path: str = "/v1/chat/completions",
    with_keys: bool = True,
) -> list[dict[str, Any]]:
    """The bodies that a provider gets of requests with these keys."""

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(200, completion("Hello")))

    async with served(answer) as scripted:
        settings: dict[str, Any] = {
            "providers": {"p": {"base_url": str(scripted.origin), **provider}},
            "models": {"chat": ["p/m"]},
            "drop_unsupported": True,
        }
        if scope is not None:
            settings["prompt_cache"] = {"scope": scope}
        made = gateway(settings, [], accounts=accounts() if with_keys else None)
        try:
            for key, body in requests:
                headers = {"authorization": f"Bearer {KEYS[key]}"} if with_keys else {}
                assert (await ask(made.app, body, path=path, headers=headers)).status == 200
        finally:
            made.close()
    return [body_of(request) for request in scripted.requests]


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("vllm", "cache_salt"),
        ("headrace", "cache_salt"),
        ("sglang", "cache_salt"),
        ("openai", "prompt_cache_key"),
        ("fireworks", "prompt_cache_isolation_key"),
    ],
)
async def test_each_key_has_its_own_part_of_the_cache(kind: str, field: str) -> None:
    provider = {"kind": kind, "api_key": "sk-1"}
    ann, again, bob = await sent(provider, ("ann", HI), ("ann", HI), ("bob", HI))
    assert ann == again
    assert ann[field] != bob[field]
    assert len(ann[field]) == 40
    assert {name: value for name, value in bob.items() if name != field} == {**HI, "model": "m"}


async def test_a_client_cannot_take_anothers_salt() -> None:
    """It separates further within a tenant, and never reaches into another's."""
    plain = await sent({"kind": "vllm"}, ("ann", HI), ("bob", HI))
    taken = {**HI, "cache_salt": plain[0]["cache_salt"]}
    own = {**HI, "cache_salt": "x"}
    bodies = await sent({"kind": "vllm"}, ("bob", taken), ("bob", own), ("ann", own))
    salts = {body["cache_salt"] for body in (*plain, *bodies)}
    assert len(salts) == 5
    assert "x" not in salts


async def test_a_team_shares_if_the_file_says_so() -> None:
    requests = tuple((name, HI) for name in NAMES)
    ann, bob, cid = await sent({"kind": "vllm"}, *requests, scope="team")
    assert ann["cache_salt"] == bob["cache_salt"] != cid["cache_salt"]
    own = ("ann", {**HI, "cache_salt": "x"})
    *shared, salted = await sent({"kind": "vllm"}, *requests, own, scope="all")
    assert not any("cache_salt" in body for body in shared)
    assert salted["cache_salt"] == "x"


async def test_without_keys_nothing_is_added() -> None:
    (body,) = await sent({"kind": "vllm"}, ("ann", HI), with_keys=False)
    assert body == {**HI, "model": "m"}


async def test_a_field_may_be_named_or_left_out() -> None:
    for provider in ({"dialect": "openai-chat"}, {"kind": "vllm", "prompt_cache_field": "none"}):
        (body,) = await sent(provider, ("ann", HI))
        assert body == {**HI, "model": "m"}
    named = {"dialect": "openai-chat", "prompt_cache_field": "cache_salt"}
    (body,) = await sent(named, ("ann", HI))
    assert len(body["cache_salt"]) == 40


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {**HI, "max_tokens": 5}),
        ("/v1/responses", {"model": "chat", "input": "Hi"}),
        ("/api/chat", {**HI, "stream": False}),
        ("/v1/completions", {"model": "chat", "prompt": "Hi"}),
    ],
)
async def test_translated_requests_are_kept_apart_too(path: str, body: dict[str, Any]) -> None:
    provider = {"kind": "vllm", "completions": False}
    ann, again, bob = await sent(provider, ("ann", body), ("ann", body), ("bob", body), path=path)
    assert ann["cache_salt"] == again["cache_salt"] != bob["cache_salt"]


def test_salts_are_of_names_alone() -> None:
    """Every process and every start has the same, or each would begin with an empty cache."""
    ann = Caller(key_id="k1", team="red", organisation="acme")
    assert tenant_salt(ann, "key") == "f252463220ec6c59b4006390a230f017776809f4"
    assert tenant_salt(None, "key") is None
    assert tenant_salt(ann, "all") is None
    salts = {tenant_salt(ann, scope) for scope in ("key", "team", "organisation")}
    assert len(salts) == 3


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("vllm-server", "cache_salt"),
        ("openai", "prompt_cache_key"),
        ("mistral", "prompt_cache_key"),
        ("anthropic", None),
        ("google", None),
        ("llama.cpp-server", None),
        ("ollama-server", None),
    ],
)
def test_what_each_kind_has(kind: str, field: str | None) -> None:
    settings = ProviderSettings(kind=kind, api_key=("sk-1",), base_url="http://127.0.0.1:9")
    timeouts = TimeoutSettings()
    provider = provider_of("p", settings, CATALOG, timeouts, Sources({}, Path()), None, "team")
    assert (provider.prompt_cache_field, provider.prompt_cache_scope) == (field, "team")
    provider.pool.close()


async def test_where_a_request_goes_does_not_tell_what_others_sent() -> None:
    """`prefix_aware` leads a prompt to the engine that has it: of the same tenant alone."""
    engines = [ScriptedEngine() for _ in range(8)]
    prompt = "A secret of another tenant. " * 100
    body = {"model": "chat", "messages": [{"role": "user", "content": prompt}]}

    async def targets(scope: str) -> list[list[str]]:
        """The engines that ann's and then bob's requests go to."""
        async with served(engines[0].served) as at:
            settings = {
                "providers": {
                    f"e{number}": {"base_url": f"{at.origin}/v1", "dialect": "openai-chat"}
                    for number in range(len(engines))
                },
                "models": {
                    "chat": {
                        "targets": [f"e{number}/m" for number in range(len(engines))],
                        "strategy": "prefix_aware",
                    }
                },
                "prompt_cache": {"scope": scope},
            }
            made = gateway(settings, [], accounts=accounts())
            try:
                told = []
                for name in ("ann", "bob"):
                    headers = {"authorization": f"Bearer {KEYS[name]}"}
                    went = [await ask(made.app, body, headers=headers) for _ in range(6)]
                    told.append([answer.headers["x-headrace-target"] for answer in went])
                return told
            finally:
                made.close()

    ann, bob = await targets("all")
    assert len({*ann, *bob}) == 1
    ann, bob = await targets("key")
    assert len({*ann}) == len({*bob}) == 1
    assert ann[0] != bob[0], "chance leads the first of each, and the seed is set"
