"""Replies in a run's journal: what a client writes down of each, and what is read of it afterwards.

They are written as they came, undecoded, because decoding costs the time of many receives; one that
failed, or that repeats a secret, is decoded, so that what is written has none. A secret that an
answer spells over several events is found only when the record is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from headrace.bench.client.decode import Asked, decode
from headrace.bench.client.endpoints import EndpointKind
from headrace.bench.client.raw import RawReply
from headrace.bench.client.secrets import as_in_json
from headrace.bench.journal import Begun, Journal, read_journal
from headrace.bench.record import RequestRecord

# Of a reply that did not fail.
_READ_HEADERS = ("content-encoding", "content-type", "x-queue-time")


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    kind: EndpointKind
    origin_ns: int


class _Reply(msgspec.Struct, frozen=True, array_like=True):
    asked: Asked
    stream: bool
    raw: RawReply | None
    record: RequestRecord | None


class ReplyJournal:
    """A journal of the replies of one client process. `file` is written and closed by the code that
    runs the client."""

    def __init__(
        self,
        path: Path,
        kind: EndpointKind,
        origin_ns: int,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self.file = Journal(path, _Head(kind=kind, origin_ns=origin_ns))
        self._kind: EndpointKind = kind
        self._origin_ns = origin_ns
        self._secrets = secrets
        self._encoded = as_in_json(secrets)

    def add(self, asked: Asked, raw: RawReply, *, stream: bool) -> None:
        """A reply that has ended."""
        if not self.file.is_open:
            return
        if _failed(raw) or self._repeats_a_secret(raw):
            record = decode(
                raw,
                asked,
                kind=self._kind,
                stream=stream,
                origin_ns=self._origin_ns,
                secrets=self._secrets,
            )
            self.file.add(_Reply(asked, stream, None, record))
            return
        headers = {name: raw.headers[name] for name in _READ_HEADERS if name in raw.headers}
        kept = msgspec.structs.replace(raw, headers=headers)
        self.file.add(_Reply(asked, stream, kept, None))

    def _repeats_a_secret(self, raw: RawReply) -> bool:
        """Rare; looking for one is a search in few kilobytes."""
        if not self._encoded:
            return False
        came = " ".join(raw.headers.get(name, "") for name in _READ_HEADERS).encode() + raw.body
        return any(secret in came for secret in self._encoded)


def _failed(raw: RawReply) -> bool:
    return raw.failure is not None or raw.status is None or not 200 <= raw.status < 300


def read_reply_journal(folder: Path) -> tuple[Begun, list[RequestRecord]]:
    """Of a run's folder, as `read_journal`."""
    return read_journal(folder, _records)


def _records(frames: Iterator[memoryview]) -> Iterator[RequestRecord]:
    first = next(frames, None)
    if first is None:
        return
    head = msgspec.msgpack.decode(first, type=_Head)
    decoder = msgspec.msgpack.Decoder(_Reply)
    for frame in frames:
        reply = decoder.decode(frame)
        if reply.record is not None:
            yield reply.record
        elif reply.raw is not None:
            yield decode(
                reply.raw,
                reply.asked,
                kind=head.kind,
                stream=reply.stream,
                origin_ns=head.origin_ns,
            )
