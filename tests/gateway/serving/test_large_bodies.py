"""Large bodies of one key beside other keys: read and translated in turn, small ones at once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from headrace.gateway import app as app_module
from headrace.gateway.accounts.key import secret_of
from headrace.gateway.accounts.records import Parent, Records
from headrace.gateway.app import GatewayApp
from headrace.gateway.held_bodies import HeldBodies
from headrace.gateway.serving.entry import Entry
from headrace.http.large_bodies import LargeBodies
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.dialect import ClientSide
from tests.gateway.accounts.parts import KEY, OTHER_KEY, accounts_of, hierarchy, key_record
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import answers
from tests.gateway.upstream.scripted import served
from tests.waiting import until

LARGE_BYTES = 4_000
SMALL, LARGE = "x", "x" * LARGE_BYTES
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


def held() -> HeldBodies:
    """Bodies of which those of 4 kB are large."""
    bodies = HeldBodies()
    bodies.large.close()
    bodies.large = LargeBodies(LARGE_BYTES, "large")
    return bodies


class Reads:
    """The bodies that are read, in order; large ones wait for `go_on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        """By their last character."""
        self.threads: set[str] = set()
        self.go_on = threading.Event()
        self._read = app_module._read
        monkeypatch.setattr(app_module, "_read", self)

    def __call__(self, side: ClientSide, body: bytes) -> JsonObject:
        if len(body) >= LARGE_BYTES:
            self.begun.append(body.decode()[-5])
            self.threads.add(threading.current_thread().name)
            assert self.go_on.wait(20)
        return self._read(side, body)


async def two_keys(entries: list[Entry], provider: Any) -> GatewayApp:
    """A gateway with two keys in front of a provider."""
    other = key_record(id="other", secrets=(secret_of(OTHER_KEY),), parent=Parent("user", "ann"))
    records = hierarchy()
    accounts = accounts_of(Records(records.groups, (*records.keys, other)))
    await accounts.start()
    settings = {
        "providers": {"a": {"base_url": f"{provider.origin}/v1", "dialect": "openai-chat"}},
        "models": {"chat": ["a/m"]},
    }
    return gateway(settings, entries, accounts=accounts, held_bodies=held()).app


def sends(
    app: GatewayApp, key: str, text: str, path: str = CHAT, **options: Any
) -> asyncio.Future[Told]:
    body = {
        "model": "chat", "max_tokens": 9, "messages": [{"role": "user", "content": text}],
    }  # fmt: skip
    headers = {"authorization": f"Bearer {key}"}
    return asyncio.ensure_future(ask(app, body, path=path, headers=headers, **options))


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_large_bodies_of_one_key_keep_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    entries: list[Entry] = []
    reads = Reads(monkeypatch)
    async with served(answers()) as provider:
        app = await two_keys(entries, provider)
        crowd = [sends(app, KEY, LARGE + str(number), path) for number in range(4)]
        await until(lambda: reads.begun, "the first is read")
        other = sends(app, OTHER_KEY, LARGE + "o", path)
        small = await sends(app, OTHER_KEY, SMALL, path)
        assert small.status == 200, small.body
        assert (reads.begun, len(entries)) == (["0"], 1), "and no large one was finished before"
        reads.go_on.set()
        told = await asyncio.gather(*crowd, other)
        assert [reply.status for reply in told] == [200] * 5
    assert reads.begun.index("o") == 2, "after the one that was read and the next"
    assert sorted(reads.begun) == ["0", "1", "2", "3", "o"]
    assert all(name.startswith("large") for name in reads.threads)


async def test_a_client_that_leaves_while_its_body_waits_is_not_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries: list[Entry] = []
    reads = Reads(monkeypatch)
    async with served(answers()) as provider:
        app = await two_keys(entries, provider)
        first = sends(app, KEY, LARGE + "1")
        await until(lambda: reads.begun, "the first is read")
        gone = await sends(app, KEY, LARGE + "2", goes_after=0)
        assert gone.status == 0
        reads.go_on.set()
        assert (await first).status == 200
        assert (await sends(app, KEY, LARGE + "3")).status == 200
    assert reads.begun == ["1", "3"]
    assert [entry.outcome for entry in entries] == ["answered", "answered"]


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_large_and_small_bodies_reach_the_provider_alike(path: str) -> None:
    requests: list[bytes] = []

    async def answer(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        requests.append(request.partition(b"\r\n\r\n")[2])
        await answers()(number, request, writer)

    async with served(answer) as provider:
        app = await two_keys([], provider)
        assert (await sends(app, KEY, LARGE, path)).status == 200
        large, app._serving.large_bodies.least_bytes = requests[-1], 10**9
        assert (await sends(app, KEY, LARGE, path)).status == 200
    assert large == requests[-1]
    assert LARGE.encode() in large


@pytest.mark.parametrize("text", [LARGE, SMALL])
async def test_what_cannot_be_translated_is_refused_alike(text: str) -> None:
    entries: list[Entry] = []
    async with served(answers()) as provider:
        app = await two_keys(entries, provider)
        body = {
            "model": "chat", "max_tokens": 9, "messages": [{"role": "user", "content": text}],
            "stop_sequences": 7,
        }  # fmt: skip
        headers = {"authorization": f"Bearer {KEY}"}
        told = await ask(app, body, path=MESSAGES, headers=headers)
    assert told.status == 400
    assert "stop_sequences" in told.json["error"]["message"]
    assert [entry.status for entry in entries] == [400]
