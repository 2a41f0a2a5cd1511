"""What came back, kept as bytes until somebody reads it.

Decoding costs the time of many receives, so it waits until the run is over. Before that the live
view sees both ends of a reply (`excerpt`), a conversation the text of a turn (`answer_text`), a bit
in each round of the event loop. Where undecoded bytes exceed HELD_BYTES, replies are decoded whole,
one in a round, down to half of it. All are in the records, once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from headrace.bench.client.answer_text import STEP_BYTES, STEP_PIECES, AnswerText
from headrace.bench.client.decode import Asked, decode
from headrace.bench.client.endpoints import EndpointKind
from headrace.bench.client.excerpt import excerpt, has_both_ends
from headrace.bench.client.raw import RawReply
from headrace.bench.record import RequestRecord
from headrace.bench.reply_journal import ReplyJournal

HELD_BYTES = 512 * 2**20
# Of a piece beside its bytes: the tuple, the time and the object's head.
_PIECE_BYTES = 128
# Of the latest replies, as many as one look at the run is for.
SHOWN_AT_ONCE = 10


@dataclass(slots=True, eq=False)
class _Held:
    asked: Asked
    raw: RawReply
    stream: bool
    failed: bool
    size_bytes: int


class Replies:
    """The replies of one client. `origin_ns` is the clock at the start of the run; `journal` gets
    each reply.

    `late_failures` counts replies that were taken for good until their body was read.
    """

    def __init__(
        self,
        kind: EndpointKind,
        origin_ns: int,
        secrets: tuple[str, ...] = (),
        journal: ReplyJournal | None = None,
    ) -> None:
        self._journal = journal
        self._kind: EndpointKind = kind
        self._origin_ns = origin_ns
        self._secrets = secrets
        self._held: deque[_Held] = deque()
        self._fresh: deque[_Held] = deque(maxlen=SHOWN_AT_ONCE)
        self.held_bytes = self.late_failures = 0
        self.records: list[RequestRecord] = []

    def add(self, asked: Asked, raw: RawReply, *, stream: bool, failed: bool) -> None:
        """Keep a reply; failed: as far as shows without reading its body."""
        if self._journal is not None:
            self._journal.add(asked, raw, stream=stream)
        pieces = raw.pieces
        size = sum(map(_size, pieces)) + _PIECE_BYTES * len(pieces)
        held = _Held(asked, raw, stream, failed, size)
        self._held.append(held)
        self._fresh.append(held)
        self.held_bytes += size

    async def add_turn(self, asked: Asked, raw: RawReply, *, stream: bool) -> str | None:
        """The text of a reply that another request needs; None where it failed."""
        is_long = len(raw.pieces) > STEP_PIECES or sum(map(_size, raw.pieces)) > STEP_BYTES
        if is_long and stream:
            answer = AnswerText(raw, self._kind)
            for _ in answer.steps():
                await asyncio.sleep(0)
            if answer.text is not None:
                self.add(asked, raw, stream=stream, failed=False)
                return answer.text
            if answer.is_cut_off:
                self.add(asked, raw, stream=stream, failed=True)
                return None
        if self._journal is not None:
            self._journal.add(asked, raw, stream=stream)
        record = self._decoded(asked, raw, stream)
        self.records.append(record)
        if record.failure is not None:
            return None
        return "".join(chunk.text for chunk in record.chunks if chunk.kind == "text")

    def show(self) -> RequestRecord | None:
        """Of the latest reply that was not shown yet and has both ends: a record without the middle
        of a long one, whose chunks are not all there; None where there is none."""
        while self._fresh:
            held = self._fresh.pop()
            part = excerpt(held.raw, stream=held.stream, lines=self._kind == "ollama")
            if part is None:
                continue
            record = self._decoded(held.asked, part.raw, held.stream)
            if part.cut_ns is None or (record.failure and record.failure.kind == "stream"):
                self._count_late(held, record)
            if part.cut_ns is None or has_both_ends(record, part.cut_ns, self._origin_ns):
                return record
        return None

    def read(self, count: int) -> list[RequestRecord]:
        """Decode up to `count` of the replies that wait, the latest first, and give them."""
        found: list[RequestRecord] = []
        while self._held and len(found) < count:
            held = self._held.pop()
            if self._fresh and self._fresh[-1] is held:
                self._fresh.pop()
            self.held_bytes -= held.size_bytes
            record = self._decoded(held.asked, held.raw, held.stream)
            self._count_late(held, record)
            found.append(record)
        self.records += found
        return found

    def all(self) -> list[RequestRecord]:
        """Every record, in order of the index."""
        self.read(len(self._held))
        self.records.sort(key=lambda record: record.index)
        return self.records

    def _count_late(self, held: _Held, record: RequestRecord) -> None:
        if record.failure is not None and record.failure.kind != "cancelled" and not held.failed:
            self.late_failures += 1
            held.failed = True

    def _decoded(self, asked: Asked, raw: RawReply, stream: bool) -> RequestRecord:
        return decode(
            raw,
            asked,
            kind=self._kind,
            stream=stream,
            origin_ns=self._origin_ns,
            secrets=self._secrets,
        )


def _size(piece: tuple[int, bytes]) -> int:
    return len(piece[1])
