"""The engine in a process of its own: `python -m headrace.engine.process --link-fd N`.

What to be (`messages.Start`) comes as JSON on stdin, and what every engine needs is imported while
it is waited for; everything else goes over the inherited socket N as frames of
`wire`. A thread reads the socket; the main thread runs the loop: take what has come, do one step,
send what it gave, and block when there is nothing to do. The end of the link is the end of the
process: whoever could be answered is gone. SIGINT is ignored (the parent decides), SIGTERM ends.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from headrace.config.settings import EngineConfig
from headrace.engine.messages import (
    Cancel,
    Failed,
    FromCore,
    Loading,
    Output,
    Ping,
    Pong,
    PrefixCacheReset,
    Ready,
    ResetPrefixCache,
    Shutdown,
    Start,
    Submit,
)
from headrace.engine.process import wire
from headrace.errors import HeadraceError, RequestError
from headrace.telemetry.logs import configure_logging

if TYPE_CHECKING:
    from headrace.engine.core import EngineCore

STATS_EVERY_S = 0.05
"""Stats go out at most this often while busy: 20 per second is finer than any scrape."""

PROGRESS_EVERY_S = 0.1
"""How far the weights are goes out at most this often: finer than anybody looks."""

MESSAGES_PER_STEP = 1024
"""Taken between two steps at most, some 30 ms' worth: a flood of them does not stop the steps."""

RECEIVE_BYTES = 1 << 18

logger = logging.getLogger("headrace.engine")


class Link:
    """The socket to the parent. Sending waits while the parent does not read."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._arrived: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._read, name="link", daemon=True).start()

    def send(self, messages: list[FromCore]) -> None:
        """Send what there is to say at one time; nothing where that is nothing."""
        if not messages:
            return
        try:
            for frame in wire.from_core(messages):
                self._socket.sendall(frame)
        except OSError:
            os._exit(0)  # nobody reads any more; the reading thread may not have seen it yet

    def receive(self, *, wait: bool) -> Iterator[bytes]:
        """Payloads that have come; with `wait` at least one."""
        try:
            yield self._arrived.get(block=wait)
            while True:
                yield self._arrived.get_nowait()
        except Empty:
            return

    def _read(self) -> None:
        frames = wire.FrameReader()
        try:
            while data := self._socket.recv(RECEIVE_BYTES):
                for payload in frames.feed(data):
                    self._arrived.put(payload)
        except ConnectionError:
            pass  # the parent died with words of ours unread: as good as its end
        except Exception:
            # Of a thread nobody joins: left to itself it would end, and the engine be deaf.
            logger.exception("reading from the parent failed")
            os._exit(1)
        # Nobody is left to answer, and the main thread may be deep in a long step.
        os._exit(0)


class LoadingReport:
    """A reporter of each phase to the parent, as it begins, and now and then how far the weights
    are.
    """

    def __init__(
        self, send: Callable[[list[FromCore]], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._send = send
        self._clock = clock
        self._at = Loading()
        self._due_s = 0.0

    def phase(self, name: str) -> None:
        """A phase begins."""
        self._at = msgspec.structs.replace(self._at, phase=name)
        self._tell()

    def progress(self, done: int, total: int) -> None:
        """Bytes of weights done and in all."""
        self._at = msgspec.structs.replace(self._at, done=done, total=total)
        if self._clock() >= self._due_s:
            self._tell()

    def _tell(self) -> None:
        self._send([self._at])
        self._due_s = self._clock() + PROGRESS_EVERY_S


def main() -> int:
    """Load, say Ready, serve until told to stop; the exit code, 1 where something went wrong."""
    begun_s = time.monotonic()  # numpy and the kernels are still to be imported
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What loading makes stays, and there is much of it: looking through it finds nothing.
    gc.disable()
    arguments = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    link = Link(socket.socket(fileno=int(arguments["--link-fd"])))
    started_s = float(arguments["--started-s"])
    try:
        from headrace.engine.load import load_engine

        told = sys.stdin.buffer.read()
        if not told:
            return 0  # launched ahead, and not needed
        start = msgspec.json.decode(told, type=Start)
        configure_logging("warning", start.log_format, sys.stderr)
        config = msgspec.json.decode(start.config, type=EngineConfig)
        report = LoadingReport(link.send)
        core = load_engine(
            config,
            started_s=started_s,
            begun_s=begun_s,
            progress=report.progress,
            on_phase=report.phase,
        ).core
        # What is loaded stays: to look through it takes a collection as long as many steps take.
        gc.freeze()
        gc.enable()
        link.send([Ready(core.info()), core.stats()])
        serve(core, link)
    except HeadraceError as error:
        link.send([Failed(str(error))])
        return 1
    except Exception as error:  # the parent learns of whatever ended it, before this process ends
        logger.exception("the engine ends")
        link.send([Failed(f"{type(error).__name__} in the engine: {error}")])
        return 1
    return 0


def serve(core: EngineCore, link: Link) -> None:
    """The loop; returns when told to shut down. What a message cannot do harms only itself.

    What can be said before a step, which may take seconds, is: answers, refusals, who has started.
    """
    stats_due_s = 0.0
    while True:
        said: list[FromCore] = []
        for payload in islice(link.receive(wait=not core.has_work), MESSAGES_PER_STEP):
            try:
                message = wire.decode_to_core(payload)
            except msgspec.DecodeError as error:
                said += _refuse_malformed(payload, error)
                continue
            if isinstance(message, Shutdown):
                return
            said += _obey(core, message)
        link.send(said)
        given: list[FromCore] = [*core.step(lambda started: link.send([*started]))]
        now_s = time.monotonic()
        if now_s >= stats_due_s or not core.has_work:
            given.append(core.stats())
            stats_due_s = now_s + STATS_EVERY_S
        link.send(given)


def _obey(core: EngineCore, message: Submit | Cancel | Ping | ResetPrefixCache) -> list[FromCore]:
    if isinstance(message, Cancel):
        core.cancel(message.request_id)
        return []
    if isinstance(message, Ping):
        return [Pong(message.number)]
    if isinstance(message, ResetPrefixCache):
        return [PrefixCacheReset(message.number, core.reset_prefix_cache())]
    try:
        core.submit(message)
    except RequestError as error:
        return [Output(message.request_id, [], finish_reason="error", error=str(error))]
    return []


def _refuse_malformed(payload: bytes, error: msgspec.DecodeError) -> list[FromCore]:
    """Answer a Submit that cannot be read, where its id can; its sender would wait for ever."""
    logger.warning("a message of %d bytes was ignored: %s", len(payload), error)
    try:
        raw = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    request_id = raw.get("request_id") if isinstance(raw, dict) else None
    if not isinstance(request_id, str) or raw.get("type") != Submit.__name__:
        return []
    return [Output(request_id, [], finish_reason="error", error=f"malformed request: {error}")]


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stderr.flush()
    # Nothing is left to do, and what is loaded was taken from the collector (gc.freeze): the
    # interpreter would look at all of it, and native types complain of what still holds them.
    os._exit(code)
