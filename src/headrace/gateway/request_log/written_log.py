"""The request log of a running gateway: lines are turned into records and written by one thread,
and read by others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from headrace.gateway.batch_writer import Batches, BatchWriter, Bounds, Verdict, Waits
from headrace.gateway.request_log.filters import Page, RecordFilter
from headrace.gateway.request_log.line import Line
from headrace.gateway.request_log.record import LogRecord
from headrace.gateway.telemetry.log_status import LogStanding

if TYPE_CHECKING:
    # Its detectors are patterns to compile, and a gateway without a log needs none.
    from headrace.gateway.request_log.recorder import Recorder


class Reader(Protocol):
    """The reading side of a store, for any thread. Raises RequestLogError."""

    def newest(self, wanted: RecordFilter) -> Page:
        """See RequestLog."""

    def find(self, request_id: str) -> LogRecord | None:
        """See RequestLog."""


class _Waiting:
    """A line, and what it becomes: once, however often it is tried to be written."""

    __slots__ = ("_line", "_record", "id", "size_bytes")

    def __init__(self, line: Line) -> None:
        self.id = line.entry.id
        self.size_bytes = line.size_bytes
        self._line: Line | None = line
        self._record: LogRecord | None = None

    def record(self, recorder: Recorder) -> LogRecord:
        if self._record is None:
            assert self._line is not None
            self._record = recorder.record(self._line)
            self._line = None
        return self._record


class _Recording:
    """A maker of records of lines on the thread that writes."""

    def __init__(self, store: Batches[LogRecord], recorder: Recorder) -> None:
        self._store = store
        self.recorder = recorder
        self.delete_before = store.delete_before
        self.close = store.close

    def append(self, lines: Sequence[_Waiting], /) -> None:
        self._store.append([line.record(self.recorder) for line in lines])


class WrittenLog:
    """The RequestLog of a store. bounds: of what may wait in memory while the store is down."""

    def __init__(
        self,
        store: Batches[LogRecord],
        reader: Reader,
        recorder: Recorder,
        *,
        name: str,
        judge: Callable[[Exception], Verdict | None],
        retention_days: int | None,
        wall_s: Callable[[], float],
        bounds: Bounds,
        waits: Waits,
    ) -> None:
        self._reader = reader
        self._most_bytes = bounds.bytes
        self._recording = _Recording(store, recorder)
        self._writer = BatchWriter[_Waiting](
            self._recording,
            kind="the request log",
            name=name,
            retention_days=retention_days,
            wall_s=wall_s,
            judge=judge,
            id_of=lambda line: line.id,
            size_of=lambda line: line.size_bytes,
            bounds=bounds,
            waits=waits,
        )

    def take(self, line: Line) -> None:
        """See RequestLog. Bodies larger than all that may wait are dropped."""
        if line.size_bytes > self._most_bytes:
            line = line._replace(request=None, reply=None, without_bodies="too_large")
        self._writer.take(_Waiting(line))

    async def newest(self, wanted: RecordFilter) -> Page:
        """See RequestLog."""
        return await asyncio.to_thread(self._reader.newest, wanted)

    async def find(self, request_id: str) -> LogRecord | None:
        """See RequestLog."""
        return await asyncio.to_thread(self._reader.find, request_id)

    def change(self, recorder: Recorder, retention_days: int | None) -> None:
        """Set what is stored of lines and for how long, from now on; None: forever."""
        self._recording.recorder = recorder
        self._writer.retention_days = retention_days

    @property
    def standing(self) -> LogStanding:
        """How it is now."""
        told = self._writer.standing._asdict()
        return LogStanding(**told, waiting_bytes=self._writer.waiting_bytes)

    def close(self) -> None:
        """Write what waits, and end."""
        self._writer.close()
