"""EngineClient: what server and CLI hold of an engine that runs in a process of its own.

The link is a socket pair: when either side ends, the other reads its end at once. The client
checks requests before it sends them, keeps what each open stream has not read yet, and cancels what
nobody reads any more, or too slowly. When the engine ends, every open stream raises EngineDeadError
and `alive` is False. It knows no time: whoever watches the engine counts `heartbeats`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import subprocess
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import cast

import msgspec

from headrace.config.settings import EngineConfig
from headrace.engine.limits import Limits, check_submit
from headrace.engine.messages import (
    Cancel,
    EngineInfo,
    FromCore,
    Loading,
    Output,
    Ping,
    Pong,
    PrefixCacheReset,
    Ready,
    ResetPrefixCache,
    Shutdown,
    Started,
    Stats,
    Submit,
    ToCore,
)
from headrace.engine.process import wire
from headrace.engine.process.output_buffer import OutputBuffer
from headrace.engine.process.spawn import EngineProcess, describe_exit
from headrace.engine.process.status import EngineStatus
from headrace.errors import EngineDeadError, HeadraceError, RequestError
from headrace.telemetry.logs import configured_format

logger = logging.getLogger(__name__)

UNREAD_BYTES = 16 * 2**20
"""What a reader may fall behind: 50,000 tokens, or 5,000 with 20 log probabilities each."""

END_GRACE_S = 5.0
"""How long an engine may take to end before it is killed."""

LOST_GRACE_S = 1.0
"""The same of one that closed the link itself: it is ending, and its exit code gives the cause."""


@dataclass(frozen=True, slots=True)
class _Stream:
    """The destination of an open request's outputs; `on_started` is called with the seconds it
    waited."""

    buffer: OutputBuffer
    on_started: Callable[[float], None] | None = None


class EngineClient:
    """An engine process and the streams open on it. Made by `start`; used from one event loop."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        config: EngineConfig,
        on_loading: Callable[[Loading], None] | None = None,
    ) -> None:
        self.stats = Stats()
        """The latest the engine sent; the first comes with its being ready."""
        self.exit_code: int | None = None
        """Of the engine process once it has ended; negative is the signal that ended it."""
        self.heartbeats = 0
        """Signs of life so far: outputs, steps, answers to pings, progress of loading."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it serves no more; the process may take a moment longer."""
        self._config = config
        self._on_loading = on_loading
        self._process = process
        self._transport: asyncio.WriteTransport | None = None
        self._ready: asyncio.Future[EngineInfo] = asyncio.get_running_loop().create_future()
        self._limits: Limits | None = None
        self._serving = False
        self._failure = ""
        # None: given up, and the engine's last word on it has not come.
        self._streams: dict[str, _Stream | None] = {}
        self._numbers = itertools.count(1)
        self._resets: dict[int, asyncio.Future[int]] = {}
        self._unanswered_ping = False
        self._grace_s = LOST_GRACE_S
        self._burial: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        config: EngineConfig,
        *,
        on_loading: Callable[[Loading], None] | None = None,
        process: EngineProcess | None = None,
    ) -> EngineClient:
        """Start an engine process and wait until it can serve.

        on_loading: called meanwhile with how far it is, at most every 100 ms within a phase.
        process: one that was launched before; it is this client's from then on.
        Raises HeadraceError with the engine's own words when it cannot. Cancelling ends it.
        """
        process = process or EngineProcess.launch()
        process.configure(config, configured_format())
        ours = process.take_link()
        client = cls(process.process, config, on_loading)
        try:
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: _Link(client), sock=ours)
            await client._ready
        except BaseException:
            if client._transport is None:
                ours.close()
            await client.close()
            raise
        return client

    @property
    def info(self) -> EngineInfo:
        """What the engine said of itself when it became ready."""
        return self._ready.result()

    @property
    def alive(self) -> bool:
        """Whether the engine serves; False from the moment its process or its loop has ended."""
        return self._serving

    @property
    def failure(self) -> str:
        """Why it serves no more; "" as long as nothing happened."""
        return self._failure

    @property
    def status(self) -> EngineStatus:
        """Of this one process, which nobody starts again."""
        return EngineStatus() if self._serving else EngineStatus("failed", failure=self._failure)

    @property
    def pid(self) -> int:
        """Of the engine process."""
        return self._process.pid

    def generate(
        self, submit: Submit, *, on_started: Callable[[float], None] | None = None
    ) -> AsyncGenerator[Output, None]:
        """The outputs of a new request; the last has a finish_reason. Closing it early cancels.

        on_started: called once, with the seconds it waited, when the request leaves the queue.
        To a reader that is behind, many outputs come as one; when it is too far behind
        (UNREAD_BYTES), the request is cancelled and ends with "error".
        Raises RequestError at once for a request that cannot be served or an id in use (with the
        first item: for one too large to be sent), and EngineDeadError when the engine has ended,
        now or while iterating.
        """
        self._check(submit)
        return self._stream(submit, on_started)

    async def reset_prefix_cache(self) -> int:
        """Forget every cached block that no request holds; how many. Raises EngineDeadError."""
        self._check_serving()
        number = next(self._numbers)
        reset: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._resets[number] = reset
        try:
            self._send(ResetPrefixCache(number))
            return await reset
        finally:
            self._resets.pop(number, None)

    def ping(self) -> None:
        """Ask for a sign of life, unless the last one asked for is still to come."""
        if self._serving and not self._unanswered_ping:
            self._unanswered_ping = True
            self._send(Ping(next(self._numbers)))

    def cancel(self, request_id: str) -> None:
        """Give a request up; its stream ends with "abort". Unknown and ended ids do nothing."""
        if request_id in self._streams:
            self._send(Cancel(request_id))

    async def close(self) -> None:
        """End the engine process; open streams raise EngineDeadError. Idempotent."""
        self._serving = False
        self._failure = self._failure or "the engine was closed"
        self._grace_s = END_GRACE_S
        self._send(Shutdown())
        if self._transport is not None:
            self._transport.close()
        await self._bury()

    async def kill(self, failure: str) -> None:
        """End the process at once, whatever it does, and wait until it is gone. Idempotent.

        Open streams raise EngineDeadError with `failure` before this waits, unless another cause
        was known before.
        """
        self._end(failure)
        if self._process.returncode is None:
            self._process.kill()  # not reaped yet, so the number is still its own
        if self._transport is not None:
            self._transport.abort()
        await self._bury()

    async def _stream(
        self, submit: Submit, on_started: Callable[[float], None] | None
    ) -> AsyncGenerator[Output, None]:
        self._check_now(submit.request_id)  # the request's own figures do not change meanwhile
        request_id = submit.request_id
        stream = _Stream(OutputBuffer(), on_started)
        self._send(submit)
        self._streams[request_id] = stream
        finished = False
        try:
            while not finished:
                output = await stream.buffer.take()
                finished = output is None or output.finish_reason is not None
                if output is None:
                    raise EngineDeadError(self._failure)
                yield output
        finally:
            if not finished and self._streams.get(request_id) is stream:
                self._give_up(request_id)

    def _check_serving(self) -> None:
        if not self._serving:
            raise EngineDeadError(self._failure or "the engine is not ready")

    def _check(self, submit: Submit) -> None:
        self._check_serving()
        assert self._limits is not None
        check_submit(submit, self._limits)
        self._check_now(submit.request_id)

    def _check_now(self, request_id: str) -> None:
        """What may have changed between a request's check and its being sent."""
        self._check_serving()
        if request_id in self._streams:
            raise RequestError(
                f"request_id {request_id!r} is in use; use another",
                param="request_id",
                code="duplicate_request_id",
            )

    def _send(self, message: ToCore) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(wire.to_core(message))

    def _connected(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport

    def _receive(self, message: FromCore) -> None:
        self.heartbeats += 1
        if isinstance(message, Output):
            self._deliver(message)
        elif isinstance(message, Stats):
            # A loop that turns without a step is heard by its answers to pings.
            self.heartbeats -= message.steps == self.stats.steps
            self.stats = message
        elif isinstance(message, Started):
            stream = self._streams.get(message.request_id)
            if stream is not None and stream.on_started is not None:
                stream.on_started(message.queue_s)
        elif isinstance(message, PrefixCacheReset):
            reset = self._resets.get(message.number)
            if reset is not None and not reset.done():
                reset.set_result(message.blocks)
        elif isinstance(message, Pong):
            self._unanswered_ping = False
        elif isinstance(message, Loading):
            if self._on_loading is not None:
                self._on_loading(message)
        elif isinstance(message, Ready):
            self._begin(message.info)
        else:
            self._end(message.error)

    def _begin(self, info: EngineInfo) -> None:
        if self.ended.done() or self._ready.done():
            return
        self._limits = Limits.of(info, self._config.max_logprobs)
        self._serving = True
        self._ready.set_result(info)

    def _deliver(self, output: Output) -> None:
        stream = self._streams.get(output.request_id)
        behind_bytes = 0
        if stream is not None:
            # Not the newest: however large, nobody had a chance to read it yet.
            behind_bytes = stream.buffer.num_bytes
            stream.buffer.put(output)
        if output.finish_reason is not None:
            self._streams.pop(output.request_id, None)
        elif stream is not None and behind_bytes > UNREAD_BYTES:
            logger.warning(
                "request %s is cancelled: %d bytes of its output are waiting to be read; the "
                "limit is %d",
                output.request_id,
                behind_bytes,
                UNREAD_BYTES,
            )
            error = f"cancelled: more than {UNREAD_BYTES} bytes of output were not read in time"
            stream.buffer.replace(Output(output.request_id, [], finish_reason="error", error=error))
            self._give_up(output.request_id)

    def _give_up(self, request_id: str) -> None:
        """Cancel; the id stays taken until the engine's last word on it, which nobody reads."""
        self._streams[request_id] = None
        self._send(Cancel(request_id))

    def _end(self, failure: str) -> None:
        """Nothing more will come: tell whoever waits, once, with the first cause known."""
        self._serving = False
        self._failure = self._failure or failure
        if not self.ended.done():
            self.ended.set_result(None)
        if not self._ready.done():
            self._ready.set_exception(HeadraceError(self._failure))
            self._ready.exception()  # seen: a start that was cancelled has no one to read it
        for reset in self._resets.values():
            if not reset.done():
                reset.set_exception(EngineDeadError(self._failure))
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            if stream is not None:
                stream.buffer.close()

    def _garbled(self, failure: str) -> None:
        """What follows cannot be told from noise: end the link, and with it the process."""
        logger.error("%s", failure)
        self._end(failure)
        if self._transport is not None:
            self._transport.abort()

    def _disconnected(self) -> None:
        self._serving = False
        if self._burial is None:
            self._burial = asyncio.get_running_loop().create_task(self._reap())

    async def _bury(self) -> None:
        if self._burial is None:
            self._burial = asyncio.get_running_loop().create_task(self._reap())
        await asyncio.shield(self._burial)

    async def _reap(self) -> None:
        """Wait for the process whose link is closed, kill it if it stays, tell the streams."""
        wait = self._process.wait
        try:
            code = await asyncio.to_thread(wait, self._grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = await asyncio.to_thread(wait)
        self.exit_code = code
        self._end(f"the engine process ended with {describe_exit(code)}")


class _Link(asyncio.Protocol):
    """Our end of the link: frames in, messages to the client."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._frames = wire.FrameReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._client._connected(cast(asyncio.WriteTransport, transport))

    def data_received(self, data: bytes) -> None:
        try:
            for payload in self._frames.feed(data):
                for message in wire.decode_from_core(payload):
                    self._client._receive(message)
        except msgspec.DecodeError as error:
            self._client._garbled(f"the engine sent a message that cannot be read: {error}")
        if self._frames.skipping:
            self._client._garbled("the engine sent a frame longer than the limit")

    def connection_lost(self, exc: Exception | None) -> None:
        self._client._disconnected()
