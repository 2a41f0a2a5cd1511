"""What any gateway of Starlette and aiohttp costs that does nothing else: it passes bytes on.

Not run by hand: `benchmarks.gateway_overhead` starts it in an environment of its own that has
aiohttp, starlette, uvicorn, uvloop and httptools, so nothing of this project is imported. It reads
no body, knows no key and counts nothing. Prints its URL as JSON; SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator

import aiohttp
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

_PATH = "/v1/chat/completions"
_KIND = {"content-type": "application/json"}


def application(target: str) -> Starlette:
    """Passes chat completions on to `target`."""
    sessions: list[aiohttp.ClientSession] = []

    async def answer(request: Request) -> Response:
        if not sessions:
            connector = aiohttp.TCPConnector(limit=0)
            sessions.append(aiohttp.ClientSession(connector=connector))
        body = await request.body()
        reply = await sessions[0].post(target + _PATH, data=body, headers=_KIND)
        kind = reply.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            return Response(await reply.read(), reply.status, media_type=kind)

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in reply.content.iter_any():
                yield piece

        return StreamingResponse(pieces(), reply.status, media_type=kind)

    return Starlette(routes=[Route(_PATH, answer, methods=["POST"])])


def main() -> int:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--target", required=True, help="the provider's URL")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    sock = socket.create_server(("127.0.0.1", options.port), backlog=1024)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    config = uvicorn.Config(
        application(options.target), http="httptools", log_level="warning", access_log=False
    )
    sys.stdout.write(json.dumps({"url": url}) + "\n")
    sys.stdout.flush()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[sock]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
