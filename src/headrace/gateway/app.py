"""The gateway as an ASGI application: which path is which dialect, and what is answered here.

Bodies are read within a limit; a client that goes cancels what is done for it; every reply has the
request's id. What a request means is none of this file's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import msgspec
from starlette.types import Receive, Scope, Send

from headrace.errors import RequestError
from headrace.gateway.access import Access
from headrace.gateway.accounts.errors import AccountsError
from headrace.gateway.asgi_sink import AsgiSink
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.refusals import refusal_of
from headrace.gateway.serving.reply_headers import REQUEST_ID
from headrace.gateway.serving.serve import Serving, serve
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.dialect import ClientSide
from headrace.protocol.neutral.failure import Failure

_MOST_ID_CHARS = 128


class ChatPath(NamedTuple):
    """A path on which clients of a dialect ask. stream: whether a body's `stream` asks for one, and
    what it means if it is not there."""

    side: ClientSide
    stream_default: bool = False


Answer = Callable[[Mapping[str, str]], Awaitable[tuple[int, str, bytes]]]


class GatewayApp:
    """chats: by path. answers: paths answered here, by method and path; open ones need no key."""

    def __init__(
        self,
        serving: Serving,
        access: Access,
        chats: Mapping[str, ChatPath],
        answers: Mapping[tuple[str, str], Answer],
        *,
        new_id: Callable[[], str],
        most_body_bytes: int,
    ) -> None:
        self._serving = serving
        self._access = access
        self._chats = chats
        self._answers = answers
        self._new_id = new_id
        self._most_body_bytes = most_body_bytes
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        received_ns = self._serving.clock_ns()
        path, method = scope["path"], scope["method"]
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        request_id = _id_from(headers) or self._new_id()
        sink = AsgiSink(send)
        chat = self._chats.get(path)
        if chat is None or method != "POST":
            await self._other(method, path, headers, request_id, sink, known=chat is not None)
            return
        self.under_way += 1
        try:
            body = await self._body(receive, headers)
            if body is not None:
                await self._chat(chat, path, headers, request_id, body, receive, sink, received_ns)
        except _TooLargeError:
            message = (
                f"the body has more than {self._most_body_bytes:,} bytes, which is the limit; send "
                "pictures as URLs, or raise listen.max_body_bytes"
            )
            failure = Failure(kind="too_large", message=message, code="request_too_large")
            await _refuse(chat.side, 413, failure, request_id, sink)
        finally:
            self.under_way -= 1

    async def _chat(
        self,
        chat: ChatPath,
        path: str,
        headers: Mapping[str, str],
        request_id: str,
        body: bytes,
        receive: Receive,
        sink: AsgiSink,
        received_ns: int,
    ) -> None:
        side = chat.side
        try:
            read = JsonObject.read(body)
            model = _model(read)
            incoming = Incoming(
                id=request_id,
                side=side,
                path=path,
                headers=headers,
                body=read,
                model=model,
                stream=_wants_stream(read, chat.stream_default),
                received_ns=received_ns,
                caller=self._access.caller_of(headers, model),
            )
        except AccountsError as error:
            status, failure = refusal_of(error)
            await _refuse(side, status, failure, request_id, sink)
            return
        except RequestError as error:
            failure = Failure(
                kind="bad_request", message=str(error), code=error.code, param=error.param
            )
            await _refuse(side, 400, failure, request_id, sink)
            return
        task = asyncio.current_task()
        assert task is not None
        watch = asyncio.ensure_future(_watch(receive, sink, task))
        try:
            await serve(self._serving, incoming, sink)
        except asyncio.CancelledError:
            if not sink.gone:
                raise
            task.uncancel()
        finally:
            watch.cancel()

    async def _body(self, receive: Receive, headers: Mapping[str, str]) -> bytes | None:
        """None if the client went before it was whole."""
        stated = headers.get("content-length", "")
        if stated.isdigit() and int(stated) > self._most_body_bytes:
            raise _TooLargeError
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            piece = message.get("body", b"")
            size += len(piece)
            if size > self._most_body_bytes:
                raise _TooLargeError
            pieces.append(piece)
            if not message.get("more_body", False):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _other(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        request_id: str,
        sink: AsgiSink,
        *,
        known: bool,
    ) -> None:
        answer = self._answers.get((method, path))
        if answer is not None:
            try:
                status, kind, body = await answer(headers)
            except AccountsError as error:
                status, failure = refusal_of(error)
                kind, body = "application/json", _error(failure.message, failure.code or "")
        elif known or any(path == other for _, other in self._answers):
            status, kind = 405, "application/json"
            body = _error(f"{method} is not supported at this path", "method_not_allowed")
        else:
            status, kind = 404, "application/json"
            body = _error("there is nothing at this path", "not_found")
        told = [
            ("content-type", kind),
            ("content-length", str(len(body))),
            (REQUEST_ID, request_id),
        ]
        await sink.start(status, told)
        await sink.write(body if method != "HEAD" else b"")
        await sink.end()


class _TooLargeError(Exception):
    pass


async def _watch(receive: Receive, sink: AsgiSink, task: asyncio.Task[None]) -> None:
    """Cancel what is done for a client once it has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    sink.gone = True
    task.cancel()


async def _refuse(
    side: ClientSide, status: int, failure: Failure, request_id: str, sink: AsgiSink
) -> None:
    body = side.write_failure(failure, status, request_id)
    headers = [
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        (REQUEST_ID, request_id),
    ]
    if status == 413:
        headers.append(("connection", "close"))
    await sink.start(status, headers)
    await sink.write(body)
    await sink.end()


def _model(body: JsonObject) -> str:
    found = body.text("model")
    if not found:
        raise RequestError("model: a name is required", param="model", code="missing_model")
    return found


def _wants_stream(body: JsonObject, default: bool) -> bool:
    value = body.decoded("stream")
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RequestError("stream: true or false is expected", param="stream")
    return value


def _id_from(headers: Mapping[str, str]) -> str | None:
    """The client's own id, if it can be told back."""
    given = headers.get(REQUEST_ID, "")
    if 0 < len(given) <= _MOST_ID_CHARS and given.isascii() and given.isprintable():
        return given
    return None


def _error(message: str, code: str) -> bytes:
    return msgspec.json.encode(
        {
            "error": {
                "message": message, "type": "invalid_request_error", "param": None, "code": code,
            }
        }
    )  # fmt: skip
