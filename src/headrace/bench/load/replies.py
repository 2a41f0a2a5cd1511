"""What came back, kept as bytes until somebody reads it.

Decoding costs the time of many receives, so it waits until the run is over. Two exceptions: what
the live view shows is of replies that are decoded a few at a time, and where undecoded bytes exceed
HELD_BYTES replies are decoded, one between two rounds of the event loop, down to half of it. Either
way a reply is decoded once, and all are in the records.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from headrace.bench.client.decode import Asked, decode
from headrace.bench.client.endpoints import EndpointKind
from headrace.bench.client.raw import RawReply
from headrace.bench.journal import Journal
from headrace.bench.record import RequestRecord

HELD_BYTES = 512 * 2**20
# Of a piece beside its bytes: the tuple, the time and the object's head.
_PIECE_BYTES = 128


class _Held(NamedTuple):
    asked: Asked
    raw: RawReply
    stream: bool
    failed: bool
    size_bytes: int


class Replies:
    """Of one client. `origin_ns` is the clock at the start of the run. journal: is told of each.

    late_failures: of replies that were taken for good until their body was read.
    """

    def __init__(
        self,
        kind: EndpointKind,
        origin_ns: int,
        secrets: tuple[str, ...] = (),
        journal: Journal | None = None,
    ) -> None:
        self._journal = journal
        self._kind: EndpointKind = kind
        self._origin_ns = origin_ns
        self._secrets = secrets
        self._held: deque[_Held] = deque()
        self.held_bytes = self.late_failures = 0
        self.records: list[RequestRecord] = []

    def add(self, asked: Asked, raw: RawReply, *, stream: bool, failed: bool) -> None:
        """Keep a reply; failed: as far as shows without reading its body."""
        if self._journal is not None:
            self._journal.add(asked, raw, stream=stream)
        pieces = raw.pieces
        size = sum(len(piece) for _, piece in pieces) + _PIECE_BYTES * len(pieces)
        self._held.append(_Held(asked, raw, stream, failed, size))
        self.held_bytes += size

    def add_now(self, asked: Asked, raw: RawReply, *, stream: bool) -> RequestRecord:
        """Decode a reply at once, because another request needs its answer."""
        if self._journal is not None:
            self._journal.add(asked, raw, stream=stream)
        record = self._decoded(asked, raw, stream)
        self.records.append(record)
        return record

    def read(self, count: int) -> list[RequestRecord]:
        """Decode up to `count` of the replies that wait, the latest first, and give them."""
        found: list[RequestRecord] = []
        while self._held and len(found) < count:
            held = self._held.pop()
            self.held_bytes -= held.size_bytes
            record = self._decoded(held.asked, held.raw, held.stream)
            if record.failure is not None and record.failure.kind != "cancelled":
                self.late_failures += not held.failed
            found.append(record)
        self.records += found
        return found

    def all(self) -> list[RequestRecord]:
        """Every record, in order of the index."""
        self.read(len(self._held))
        self.records.sort(key=lambda record: record.index)
        return self.records

    def _decoded(self, asked: Asked, raw: RawReply, stream: bool) -> RequestRecord:
        return decode(
            raw,
            asked,
            kind=self._kind,
            stream=stream,
            origin_ns=self._origin_ns,
            secrets=self._secrets,
        )
