"""A client's connection: reading the body within limits, and noticing that the client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive

from headrace.errors import shown
from headrace.server.api_error import ApiError, ClientGoneError

T = TypeVar("T")

FORM = "application/x-www-form-urlencoded"
_OF_BROWSERS = ("origin", "referer", "sec-fetch-site", "cookie")
"""Headers of which a browser sends one with a form, whatever page it is of."""


async def read_json(request: Request, max_bytes: int) -> bytes:
    """The body; ApiError 413 when it is too large, 415 when it is said to be no JSON, or packed.

    A browser page of another origin can post any type but JSON without being asked for leave, and
    none at all, so the check also keeps such pages away from a server on a private address. No
    type, and what `curl -d` calls a form, are taken for JSON where no browser sends them: those
    name the page's origin with every POST to another one.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    is_of_browser = any(name in request.headers for name in _OF_BROWSERS)
    if kind.lower() != "application/json" and (kind.lower() not in ("", FORM) or is_of_browser):
        raise ApiError(
            415,
            f"content-type: {shown(kind) if kind else 'none'} is not supported; send "
            "application/json",
            code="unsupported_media_type",
        )
    packed = request.headers.get("content-encoding", "identity").strip()
    if packed.lower() != "identity":
        raise ApiError(
            415,
            f"content-encoding: {shown(packed)} is not supported; send the body as it is",
            code="unsupported_encoding",
        )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_bytes:
        raise _too_large(int(length), max_bytes)
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise _too_large(len(body), max_bytes)
        if not message.get("more_body", False):
            return bytes(body)


def _too_large(size: int, limit: int) -> ApiError:
    return ApiError(
        413,
        f"the body has {size} bytes or more; at most {limit} are allowed (--max-body-bytes)",
        code="body_too_large",
    )


async def gone(receive: Receive) -> None:
    """Return once the client has closed the connection. The body has to be read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; it is cancelled, and ClientGoneError raised, if the client goes."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(gone(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        await end_tasks(task, watch)


async def first_of(*futures: asyncio.Future[Any]) -> None:
    """Return once one of the futures is done; none is cancelled. What `asyncio.wait` does, which
    takes as long as the rest of a stream's beginning."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(_: asyncio.Future[Any]) -> None:
        if not over.done():
            over.set_result(None)

    for future in futures:
        future.add_done_callback(end)
    try:
        await over
    finally:
        for future in futures:
            future.remove_done_callback(end)


async def end_tasks(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what is not done and wait until it is; results and failures are dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
