"""Serves HTTP until a signal, then finishes the requests under way."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Callable

from starlette.types import ASGIApp

from headrace.gateway.settings.gateway import ListenSettings
from headrace.http.client_limits import ClientLimits
from headrace.http.host_names import HostNames
from headrace.http.server import HttpServer
from headrace.http.signals import Signals

GRACE_S = 600
"""How long requests under way may go on after the end was requested."""
DRAIN_S = 5.0
"""How long other work, such as shadow copies, may go on after that."""

_YOUNG_OBJECTS = 20_000
_LATER_S = 1.0


async def listen_until(
    heard: Signals,
    app: ASGIApp,
    sock: socket.socket,
    settings: ListenSettings,
    on_started: Callable[[], None],
    later: Callable[[], None],
) -> None:
    """Serve until `heard.stop`; then finish requests under way, until none are left, the grace is
    over or `heard.hurry` is set. `later` runs in a thread once requests are answered."""
    limits = ClientLimits(max_discarded_bytes=2 * settings.max_body_bytes)
    hosts = HostNames.of_listener(
        sock, settings.host, settings.allowed_hosts, "listen.allowed_hosts"
    )
    http = HttpServer(app, sock, grace_s=GRACE_S, limits=limits, hosts=hosts)
    # Objects that exist by now stay, so collections need not visit them. A request makes hundreds
    # of objects and nearly all are freed with it, so collecting after each 700 would be in vain.
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    http.start()
    on_started()
    thread = threading.Thread(target=later, daemon=True)
    timer = asyncio.get_running_loop().call_later(_LATER_S, thread.start)
    await heard.stop.wait()
    timer.cancel()
    http.stop()
    ending = asyncio.ensure_future(http.ended(GRACE_S))
    hurried = asyncio.ensure_future(heard.hurry.wait())
    await asyncio.wait({ending, hurried}, return_when=asyncio.FIRST_COMPLETED)
    http.cut()
    await ending
    hurried.cancel()
