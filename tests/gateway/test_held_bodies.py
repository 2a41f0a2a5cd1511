"""Large bodies that a process holds are bounded, and those that are done with count no more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.key import secret_of
from headrace.gateway.accounts.records import Parent, Records
from headrace.gateway.app import GatewayApp
from headrace.gateway.assemble import CliOverrides, Surroundings, made, settings_from
from headrace.gateway.held_bodies import LEAST_BYTES, BodiesFullError, BodyBound, HeldBodies
from headrace.gateway.serving.entry import Entry
from tests.gateway.accounts.parts import KEY, OTHER_KEY, accounts_of, hierarchy, key_record
from tests.gateway.harness import ask, gateway

SETTINGS: dict[str, Any] = {
    "providers": {"a": "http://127.0.0.1:9/v1"},
    "models": {"chat": ["a/m"]},
    "listen": {"max_body_bytes": 200_000, "max_bodies_bytes": 250_000},
}
ANN, BOB = Caller(key_id="ann"), Caller(key_id="bob")
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

    async def is_held(self) -> None:
        """Returns when all but its end has come; fails where it was refused before."""
        waits = asyncio.ensure_future(self.waits.wait())
        await asyncio.wait([waits, self.task], return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()
        assert not self.task.done(), self.told

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
        await one.is_held()
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
        await cancelled.is_held()
        cancelled.task.cancel()
        await asyncio.wait([cancelled.task])
    sending = Sending(app)
    await sending.is_held()
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
    await sending.is_held()
    assert (await ask(app, LARGE, headers=headers)).status == 503
    assert [one.status for one in entries] == [400, 503] and "max_bodies" in entries[1].error
    await sending.ends(gone=True)


async def test_one_of_several_keys_leaves_half_to_the_others() -> None:
    parent = Parent("user", "ann")
    alone = hierarchy()
    other = key_record(id="other", secrets=(secret_of(OTHER_KEY),), parent=parent)
    both = Records(alone.groups, (*alone.keys, other))
    listen = {"max_body_bytes": 400_000, "max_bodies_bytes": 510_000}
    for records, most in ((both, 2), (alone, 4)):
        accounts = accounts_of(records)
        await accounts.start()
        app = gateway({**SETTINGS, "listen": listen}, [], accounts=accounts).app
        held = []
        for _ in range(most):
            held.append(Sending(app, key=KEY))
            await held[-1].is_held()
        # Large ones of one key do not keep small ones of it out, nor any of another key.
        mine = {"authorization": f"Bearer {KEY}"}
        told = await ask(app, LARGE, headers=mine)
        assert told.status == (503 if most == 2 else 400), told.body
        assert (await ask(app, b"{}", headers=mine)).status == 400
        if most == 2:
            assert b"255,000" in told.body and b"max_bodies_bytes" in told.body
            others = {"authorization": f"Bearer {OTHER_KEY}"}
            assert (await ask(app, LARGE, headers=others)).status == 400
            whole = Sending(app, 2, key=OTHER_KEY)
            await whole.is_held()
            assert (await ask(app, LARGE, headers=others)).status == 503
            await whole.ends(gone=True)
        for one in held:
            await one.ends(gone=True)


async def test_what_was_held_before_a_reload_counts_after_it() -> None:
    held = HeldBodies()
    apps = [gateway(SETTINGS, [], held_bodies=held).app for _ in range(2)]
    sending = [Sending(apps[0]), Sending(apps[0])]
    for one in sending:
        await one.is_held()
    assert (await ask(apps[1], LARGE)).status == 503
    for one in sending:
        await one.ends(gone=True)
    assert held.bytes == 0
    assert (await ask(apps[1], LARGE)).status == 400


def test_what_is_held_goes_on_from_a_file_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text("""
access: {require_key: false}
providers: {a: {base_url: "http://192.0.2.1/v1"}}
models: {chat: a/m}
listen: {max_bodies_bytes: 250000}
""")
    around = Surroundings()
    around.held_bodies.add("", 200_000)
    for _ in range(2):
        built = made(path, settings_from(path, CliOverrides()), None, around)
        told = asyncio.run(ask(built.app, LARGE))
        assert told.status == 503
        built.close()


def test_what_counts() -> None:
    held = HeldBodies()
    bound = BodyBound(held, 300_000, lambda: False)
    bound.grow(None, 0, LEAST_BYTES - 1)
    assert held.bytes == 0
    bound.grow(None, LEAST_BYTES - 1, 100_000)
    bound.grow(None, 100_000, 200_000)
    bound.grow(ANN, 0, 100_000)
    assert (held.bytes, held.of_key(""), held.of_key("ann")) == (300_000, 200_000, 100_000)
    with pytest.raises(BodiesFullError):
        bound.grow(ANN, 100_000, 100_001)
    bound.let_go(ANN, 100_000)
    bound.let_go(None, LEAST_BYTES - 1)
    assert (held.bytes, held.of_key(""), held.of_key("ann")) == (200_000, 200_000, 0)


def test_one_body_of_a_key_may_have_more_than_half() -> None:
    held = HeldBodies()
    bound = BodyBound(held, 300_000, lambda: True)
    bound.grow(ANN, 0, 100_000)
    bound.grow(ANN, 100_000, 200_000)
    with pytest.raises(BodiesFullError, match="150,000"):
        bound.grow(ANN, 0, LEAST_BYTES)
    bound.grow(BOB, 0, LEAST_BYTES)
    with pytest.raises(BodiesFullError, match="300,000"):
        bound.grow(BOB, LEAST_BYTES, 100_001)
