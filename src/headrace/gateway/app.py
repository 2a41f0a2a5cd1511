"""The gateway as an ASGI application: it maps paths to dialects and to built-in endpoints.

Bodies are read within a limit; when a client leaves, its request is cancelled; every reply has the
request's id. The meaning of requests is left to others.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from starlette.types import Receive, Scope, Send

from headrace.errors import RequestError
from headrace.gateway.access import Access
from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.errors import AccountsError
from headrace.gateway.asgi_sink import AsgiSink
from headrace.gateway.client_address import ADDRESS, ClientAddresses
from headrace.gateway.client_watch import ClientWatch
from headrace.gateway.held_bodies import BodiesFullError, BodyBound, key_of
from headrace.gateway.own_replies import error_body, json_headers, no_such_path, refuse, tell
from headrace.gateway.routing.model_name import read_name
from headrace.gateway.serving.entry import Operation
from headrace.gateway.serving.error_detail import detail_for
from headrace.gateway.serving.incoming import Incoming, operation_of
from headrace.gateway.serving.refusals import refusal_of, refused
from headrace.gateway.serving.refused_line import note_refused
from headrace.gateway.serving.reply_headers import REQUEST_ID, retry_after
from headrace.gateway.serving.serve import serve
from headrace.gateway.serving.serving import Serving
from headrace.gateway.serving.target_failures import AllTargetsFailedError
from headrace.gateway.telemetry.telemetry import Telemetry
from headrace.protocol.body_bounds import check_utf8
from headrace.protocol.field_case import check_case
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.dialect import ClientSide
from headrace.protocol.neutral.failure import Failure

if TYPE_CHECKING:
    from headrace.gateway.prompts.prompts import Prompts

_MOST_ID_CHARS = 128


class ChatPath(NamedTuple):
    """A path on which clients of a dialect send chat requests."""

    side: ClientSide
    stream_default: bool = False
    """Whether a body without `stream` is streamed."""
    side_at: Callable[[float], ClientSide] | None = None
    """The dialect at a Unix time, if its answers contain times."""
    own: Callable[[ClientSide, bytes, str, Mapping[str, str]], bytes | None] | None = None
    """Answers that the gateway gives itself, None for requests to a model."""


Told = tuple[int, str, bytes]
Answer = Callable[[Mapping[str, str]], Awaitable[Told]]
AnswerBelow = Callable[[str, Mapping[str, str]], Awaitable[Told]]


class Post(Protocol):
    """A path whose answers are sent whole.

    Raises RequestError, AccountsError, AllTargetsFailedError.
    """

    @property
    def side(self) -> ClientSide:
        """The dialect in which errors are written."""

    @property
    def operation(self) -> Operation | None:
        """The operation in the ledger; None if requests leave no line."""

    async def __call__(
        self, body: bytes, path: str, headers: Mapping[str, str], request_id: str, received_ns: int
    ) -> tuple[bytes, list[tuple[str, str]]]:
        """The body of a 200, and headers in addition to those of every reply."""


class GatewayApp:
    """The ASGI application.

    `chats` and `posts` are by path. `answers` are built-in endpoints, by method and path; open ones
    need no key. `below` holds handlers for all paths with a prefix.
    """

    def __init__(
        self,
        serving: Serving,
        access: Access,
        chats: Mapping[str, ChatPath],
        answers: Mapping[tuple[str, str], Answer],
        posts: Mapping[str, Post],
        telemetry: Telemetry,
        *,
        new_id: Callable[[], str],
        most_body_bytes: int,
        bodies: BodyBound,
        addresses: ClientAddresses | None = None,
        prompts: Prompts | None = None,
        below: Mapping[str, AnswerBelow] | None = None,
    ) -> None:
        self._serving = serving
        self._access = access
        self._chats = chats
        self._answers = answers
        self._below = below or {}
        self._posts = posts
        self._telemetry = telemetry
        self._paths = {*chats, *posts, *(path for _, path in answers)}
        self._new_id = new_id
        self._most_body_bytes = most_body_bytes
        self._bodies = bodies
        self._addresses = addresses
        self._prompts = prompts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return
        received_ns = self._serving.clock_ns()
        path, method = scope["path"], scope["method"]
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        if self._addresses is not None:
            headers[ADDRESS] = self._addresses.of_scope(scope)
        request_id = _id_from(headers) or self._new_id()
        sink = AsgiSink(send)
        asks = int(method == "POST" and (path in self._chats or path in self._posts))
        self._telemetry.in_flight += asks
        try:
            await self._answer(method, path, headers, request_id, receive, sink, received_ns)
        finally:
            self._telemetry.in_flight -= asks
            known = path if path in self._paths else self._begins(path) or "other"
            self._telemetry.answered(known, sink.status)

    async def _answer(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        request_id: str,
        receive: Receive,
        sink: AsgiSink,
        received_ns: int,
    ) -> None:
        chat = self._chats.get(path)
        post = self._posts.get(path)
        asked = post or chat
        if asked is None or method != "POST":
            await self._other(method, path, headers, request_id, sink, known=asked is not None)
            return
        try:
            # Before the body is read, so that requests without a key use no memory.
            caller = self._access.caller(headers)
        except AccountsError as error:
            status, failure = refusal_of(error)
            await refuse(asked.side, status, failure, request_id, sink)
            return
        if post is not None:
            await self._post(post, path, headers, request_id, caller, receive, sink, received_ns)
            return
        assert chat is not None
        try:
            body = await self._body(receive, headers, caller)
            if body is None:
                return
            try:
                await self._chat(
                    chat, path, headers, request_id, body, caller, receive, sink, received_ns
                )
            finally:
                self._bodies.let_go(caller, len(body))
        except BodiesFullError as error:
            note_refused(self._serving, chat.side.name, operation_of(chat.side.name), request_id,
                         caller, received_ns, 503, str(error))  # fmt: skip
            await refuse(chat.side, 503, error.failure, request_id, sink)
        except _TooLargeError:
            message = (
                f"the body has more than {self._most_body_bytes:,} bytes, which is the limit; send "
                "pictures as URLs, or raise listen.max_body_bytes"
            )
            failure = Failure(kind="too_large", message=message, code="request_too_large")
            note_refused(self._serving, chat.side.name, operation_of(chat.side.name), request_id,
                         caller, received_ns, 413, message)  # fmt: skip
            await refuse(chat.side, 413, failure, request_id, sink)

    async def _chat(
        self,
        chat: ChatPath,
        path: str,
        headers: Mapping[str, str],
        request_id: str,
        body: bytes,
        caller: Caller | None,
        receive: Receive,
        sink: AsgiSink,
        received_ns: int,
    ) -> None:
        side = chat.side
        if chat.side_at is not None:
            side = chat.side_at(self._serving.wall_s())
        try:
            large = self._serving.large_bodies
            if len(body) < large.least_bytes:
                read = _read(side, body)
            else:
                with ClientWatch(receive, sink):
                    read = await large.result(key_of(caller), len(body), lambda: _read(side, body))
                if sink.gone:
                    return
            prompt = ""
            if self._prompts is not None:
                key = None if caller is None else caller.key_id
                read, prompt = self._prompts.applied(side.name, read, headers, key, request_id)
            model = read_name(read)
            if chat.own is not None:
                told = chat.own(side, read.body, path, headers)
                if told is not None:
                    await tell(told, request_id, sink)
                    return
            incoming = Incoming(
                id=request_id,
                side=side,
                path=path,
                headers=headers,
                body=read,
                model=model,
                stream=_wants_stream(read, chat.stream_default),
                received_ns=received_ns,
                caller=caller,
                prompt=prompt,
            )
        except RequestError as error:
            failure = Failure(
                kind="bad_request", message=str(error), code=error.code, param=error.param
            )
            note_refused(self._serving, side.name, operation_of(side.name), request_id, caller,
                         received_ns, 400, str(error))  # fmt: skip
            await refuse(side, 400, failure, request_id, sink)
            return
        with ClientWatch(receive, sink):
            await serve(self._serving, incoming, sink)

    async def _post(
        self,
        post: Post,
        path: str,
        headers: Mapping[str, str],
        request_id: str,
        caller: Caller | None,
        receive: Receive,
        sink: AsgiSink,
        received_ns: int,
    ) -> None:
        try:
            body = await self._body(receive, headers, caller)
            if body is None:
                return
            try:
                with ClientWatch(receive, sink):
                    told, more = await post(body, path, headers, request_id, received_ns)
            finally:
                self._bodies.let_go(caller, len(body))
            if sink.gone:
                return
        except BodiesFullError as error:
            if post.operation is not None:
                note_refused(self._serving, post.side.name, post.operation, request_id, caller,
                             received_ns, 503, str(error))  # fmt: skip
            await refuse(post.side, 503, error.failure, request_id, sink)
        except _TooLargeError:
            message = (
                f"the body has more than {self._most_body_bytes:,} bytes, which is the limit; send "
                "fewer texts in a request, or raise listen.max_body_bytes"
            )
            failure = Failure(kind="too_large", message=message)
            if post.operation is not None:
                note_refused(self._serving, post.side.name, post.operation, request_id, caller,
                             received_ns, 413, failure.message)  # fmt: skip
            await refuse(post.side, 413, failure, request_id, sink)
        except (RequestError, AccountsError, AllTargetsFailedError) as error:
            detail = detail_for(self._serving.error_detail, caller)
            status, failure, _ = refused(error, post.side.name, detail)
            await refuse(post.side, status, failure, request_id, sink)
        else:
            await tell(told, request_id, sink, more)

    async def _body(
        self, receive: Receive, headers: Mapping[str, str], caller: Caller | None
    ) -> bytes | None:
        """Read the body; None if the client left before its end. The caller releases its bytes."""
        stated = headers.get("content-length", "")
        if stated.isdigit() and int(stated) > self._most_body_bytes:
            raise _TooLargeError
        pieces: list[bytes] = []
        size = held = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                piece = message.get("body", b"")
                size += len(piece)
                if size > self._most_body_bytes:
                    raise _TooLargeError
                self._bodies.grow(caller, held, size)
                held = size
                pieces.append(piece)
                if not message.get("more_body", False):
                    held = 0  # from here on the caller holds them
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        finally:
            self._bodies.let_go(caller, held)

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
        if answer is None and (begins := self._begins(path)) is not None:
            known = True
            if method == "GET":
                answer = functools.partial(self._below[begins], path.removeprefix(begins))
        more: list[tuple[str, str]] = []
        if answer is not None:
            try:
                status, kind, body = await answer(headers)
            except AccountsError as error:
                status, failure = refusal_of(error)
                more = retry_after(failure)
                kind, body = "application/json", error_body(failure.message, failure.code or "")
        elif known or any(path == other for _, other in self._answers):
            status, kind = 405, "application/json"
            body = error_body(f"{method} is not supported at this path", "method_not_allowed")
        else:
            status, kind = 404, "application/json"
            body = no_such_path(path, self._paths)
        await sink.start(status, [*json_headers(body, request_id, kind), *more])
        await sink.last(body if method != "HEAD" else b"")

    def _begins(self, path: str) -> str | None:
        return next((prefix for prefix in self._below if path.startswith(prefix)), None)


class _TooLargeError(Exception):
    pass


def _read(side: ClientSide, body: bytes) -> JsonObject:
    """A body's fields. Raises RequestError."""
    check_utf8(body)
    read = JsonObject.read(body)
    check_case(side.name, read)
    return read


def _wants_stream(body: JsonObject, default: bool) -> bool:
    value = body.decoded("stream")
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RequestError("stream: true or false is expected", param="stream")
    return value


def _id_from(headers: Mapping[str, str]) -> str | None:
    """The client's own id, if it can be returned in a header."""
    given = headers.get(REQUEST_ID, "")
    if 0 < len(given) <= _MOST_ID_CHARS and given.isascii() and given.isprintable():
        return given
    return None
