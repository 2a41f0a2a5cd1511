"""A gateway in front of scripted providers, asked without sockets on the client's side."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from headrace.catalog import Catalog
from headrace.config.yaml_file import Document
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.building.gateway import Gateway, gateway_of
from headrace.gateway.held_bodies import HeldBodies
from headrace.gateway.request_log.written_log import WrittenLog
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.read import parse_settings
from headrace.gateway.settings.secret import Sources
from headrace.gateway.targets.auth import OnRefused
from headrace.gateway.telemetry.telemetry import Telemetry

CATALOG = Catalog.load(())


class Told(NamedTuple):
    """pieces: of the body as they were sent."""

    status: int
    headers: dict[str, str]
    pieces: list[bytes]

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def gateway(
    settings: dict[str, Any],
    entries: list[Entry],
    *,
    accounts: Accounts | None = None,
    environ: dict[str, str] | None = None,
    clock_ns: Callable[[], int] | None = None,
    wall_s: Callable[[], float] = lambda: 1_790_000_000.0,
    request_log: WrittenLog | None = None,
    own_key: str | None = None,
    telemetry: Telemetry | None = None,
    on_refused: OnRefused | None = None,
    held_bodies: HeldBodies | None = None,
) -> Gateway:
    """Of settings as the file would have them; lines of the ledger go to `entries`."""
    import time

    if accounts is None:
        settings = {"access": {"require_key": False}, **settings}
    ids = iter(range(1, 1_000_000))
    return gateway_of(
        parse_settings(Document(settings, {}), "gateway.yaml"),
        CATALOG,
        Sources(environ or {}, Path()),
        accounts=accounts,
        on_entry=entries.append,
        clock_ns=clock_ns or time.monotonic_ns,
        wall_s=wall_s,
        source=random.Random(1),
        new_id=lambda: f"req-{next(ids)}",
        request_log=request_log,
        own_key=own_key,
        telemetry=telemetry,
        on_refused=on_refused,
        held_bodies=held_bodies,
    )


async def ask(
    app: Callable[..., Awaitable[None]],
    body: Any,
    *,
    path: str = "/v1/chat/completions",
    headers: dict[str, str] | None = None,
    method: str = "POST",
    goes_after: int | None = None,
    goes_when: Callable[[], bool] | None = None,
) -> Told:
    """One request. body: bytes as they are, or anything else as JSON. goes_after: the client
    leaves once so many pieces of the body came (0: after 50 ms, whatever was done by then).
    goes_when: it leaves once this is true."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = False
    left = asyncio.Event()
    told = Told(0, {}, [])
    status = 0

    if goes_after == 0:
        asyncio.get_running_loop().call_later(0.05, left.set)

    async def leave(when: Callable[[], bool]) -> None:
        while not when():
            await asyncio.sleep(0.002)
        left.set()

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": raw, "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            told.headers.update(
                {name.decode(): value.decode() for name, value in message["headers"]}
            )
        elif message["body"]:
            told.pieces.append(message["body"])
            if goes_after is not None and len(told.pieces) >= goes_after:
                left.set()
                await asyncio.sleep(0)

    given = {"content-type": "application/json", **(headers or {})}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
    }
    leaves = asyncio.create_task(leave(goes_when)) if goes_when is not None else None
    try:
        async with asyncio.timeout(20):
            await app(scope, receive, send)
    finally:
        if leaves is not None:
            leaves.cancel()
    return told._replace(status=status)
