"""What came back so far, on disk while a run goes on, so that a killed client leaves it behind.

Replies are written as they came, undecoded, because decoding costs the time of many receives; one
that failed is decoded, so that its message has no secrets. Several times a second a thread hands to
the system what has gathered since. A file of one client begins with a head, then comes a frame for
each reply: its length in four bytes, then MessagePack. What a dying writer cut short is left out on
reading. It knows nothing of requests that were in flight when the client died.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from headrace.bench.client.decode import Asked, decode
from headrace.bench.client.endpoints import EndpointKind
from headrace.bench.client.failure_text import BLOT
from headrace.bench.client.raw import RawReply
from headrace.bench.record import About, RequestRecord
from headrace.errors import ConfigError, shown
from headrace.weights.atomic_file import atomic_file

FOLDER = "partial"
"""In the folder of the run; gone once the run's own files are complete."""

FLUSH_S = 0.25

_RUN = "run.json"
_FORMAT = 1
_LENGTH_BYTES = 4

_log = logging.getLogger(__name__)


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run before it begins."""

    format: int
    about: About
    slo: str | None


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    kind: EndpointKind
    origin_ns: int


class _Reply(msgspec.Struct, frozen=True, array_like=True):
    asked: Asked
    stream: bool
    raw: RawReply | None
    record: RequestRecord | None


def begin(folder: Path, begun: Begun) -> Path:
    """Make the journal's folder in that of the run, empty, and say where it is.

    Raises ConfigError where it cannot be made.
    """
    inside = folder / FOLDER
    discard(folder)
    try:
        inside.mkdir(parents=True)
        with atomic_file(inside / _RUN) as file:
            file.write(msgspec.json.encode(begun))
    except OSError as error:
        raise ConfigError(f"--save {folder}: {error.strerror}") from error
    return inside


def discard(folder: Path) -> None:
    """Once the run's own files are there."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


class Journal:
    """Of one client process. `add` on the event loop; `write` until it is cancelled; `close`.

    A disk that is full ends the journal, not the run; the log says so once.
    """

    def __init__(
        self,
        path: Path,
        kind: EndpointKind,
        origin_ns: int,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self._kind: EndpointKind = kind
        self._origin_ns = origin_ns
        self._secrets = secrets
        self._encoded = tuple(secret.encode() for secret in secrets)
        self._encoder = msgspec.msgpack.Encoder()
        self._waiting = bytearray()
        self._lock = threading.Lock()
        self._path = path
        self._is_open = True
        # The head is first, whichever thread writes what follows.
        self._append(_Head(kind=kind, origin_ns=origin_ns))
        self._hand_over(self._taken())

    def add(self, asked: Asked, raw: RawReply, *, stream: bool) -> None:
        """A reply that has ended."""
        if not self._is_open:
            return
        if raw.failure is not None or raw.status is None or not 200 <= raw.status < 300:
            record = decode(
                raw,
                asked,
                kind=self._kind,
                stream=stream,
                origin_ns=self._origin_ns,
                secrets=self._secrets,
            )
            self._append(_Reply(asked, stream, None, record))
        else:
            self._append(_Reply(asked, stream, self._blotted(raw), None))

    def _append(self, what: _Head | _Reply) -> None:
        body = self._encoder.encode(what)
        self._waiting += len(body).to_bytes(_LENGTH_BYTES, "big")
        self._waiting += body

    def _blotted(self, raw: RawReply) -> RawReply:
        """A server that repeats a key is rare; looking for one is a search in few kilobytes."""
        if not self._encoded:
            return raw
        body = raw.body
        if not any(secret in body for secret in self._encoded):
            return raw
        # A key may lie across pieces: then only the last one's time is left.
        for secret in self._encoded:
            body = body.replace(secret, BLOT.encode())
        return msgspec.structs.replace(raw, pieces=((raw.pieces[-1][0], body),))

    async def write(self) -> None:
        """Hand over what has gathered, again and again."""
        while self._is_open:
            await asyncio.sleep(FLUSH_S)
            taken = self._taken()
            if taken:
                await asyncio.to_thread(self._hand_over, taken)

    def close(self) -> None:
        """Hand over the rest."""
        self._hand_over(self._taken())
        self._is_open = False

    def _taken(self) -> bytearray:
        """On the event loop: nobody appends meanwhile."""
        taken, self._waiting = self._waiting, bytearray()
        return taken

    def _hand_over(self, taken: bytearray) -> None:
        with self._lock:
            if not taken or not self._is_open:
                return
            try:
                with self._path.open("ab", buffering=0) as file:
                    file.write(taken)
            except OSError as error:
                self._is_open = False
                _log.warning(
                    "%s: %s; the run goes on, but would leave nothing if it were killed",
                    self._path,
                    error.strerror,
                )


def client_file(folder: Path, worker: int) -> Path:
    """Of one client process, in the journal's folder."""
    return folder / f"client-{worker}.frames"


def is_journal(folder: Path) -> bool:
    """Whether a run that did not end has left something in its folder."""
    return (folder / FOLDER / _RUN).is_file()


def read_journal(folder: Path) -> tuple[Begun, list[RequestRecord]]:
    """Of a run's folder: what it was to be, and what came back, in order of the intended times.

    Raises ConfigError where the files are not what this version writes.
    """
    inside = folder / FOLDER
    try:
        begun = msgspec.json.decode((inside / _RUN).read_bytes(), type=Begun)
        records = [
            record
            for path in sorted(inside.glob(client_file(Path(), 0).name.replace("0", "*")))
            for record in _records(path.read_bytes())
        ]
    except OSError as error:
        raise ConfigError(f"{shown(str(inside))} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{shown(str(inside))} is not what this version of headrace leaves of a run: {error}; "
            "use the version that ran it"
        ) from error
    if begun.format != _FORMAT:
        raise ConfigError(
            f"{shown(str(inside))} has format {begun.format}, this version reads {_FORMAT}; use "
            "the version that ran it"
        )
    records.sort(key=lambda record: (record.intended_ns, record.index))
    return begun, [
        msgspec.structs.replace(record, index=index) for index, record in enumerate(records)
    ]


def begun(about: About, slo: str | None) -> Begun:
    """In this version's format."""
    return Begun(format=_FORMAT, about=about, slo=slo)


def _records(data: bytes) -> Iterator[RequestRecord]:
    frames = _frames(data)
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


def _frames(data: bytes) -> Iterator[memoryview]:
    """Those that are whole."""
    view = memoryview(data)
    at = 0
    while at + _LENGTH_BYTES <= len(view):
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(view[at:start], "big")
        if at > len(view):
            return
        yield view[start:at]
