"""Frames on the link between client and engine process: a length, then msgpack.

A frame is a 4-byte little-endian length and that many bytes. To the engine one frame is one
`ToCore` message; from it one frame is the list of everything a step gave. A payload that does not
decode costs only itself: framing and decoding are separate, so the stream stays in step.
"""

from __future__ import annotations

import logging
import struct
from typing import TypeVar

import msgspec

from headrace.engine.messages import FromCore, ToCore
from headrace.errors import RequestError

MAX_FRAME_BYTES = 1 << 28
"""Longer frames are skipped unread: 50 times a prompt of a million tokens; a bound on memory."""

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()
_to_core = msgspec.msgpack.Decoder(ToCore)
_from_core = msgspec.msgpack.Decoder(list[FromCore])


def to_core(message: ToCore) -> bytes:
    """The frame of one message to the engine.

    Raises RequestError where the other end would skip it: its sender would wait for ever.
    """
    payload = _encoder.encode(message)
    if len(payload) > MAX_FRAME_BYTES:
        raise RequestError(
            f"the request takes {len(payload)} bytes as a message to the engine; the limit is "
            f"{MAX_FRAME_BYTES}. Shorten the prompt, cache_salt or stop_token_ids.",
            code="request_too_large",
        )
    return _frame(payload)


def from_core(messages: list[FromCore], max_frame_bytes: int = MAX_FRAME_BYTES) -> list[bytes]:
    """What the engine has to say at one time: one frame, or several where it would be too long.

    What one request is given in a step is bounded at its submission, far below a frame.
    """
    payload = _encoder.encode(messages)
    if len(payload) <= max_frame_bytes or len(messages) == 1:
        return [_frame(payload)]
    half = len(messages) // 2
    return [
        *from_core(messages[:half], max_frame_bytes),
        *from_core(messages[half:], max_frame_bytes),
    ]


def decode_to_core(payload: bytes) -> ToCore:
    """The message of a frame; raises msgspec.DecodeError (ValidationError is one of its kind)."""
    message: ToCore = _decoded(_to_core, payload)
    return message


def decode_from_core(payload: bytes) -> list[FromCore]:
    """The messages of a frame; raises msgspec.DecodeError."""
    return _decoded(_from_core, payload)


def _decoded(decoder: msgspec.msgpack.Decoder[T], payload: bytes) -> T:
    try:
        return decoder.decode(payload)
    except (UnicodeDecodeError, RecursionError) as error:  # msgspec's failures of other kinds
        raise msgspec.DecodeError(str(error)) from error


def _frame(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


class FrameReader:
    """A splitter of a byte stream into payloads, however it is chopped. Logs frames that it has to
    skip.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max = max_frame_bytes
        self._buffer = bytearray()
        self._discard = 0

    @property
    def skipping(self) -> bool:
        """Whether the bytes that come next belong to a frame that is too long to be kept."""
        return self._discard > 0

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that `data` completes, in order."""
        buffer = self._buffer
        buffer += data
        payloads: list[bytes] = []
        while True:
            if self._discard:
                dropped = min(self._discard, len(buffer))
                del buffer[:dropped]
                self._discard -= dropped
            if len(buffer) < _LENGTH.size:
                return payloads
            (length,) = _LENGTH.unpack_from(buffer)
            if length > self._max:
                logger.error("a frame of %d bytes was skipped; the limit is %d", length, self._max)
                self._discard = _LENGTH.size + length
                continue
            end = _LENGTH.size + length
            if len(buffer) < end:
                return payloads
            payloads.append(bytes(buffer[_LENGTH.size : end]))
            del buffer[:end]
