"""The way back to a client, through the guardrails that check answers.

The writer does not know about them. Refusals and errors pass unchecked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.gateway.guards.action import Acted, GuardBlockedError
from headrace.gateway.guards.guard import NAMELESS, Guard, Subject
from headrace.gateway.guards.reply import guarded_reply
from headrace.gateway.guards.stream import StreamGuards
from headrace.gateway.serving.incoming import Sink

GUARDRAILS_HEADER = "x-headrace-guardrails"
# Clients and what stands before them hang up after half a minute or more of silence.
_KEEP_ALIVE_NS = 10 * 10**9

Header = tuple[str, str]


class GuardedSink:
    """A sink that passes an answer through guardrails on its way to the client.

    acted: what was done so far, reported in a header and extended here. fails: writes a refusal as
    an event of a stream that has begun. keep_alive: what may be sent between two events.

    `start`, `write`, `last` and `end` raise GuardBlockedError; the client of a stream has been
    informed by then.
    """

    def __init__(
        self,
        sink: Sink,
        guards: Sequence[Guard],
        subject: Subject,
        acted: list[Acted],
        *,
        stream: bool,
        fails: Callable[[GuardBlockedError], bytes],
        keep_alive: bytes,
        clock_ns: Callable[[], int],
        more_headers: Sequence[Header] = (),
    ) -> None:
        self._sink = sink
        self._guards = guards
        self._subject = subject
        self._acted = acted
        self._is_stream = stream
        self._fails = fails
        self._keep_alive = keep_alive
        self._clock_ns = clock_ns
        self._more_headers = list(more_headers)
        self._stream: StreamGuards | None = None
        self._head: list[Header] | None = None
        self._body: list[bytes] = []
        self._is_open = not guards
        self._told_ns = 0

    @property
    def bare(self) -> Sink:
        """The way back without guardrails."""
        return self._sink

    async def start(self, status: int, headers: list[Header]) -> None:
        """See Sink. The headers of a whole answer wait for its body."""
        if status != 200:
            self._is_open = True
            self._stream = self._head = None
        if self._is_open:
            await self._sink.start(status, headers + self._told())
        elif self._is_stream:
            self._stream = StreamGuards(self._guards, self._subject, self._acted.append)
            self._told_ns = self._clock_ns()
            await self._sink.start(status, headers + self._told())
        else:
            self._head = headers

    async def write(self, piece: bytes) -> None:
        """See Sink."""
        if self._is_open:
            await self._sink.write(piece)
        elif self._stream is None:
            self._body.append(piece)
        else:
            try:
                out = self._stream.feed(piece)
            except GuardBlockedError as error:
                await self._ended_by(error)
                raise
            await self._told_some(out)

    async def last(self, piece: bytes) -> None:
        """See Sink."""
        if self._is_open:
            await self._sink.last(piece)
            return
        await self.write(piece)
        await self.end()

    async def end(self) -> None:
        """See Sink."""
        if self._is_open:
            await self._sink.end()
        elif self._stream is None:
            await self._tell_whole()
        else:
            try:
                out = await self._stream.end()
            except GuardBlockedError as error:
                await self._ended_by(error)
                raise
            if out:
                await self._sink.write(out)
            await self._sink.end()

    async def _tell_whole(self) -> None:
        assert self._head is not None
        body = b"".join(self._body)
        body = await guarded_reply(self._guards, self._subject, body, self._acted.append)
        headers = [one for one in self._head if one[0] != "content-length"]
        headers += [("content-length", str(len(body))), *self._told()]
        self._is_open = True
        await self._sink.start(200, headers)
        await self._sink.last(body)

    async def _ended_by(self, error: GuardBlockedError) -> None:
        self._is_open = True
        error.told = True
        await self._sink.write(error.passed + self._fails(error))
        await self._sink.end()

    async def _told_some(self, out: bytes) -> None:
        if out:
            self._told_ns = self._clock_ns()
            await self._sink.write(out)
        elif self._keep_alive and self._clock_ns() - self._told_ns > _KEEP_ALIVE_NS:
            self._told_ns = self._clock_ns()
            await self._sink.write(self._keep_alive)

    def _told(self) -> list[Header]:
        """The headers that clients may see; `monitor` is for the operator alone."""
        told = "; ".join(
            dict.fromkeys(
                f"{one.guard}={one.action}"
                for one in self._acted
                if one.action != "monitor" and one.guard != NAMELESS
            )
        )
        return [*self._more_headers, *([(GUARDRAILS_HEADER, told)] if told else [])]
