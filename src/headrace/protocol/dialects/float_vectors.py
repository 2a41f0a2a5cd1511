"""Vectors of embeddings as little-endian float32, whether they came as numbers or as base64."""

from __future__ import annotations

import binascii
import struct
from base64 import b64decode
from collections.abc import Sequence

from headrace.protocol.neutral.dialect import DamagedReplyError

_FLOAT_BYTES = 4


def packed(vector: Sequence[float]) -> bytes:
    """Raises DamagedReplyError for numbers that are not float32."""
    try:
        return struct.pack(f"<{len(vector)}f", *vector)
    except (struct.error, OverflowError) as error:
        raise DamagedReplyError(f"an embedding is not a list of float32: {error}") from None


def decoded(vector: str) -> bytes:
    """Raises DamagedReplyError for anything but base64 of whole float32."""
    try:
        raw = b64decode(vector, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DamagedReplyError(f"an embedding is not base64: {error}") from None
    if len(raw) % _FLOAT_BYTES:
        raise DamagedReplyError(
            f"an embedding of {len(raw)} bytes is not a list of float32 values of "
            f"{_FLOAT_BYTES} bytes each"
        )
    return raw
