"""An answer that takes several requests: it is created, then streamed or polled.

Giving it up before its end cancels it at the provider, so that nothing unread is paid for.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from headrace.gateway.targets.auth import Credential, Outgoing
from headrace.gateway.targets.in_steps import InSteps
from headrace.gateway.targets.provider import Provider
from headrace.gateway.upstream.connection import Reply
from headrace.gateway.upstream.limits import Timeouts
from headrace.gateway.upstream.origin import Origin
from headrace.gateway.upstream.request import request_bytes
from headrace.protocol.neutral.event import Event, ReplyEnd, ReplyFailure
from headrace.protocol.neutral.steps import AnswerSteps, ProviderRequest

Headers = tuple[tuple[str, str], ...]

_PORTS = {"http": 80, "https": 443}


class SteppedAnswer:
    """One answer at one provider that takes several requests.

    `most_bytes` limits each reply, and `headers` go with every request. `proof` holds the headers
    that authenticated the last request.
    """

    def __init__(
        self,
        steps: AnswerSteps,
        provider: Provider,
        in_steps: InSteps,
        credential: Credential,
        timeouts: Timeouts,
        most_bytes: int,
        headers: Headers,
    ) -> None:
        self._steps = steps
        self._provider = provider
        self._in_steps = in_steps
        self._credential = credential
        self._timeouts = timeouts
        self._most_bytes = most_bytes
        self._headers = headers
        self._body: Reply | None = None
        self._first: asyncio.Future[list[Event]] | None = None
        self._over = False
        self._has_content = False
        self.proof: Headers = ()

    async def events(self) -> list[Event]:
        """The next events, at least one; the last is a ReplyEnd or a ReplyFailure.

        Raises UpstreamError.
        """
        while True:
            ask = self._steps.next_request()
            if ask is None:
                return [ReplyEnd()]
            events = await self._step(ask)
            if self._body is not None and self._steps.next_request() != ask:
                self._body.abort()  # the stream is over; its connection is not reused
                self._body = None
            if events:
                self._over = isinstance(events[-1], ReplyEnd | ReplyFailure)
                return events

    def content_came(self) -> None:
        """Call when content arrives: from then on pauses may not exceed idle_s."""
        self._has_content = True
        if self._body is not None:
            self._body.limit_idle(self._timeouts.idle_s)

    def abort(self) -> None:
        """Give up the rest. What still runs is cancelled after this returns."""
        body, self._body = self._body, None
        if body is not None:
            body.abort()
        if not self._over:
            self._over = True
            if self._first is not None or self._steps.cancel_request() is not None:
                self._in_steps.errand(self._cancel(self._first))

    async def _step(self, ask: ProviderRequest) -> list[Event]:
        if self._body is not None:
            piece = await self._body.piece()
            return self._steps.feed(piece) if piece else self._steps.end_of_body()
        if ask.after_s:
            await self._in_steps.sleep(ask.after_s)
        if ask.streams:
            reply = await self._send(ask)
            if reply.status == 200:
                self._body = reply
                return []
            reply.abort()
            return self._steps.take(reply.status, reply.headers, b"")
        if self._steps.cancel_request() is None:
            return await self._made(ask)
        return await self._take(ask)

    async def _made(self, ask: ProviderRequest) -> list[Event]:
        """Send the first request, which goes on even if the caller leaves: only its reply says what
        there is to cancel."""
        self._first = asyncio.ensure_future(self._take(ask))
        try:
            return await asyncio.shield(self._first)
        finally:
            if self._first.done():
                self._first = None

    async def _take(self, ask: ProviderRequest) -> list[Event]:
        reply = await self._send(ask)
        try:
            body = await reply.body(self._most_bytes)
        finally:
            reply.abort()
        return self._steps.take(reply.status, reply.headers, body)

    async def _cancel(self, first: asyncio.Future[list[Event]] | None) -> None:
        if first is not None:
            await first
        ask = self._steps.cancel_request()
        if ask is not None:
            reply = await self._send(ask)
            reply.abort()

    async def _send(self, ask: ProviderRequest) -> Reply:
        base, pool = self._provider.base, self._provider.pool
        origin, path = base.origin, ""
        if ask.url is None:
            path = base.joined(ask.path)
        else:
            origin, path = _place(ask.url)
            if origin != base.origin:
                pool = self._in_steps.pool(origin)
        headers = (*ask.headers.items(), *self._headers)
        self.proof = await self._credential.headers(
            Outgoing(ask.method, origin.host_header, path, headers, ask.body)
        )
        headers += self.proof
        request = request_bytes(ask.method, origin, path, headers, ask.body)
        timeouts = self._timeouts
        if ask.streams and not self._has_content:
            timeouts = timeouts.before_content()
        return await pool.send(request, timeouts)


def _place(url: str) -> tuple[Origin, str]:
    parts = urlsplit(url)
    origin = Origin(parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme])
    path = parts.path or "/"
    return origin, f"{path}?{parts.query}" if parts.query else path
