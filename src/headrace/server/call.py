"""One HTTP call on its way through the server, and the ASGI app that wraps each endpoint.

A handler gets a Call and returns a response; whatever it raises becomes an error reply of its own,
so one bad request ends that request only. Every reply carries the request's id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.engine.limits import check_ranges
from headrace.http.headers import IGNORED_PARAMS, REQUEST_ID, ignored_params, request_id_from
from headrace.protocol.request import Endpoint, Parsed, parse_request
from headrace.server.admission.off_loop import off_loop
from headrace.server.admission.open_calls import OpenCall, cancelled
from headrace.server.api_error import CLIENT_GONE, ClientGoneError, api_error
from headrace.server.auth import key_digest_of, key_of
from headrace.server.connection import read_json, unless_gone
from headrace.server.dialects.dialect_paths import error_at, id_header_of
from headrace.server.replies.event_stream import EventStream
from headrace.server.state import ServerState
from headrace.structured.grammar import Grammar
from headrace.telemetry.call import CallRecord, current_call, name_call

logger = logging.getLogger(__name__)

# Calls below these are accepted or refused as a whole once the server is ending.
_GENERATING = ("/v1/", "/api/", "/completion", "/infill")

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

# About a millisecond; below it, going to a thread and back costs more than it frees.
TEXT_ON_LOOP_BYTES = 4096


@dataclass
class Call:
    """A call and what its reply has to carry. arrival_s: of the state's clock.

    body_bytes: of the body once it is parsed; what work on it can take is decided by that.
    """

    http: Request
    state: ServerState
    request_id: str
    arrival_s: float
    ignored: str = ""
    body_bytes: int = 0

    async def parse(self, endpoint: Endpoint[S]) -> S:
        """The body as the endpoint's request; unknown fields are noted for the reply's header."""
        bounds = self.state.body_bounds
        return self.checked(await self.read(lambda body: parse_request(body, endpoint, bounds)))

    def checked(self, parsed: Parsed[S]) -> S:
        """A request that was parsed, within the engine's ranges; unknown fields are noted."""
        check_ranges(parsed.request)
        self.note_ignored(parsed.ignored)
        return parsed.request

    async def read(self, work: Callable[[bytes], T]) -> T:
        """What `work` makes of the body; in a thread where that takes long."""
        body = await read_json(self.http, self.state.config.max_body_bytes)
        self.body_bytes = len(body)
        return await self.state.large_bodies.result(self.key, len(body), lambda: work(body))

    def note_ignored(self, names: Sequence[str]) -> None:
        """Name fields without effect in the reply's header, and each once in the log."""
        self.state.note_ignored(names)
        self.ignored = ignored_params(names)

    async def text_work(self, work: Callable[[], T]) -> T:
        """The result of rendering or tokenizing what the body holds.

        Raises ClientGoneError where the client goes while a large one waits or is worked on.
        """
        workers = self.state.workers
        return await self._long(off_loop(workers, self.body_bytes, TEXT_ON_LOOP_BYTES, work))

    async def grammar_work(self, work: Callable[[], tuple[Grammar, str] | None]) -> Grammar | None:
        """The grammar that `work` reads from a request with the field it comes from, compiled.

        Raises RequestError naming the field for one that cannot be, ClientGoneError where the
        client goes meanwhile.
        """

        def checked() -> Grammar | None:
            read = work()
            if read is None:
                return None
            self.state.grammar_checks.check(*read)
            return read[0]

        # Always in a thread: a small text may take long to compile.
        return await unless_gone(self.http.receive, off_loop(self.state.workers, 1, 0, checked))

    async def side_work(self, work: Callable[[], T]) -> T:
        """The same for what is no part of generation, which it never keeps waiting.

        Raises ApiError 429 where too much of it waits.
        """
        side = self.state.side_work
        return await self._long(side.result(self.body_bytes, TEXT_ON_LOOP_BYTES, work))

    async def _long(self, work: Coroutine[Any, Any, T]) -> T:
        """`work`, unless the client goes; that of a small body is done at once."""
        if self.body_bytes < TEXT_ON_LOOP_BYTES:
            return await work
        return await unless_gone(self.http.receive, work)

    @property
    def key(self) -> str:
        """The key it came with, as KeyGuard calls it; "" without one."""
        return key_of(self.http.scope)

    @property
    def owner(self) -> bytes:
        """Who it is in the store of responses."""
        return self.state.responses_store.owner(key_digest_of(self.http.scope))

    @property
    def headers(self) -> dict[str, str]:
        """Headers every reply to this call has."""
        headers = {REQUEST_ID: self.request_id}
        if self.ignored:
            headers[IGNORED_PARAMS] = self.ignored
        return headers


Handler = Callable[[Call], Awaitable[Response]]


async def _unless_cancelled(reply: Awaitable[Response], open_call: OpenCall) -> Response:
    """The reply; an ApiError where an administrator ended the call before there was one."""
    try:
        return await reply
    except asyncio.CancelledError:
        if not open_call.cancelled or open_call.task is None:
            raise
        open_call.task.uncancel()
        raise cancelled() from None


class EndpointApp:
    """ASGI app of one route. `path` is the route's, for metrics."""

    def __init__(self, path: str, handler: Handler, state: ServerState) -> None:
        self._path = path
        self._handler = handler
        self._state = state
        self._id_header = id_header_of(path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        state = self._state
        http = Request(scope, receive)
        request_id = request_id_from(http.headers.get(REQUEST_ID), state.new_id())
        name_call(request_id)
        call = Call(http, state, request_id, state.clock())
        record = current_call() or CallRecord(request_id, self._path, call.arrival_s)
        with ExitStack() as accepted:
            open_call = accepted.enter_context(state.open_calls.call(request_id, record))
            try:
                if http.method == "POST" and self._path.startswith(_GENERATING):
                    accepted.enter_context(state.drain.request())
                response = await _unless_cancelled(self._handler(call), open_call)
            except ClientGoneError:
                logger.info("request %s: the client closed the connection", request_id)
                state.http.answered(self._path, CLIENT_GONE)
                return
            except Exception as failure:  # shown as a reply, and logged by api_error if unforeseen
                error = api_error(failure, request_id, engine_retry_s=state.engine_retry_s)
                response = error_at(self._path, error, request_id)
            open_call.task = None
            if isinstance(response, EventStream):
                open_call.stream = response
            await self._send(call, response, scope, receive, send)
            state.heap.after(call.body_bytes)

    async def _send(
        self, call: Call, response: Response, scope: Scope, receive: Receive, send: Send
    ) -> None:
        headers = response.headers
        for name, value in call.headers.items():
            headers[name] = value
        if self._id_header is not None:
            headers[self._id_header] = call.request_id
        self._state.http.answered(self._path, response.status_code)
        await response(scope, receive, send)
