"""Large bodies that a process holds are bounded, and those that are done with count no more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.gateway.app import GatewayApp
from headrace.gateway.held_bodies import LEAST_BYTES, BodiesFullError, HeldBodies
from headrace.gateway.serving.entry import Entry
from tests.gateway.accounts.parts import KEY, accounts_of, hierarchy
from tests.gateway.harness import ask, gateway

SETTINGS: dict[str, Any] = {
    "providers": {"a": "http://127.0.0.1:9/v1"},
    "models": {"chat": ["a/m"]},
    "listen": {"max_body_bytes": 200_000, "max_bodies_bytes": 250_000},
}
HALF = b" " * 100_000
# Read, and refused without asking anybody.
LARGE = b'{"messages": "' + HALF + b'"}'


class Sending:
    """A client whose body does not come to its end until `left` or `ends` is set."""

    def __init__(
        self, app: GatewayApp, pieces: int = 1, path: str = "/v1/messages", key: str = ""
    ) -> None:
        self._pieces = [HALF] * pieces
        self._more = asyncio.Event()
        self._gone = False
        self.waits = asyncio.Event()
        self.told: list[Any] = []
        headers = [(b"authorization", f"Bearer {key}".encode())]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._pieces:
            return {"type": "http.request", "body": self._pieces.pop(), "more_body": True}
        self.waits.set()
        await self._more.wait()
        if self._gone:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Any) -> None:
        self.told.append(message)

    async def ends(self, *, gone: bool = False) -> None:
        self._gone = gone
        self._more.set()
        await self.task


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/embeddings"])
@pytest.mark.parametrize("gone", [False, True])
async def test_what_is_held_is_bounded_until_its_requests_are_over(path: str, gone: bool) -> None:
    app = gateway(SETTINGS, []).app
    sending = [Sending(app), Sending(app, path="/v1/embeddings")]
    for one in sending:
        await one.waits.wait()
    told = await ask(app, LARGE, path=path)
    assert (told.status, told.headers["retry-after"]) == (503, "1")
    assert b"max_bodies_bytes" in told.body
    # Small ones pass, whatever the large ones do.
    assert (await ask(app, {"messages": []}, path=path)).status == 400
    await sending[0].ends(gone=gone)
    assert (await ask(app, LARGE, path=path)).status == 400
    await sending[1].ends(gone=gone)
    for _ in range(5):
        assert (await ask(app, LARGE, path=path)).status == 400


async def test_bodies_that_are_refused_or_cancelled_hold_nothing() -> None:
    app = gateway(SETTINGS, []).app
    for _ in range(4):
        assert (await ask(app, b" " * 200_001)).status == 413
        too_long = Sending(app, 3)
        await too_long.task
        assert too_long.told[0]["status"] == 413
        cancelled = Sending(app)
        await cancelled.waits.wait()
        cancelled.task.cancel()
        await asyncio.wait([cancelled.task])
    sending = Sending(app)
    await sending.waits.wait()
    assert (await ask(app, LARGE)).status == 400
    await sending.ends()


async def test_one_alone_is_taken_and_the_bound_is_a_line_of_the_ledger() -> None:
    entries: list[Entry] = []
    accounts = accounts_of(hierarchy())
    await accounts.start()
    listen = {"max_body_bytes": 200_000, "max_bodies_bytes": 1024}
    app = gateway({**SETTINGS, "listen": listen}, entries, accounts=accounts).app
    headers = {"authorization": f"Bearer {KEY}"}
    assert (await ask(app, LARGE, headers=headers)).status == 400
    sending = Sending(app, key=KEY)
    await sending.waits.wait()
    assert (await ask(app, LARGE, headers=headers)).status == 503
    assert [one.status for one in entries] == [400, 503] and "max_bodies" in entries[1].error
    await sending.ends(gone=True)


def test_what_counts() -> None:
    held = HeldBodies(300_000)
    held.grow(0, LEAST_BYTES - 1)
    assert held.bytes == 0
    held.grow(LEAST_BYTES - 1, 100_000)
    held.grow(100_000, 200_000)
    held.grow(0, 100_000)
    assert held.bytes == 300_000
    with pytest.raises(BodiesFullError):
        held.grow(100_000, 100_001)
    held.let_go(100_000)
    held.let_go(LEAST_BYTES - 1)
    assert held.bytes == 200_000
