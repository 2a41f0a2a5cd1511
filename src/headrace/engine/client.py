"""EngineClient: what server and CLI hold of an engine that runs in a process of its own.

The link is a socket pair: when either side ends, the other reads its end at once. The client
checks requests before it sends them, keeps what each open stream has not read yet, and cancels what
nobody reads any more, or too slowly. When the engine ends, every open stream raises EngineDeadError
and `alive` is False.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import cast

import msgspec

import headrace
from headrace.config.settings import EngineConfig
from headrace.engine import wire
from headrace.engine.limits import Limits, check_submit
from headrace.engine.messages import (
    Cancel,
    EngineInfo,
    FromCore,
    Loading,
    Output,
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
from headrace.engine.status import EngineStatus
from headrace.engine.unread import Unread
from headrace.errors import EngineDeadError, HeadraceError, RequestError

logger = logging.getLogger(__name__)

UNREAD_BYTES = 16 * 2**20
"""What a reader may fall behind: 50,000 tokens, or 5,000 with 20 log probabilities each."""

END_GRACE_S = 5.0
"""How long an engine whose link is closed may take to end before it is killed."""


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
        self._config = config
        self._on_loading = on_loading
        self._process = process
        self._transport: asyncio.WriteTransport | None = None
        self._ready: asyncio.Future[EngineInfo] = asyncio.get_running_loop().create_future()
        self._limits: Limits | None = None
        self._serving = False
        self._failure = ""
        self._streams: dict[str, Unread | None] = {}
        self._on_started: dict[str, Callable[[float], None]] = {}
        self._resets: dict[int, asyncio.Future[int]] = {}
        self._burial: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, config: EngineConfig, *, on_loading: Callable[[Loading], None] | None = None
    ) -> EngineClient:
        """Start an engine process and wait until it can serve.

        on_loading: called meanwhile with how far it is, at most every 100 ms within a phase.
        Raises HeadraceError with the engine's own words when it cannot. Cancelling ends it.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            process = _spawn(config, theirs)
        client = cls(process, config, on_loading)
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
        if not self._serving:
            raise EngineDeadError(self._failure or "the engine is not ready")
        number = max(self._resets, default=0) + 1
        self._resets[number] = asyncio.get_running_loop().create_future()
        self._send(ResetPrefixCache(number))
        return await self._resets[number]

    def cancel(self, request_id: str) -> None:
        """Give a request up; its stream ends with "abort". Unknown and ended ids do nothing."""
        if request_id in self._streams:
            self._send(Cancel(request_id))

    async def close(self) -> None:
        """End the engine process; open streams raise EngineDeadError. Idempotent."""
        self._serving = False
        self._failure = self._failure or "the engine was closed"
        self._send(Shutdown())
        if self._transport is not None:
            self._transport.close()
        await self._bury()

    async def _stream(
        self, submit: Submit, on_started: Callable[[float], None] | None
    ) -> AsyncGenerator[Output, None]:
        self._check(submit)
        unread = Unread()
        self._send(submit)
        self._streams[submit.request_id] = unread
        if on_started is not None:
            self._on_started[submit.request_id] = on_started
        finished = False
        try:
            while not finished:
                output = await unread.take()
                finished = output is None or output.finish_reason is not None
                if output is None:
                    raise EngineDeadError(self._failure)
                yield output
        finally:
            self._on_started.pop(submit.request_id, None)
            if not finished and self._streams.get(submit.request_id) is unread:
                self._give_up(submit.request_id)

    def _check(self, submit: Submit) -> None:
        if not self._serving or self._limits is None:
            raise EngineDeadError(self._failure or "the engine is not ready")
        check_submit(submit, self._limits)
        if submit.request_id in self._streams:
            raise RequestError(
                f"request_id {submit.request_id!r} is in use; take one that is not",
                param="request_id",
                code="duplicate_request_id",
            )

    def _send(self, message: ToCore) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(wire.to_core(message))

    def _connected(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport

    def _receive(self, message: FromCore) -> None:
        if isinstance(message, Output):
            self._deliver(message)
        elif isinstance(message, Stats):
            self.stats = message
        elif isinstance(message, Started):
            on_started = self._on_started.pop(message.request_id, None)
            if on_started is not None:
                on_started(message.queue_s)
        elif isinstance(message, PrefixCacheReset):
            reset = self._resets.pop(message.number, None)
            if reset is not None and not reset.done():
                reset.set_result(message.blocks)
        elif isinstance(message, Pong):
            pass  # nobody asked yet
        elif isinstance(message, Loading):
            if self._on_loading is not None:
                self._on_loading(message)
        elif isinstance(message, Ready):
            info = message.info
            self._limits = Limits.of(info, self._config.max_logprobs)
            self._serving = True
            if not self._ready.done():
                self._ready.set_result(info)
        else:
            self._end(message.error)

    def _deliver(self, output: Output) -> None:
        unread = self._streams.get(output.request_id)
        if unread is not None:
            unread.put(output)
        if output.finish_reason is not None:
            self._streams.pop(output.request_id, None)
        elif unread is not None and unread.num_bytes > UNREAD_BYTES:
            logger.warning(
                "request %s is cancelled: %d bytes of its output wait to be read; the limit is %d",
                output.request_id,
                unread.num_bytes,
                UNREAD_BYTES,
            )
            error = f"cancelled: more than {UNREAD_BYTES} bytes of output were not read in time"
            unread.replace(Output(output.request_id, [], finish_reason="error", error=error))
            self._give_up(output.request_id)

    def _give_up(self, request_id: str) -> None:
        """Cancel; the id stays taken until the engine's last word on it, which nobody reads."""
        self._streams[request_id] = None
        self._send(Cancel(request_id))

    def _end(self, failure: str) -> None:
        """Nothing more will come: tell whoever waits, once, with the first cause known."""
        self._serving = False
        self._failure = self._failure or failure
        if not self._ready.done():
            self._ready.set_exception(HeadraceError(self._failure))
            self._ready.exception()  # seen: a start that was cancelled has no one to read it
        resets, self._resets = self._resets, {}
        for reset in resets.values():
            if not reset.done():
                reset.set_exception(EngineDeadError(self._failure))
        streams, self._streams = self._streams, {}
        for unread in streams.values():
            if unread is not None:
                unread.close()

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
            code = await asyncio.to_thread(wait, END_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = await asyncio.to_thread(wait)
        self.exit_code = code
        self._end(f"the engine process ended with {_describe_exit(code)}")


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
            self._client._end(f"the engine sent what cannot be read: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._client._disconnected()


def _spawn(config: EngineConfig, link: socket.socket) -> subprocess.Popen[bytes]:
    """The engine process, its config written to its stdin.

    A session of its own keeps Ctrl-C in a terminal from reaching it: the parent decides. Its
    stdout is ours no longer, so that what a command prints is only what it prints.
    """
    descriptor = link.fileno()
    environment = dict(os.environ)
    # The engine has to be of the very package that this client is of.
    package_root = str(Path(headrace.__file__).resolve().parent.parent)
    paths = [package_root, environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    arguments = ["--link-fd", str(descriptor), "--started-s", str(time.monotonic())]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "headrace.engine.process", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=(descriptor,),
        env=environment,
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        with process.stdin as stdin:
            stdin.write(msgspec.json.encode(config))
    except BrokenPipeError:
        pass  # it ended already; the link says so
    return process


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"exit code {code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"exit code {code}"
