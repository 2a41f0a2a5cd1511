"""The HTTP side of a process: requests are taken until a signal, and those under way ended."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Callable

from starlette.types import ASGIApp

from headrace.gateway.settings.gateway import ListenSettings
from headrace.http.client_limits import ClientLimits
from headrace.http.server import HttpServer
from headrace.http.signals import Signals

GRACE_S = 600
"""How long requests may go on that were under way when the end was asked for."""
DRAIN_S = 5.0
"""And after them, what goes on beside answers: copies for a shadow."""

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
    """Serve until `heard.stop`; then answer what is under way, until that is done, the grace is
    over or `heard.hurry` is set. later: what can wait until requests are answered; in a thread."""
    limits = ClientLimits(max_discarded_bytes=2 * settings.max_body_bytes)
    http = HttpServer(app, sock, grace_s=GRACE_S, limits=limits)
    # What is there by now stays: collections need not look at it. A request makes hundreds of
    # objects, nearly all of which go with it: looking after each 700 would be in vain.
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
