"""AWS event streams, application/vnd.amazon.eventstream: binary frames, read and written.

A frame is, in big-endian order: its whole length and its headers' length (32 bits each), the CRC32
of these eight bytes, the headers, the payload, the CRC32 of all that came before. A header is its
name's length (8 bits), the name, the type (8 bits) and a value of one of ten types. The limits are
those of the AWS SDKs: 128 KiB of headers, 24 MiB of payload.

Source: https://smithy.io/2.0/aws/amazon-eventstream.html
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

CONTENT_TYPE = "application/vnd.amazon.eventstream"

MAX_HEADERS_BYTES = 128 * 2**10
MAX_PAYLOAD_BYTES = 24 * 2**20

_PRELUDE = struct.Struct(">III")
_LENGTHS = struct.Struct(">II")
_CRC = struct.Struct(">I")
_TWO_BYTES = struct.Struct(">H")
_FRAME_BYTES = _PRELUDE.size + _CRC.size
_MAX_NAME_BYTES = 255

_TRUE, _FALSE, _BYTE, _SHORT, _INTEGER, _LONG, _BYTES, _STRING, _TIMESTAMP, _UUID = range(10)
_INTEGERS = {
    _BYTE: struct.Struct(">b"),
    _SHORT: struct.Struct(">h"),
    _INTEGER: struct.Struct(">i"),
    _LONG: struct.Struct(">q"),
}


class Timestamp(NamedTuple):
    """Milliseconds since 1970-01-01 UTC."""

    unix_ms: int


HeaderValue: TypeAlias = bool | int | bytes | str | Timestamp | uuid.UUID


class Frame(NamedTuple):
    """One message. Integers of all four widths are `int`."""

    headers: Mapping[str, HeaderValue]
    payload: bytes

    def text(self, name: str) -> str:
        """The header `name` if it is a string, else ""."""
        value = self.headers.get(name)
        return value if isinstance(value, str) else ""


class _DamageError(ValueError):
    """The bytes are not an event stream; the text says where."""


class EventStreamReader:
    """A reader of an AWS event stream: feed it bytes, and it returns the frames they complete.

    damage: why the bytes are not an event stream, None as long as they are. Frames before the
    damage are returned, none after it.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._headers_bytes = 0
        self._total_bytes = 0  # of the frame at the buffer's start, 0 until its prelude is there
        # Frames of one kind have the same headers, byte for byte: most are read once.
        self._block = b""
        self._headers: Mapping[str, HeaderValue] = {}
        self.damage: str | None = None

    @property
    def partial(self) -> bool:
        """Whether a frame has begun that has not ended."""
        return bool(self._buffer)

    def feed(self, piece: bytes) -> list[Frame]:
        """Frames completed by `piece`, in order."""
        frames: list[Frame] = []
        if self.damage is not None:
            return frames
        buffer = self._buffer
        buffer += piece
        start = 0
        try:
            while True:
                available = len(buffer) - start
                if not self._total_bytes:
                    if available < _PRELUDE.size:
                        break
                    self._take_prelude(start)
                if available < self._total_bytes:
                    break
                end = start + self._total_bytes
                frames.append(self._frame(bytes(memoryview(buffer)[start:end])))
                start = end
                self._total_bytes = 0
        except _DamageError as error:
            self.damage = str(error)
            buffer.clear()
            return frames
        del buffer[:start]
        return frames

    def _take_prelude(self, start: int) -> None:
        # Checked before the frame is there, so that nobody makes us wait for, or hold, 4 GiB.
        total, headers, crc = _PRELUDE.unpack_from(self._buffer, start)
        lengths = bytes(self._buffer[start : start + _LENGTHS.size])
        if zlib.crc32(lengths) != crc:
            raise _DamageError("the checksum of a frame's prelude is wrong")
        if headers > MAX_HEADERS_BYTES:
            raise _DamageError(f"a frame has {headers} bytes of headers, over {MAX_HEADERS_BYTES}")
        payload = total - headers - _FRAME_BYTES
        if payload < 0:
            raise _DamageError(f"a frame of {total} bytes cannot hold {headers} bytes of headers")
        if payload > MAX_PAYLOAD_BYTES:
            raise _DamageError(f"a frame has {payload} bytes of payload, over {MAX_PAYLOAD_BYTES}")
        self._headers_bytes = headers
        self._total_bytes = total

    def _frame(self, raw: bytes) -> Frame:
        end = len(raw) - _CRC.size
        if zlib.crc32(memoryview(raw)[:end]) != _CRC.unpack_from(raw, end)[0]:
            raise _DamageError("the checksum of a frame is wrong")
        headers_end = _PRELUDE.size + self._headers_bytes
        block = raw[_PRELUDE.size : headers_end]
        if block != self._block:
            self._headers = _read_headers(block)
            self._block = block
        return Frame(self._headers, raw[headers_end:end])


class _Cursor:
    """A place in a block of headers."""

    def __init__(self, block: bytes) -> None:
        self._block = block
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self._block):
            raise _DamageError("a header runs past the end of the headers")
        taken = self._block[self.at : end]
        self.at = end
        return taken

    def sized(self) -> bytes:
        """Bytes that are preceded by their length in two bytes."""
        return self.take(_TWO_BYTES.unpack(self.take(_TWO_BYTES.size))[0])


def _read_headers(block: bytes) -> dict[str, HeaderValue]:
    headers: dict[str, HeaderValue] = {}
    cursor = _Cursor(block)
    while cursor.at < len(block):
        name = _text(cursor.take(cursor.take(1)[0]))
        if not name or name in headers:
            raise _DamageError(f"a header's name is {('given twice' if name else 'empty')}")
        headers[name] = _read_value(cursor)
    return headers


def _read_value(cursor: _Cursor) -> HeaderValue:
    kind = cursor.take(1)[0]
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE
    if kind in _INTEGERS:
        form = _INTEGERS[kind]
        number: int = form.unpack(cursor.take(form.size))[0]
        return number
    if kind == _BYTES:
        return cursor.sized()
    if kind == _STRING:
        return _text(cursor.sized())
    if kind == _TIMESTAMP:
        return Timestamp(_INTEGERS[_LONG].unpack(cursor.take(8))[0])
    if kind == _UUID:
        return uuid.UUID(bytes=cursor.take(16))
    raise _DamageError(f"a header has type {kind}; types are 0 to 9")


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _DamageError("a header's text is not UTF-8") from None


def write_frame(headers: Mapping[str, HeaderValue], payload: bytes) -> bytes:
    """One message. An integer gets the narrowest of the four widths that holds it.

    Raises ValueError for a message that no frame can hold.
    """
    block = b"".join(_write_header(name, value) for name, value in headers.items())
    if len(block) > MAX_HEADERS_BYTES or len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(
            f"{len(block)} bytes of headers and {len(payload)} of payload do not fit into a "
            f"frame; at most {MAX_HEADERS_BYTES} and {MAX_PAYLOAD_BYTES} do"
        )
    lengths = _LENGTHS.pack(_FRAME_BYTES + len(block) + len(payload), len(block))
    front = lengths + _CRC.pack(zlib.crc32(lengths)) + block + payload
    return front + _CRC.pack(zlib.crc32(front))


def _write_header(name: str, value: HeaderValue) -> bytes:
    raw = name.encode()
    if not 0 < len(raw) <= _MAX_NAME_BYTES:
        raise ValueError(f"a header's name must have 1 to {_MAX_NAME_BYTES} bytes, not {len(raw)}")
    return bytes((len(raw),)) + raw + _write_value(name, value)


def _write_value(name: str, value: HeaderValue) -> bytes:
    if isinstance(value, bool):
        return bytes((_TRUE if value else _FALSE,))
    if isinstance(value, int):
        return _write_integer(name, value)
    if isinstance(value, Timestamp):
        return bytes((_TIMESTAMP,)) + _INTEGERS[_LONG].pack(value.unix_ms)
    if isinstance(value, uuid.UUID):
        return bytes((_UUID,)) + value.bytes
    kind, raw = (_STRING, value.encode()) if isinstance(value, str) else (_BYTES, value)
    if len(raw) >= 2**16:
        raise ValueError(f"the header {name} has {len(raw)} bytes; at most 65535 fit")
    return bytes((kind,)) + _TWO_BYTES.pack(len(raw)) + raw


def _write_integer(name: str, value: int) -> bytes:
    for kind, form in _INTEGERS.items():
        bound = 2 ** (8 * form.size - 1)
        if -bound <= value < bound:
            return bytes((kind,)) + form.pack(value)
    raise ValueError(f"the header {name} is {value}; integers have at most 64 bits")
