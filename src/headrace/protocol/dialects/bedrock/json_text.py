"""JSON at the edges: integers beyond 64 bits, which msgspec reads and does not write, included."""

from __future__ import annotations

import json
from typing import Any

import msgspec

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading a body may raise."""


def encoded(value: Any) -> bytes:
    """JSON of what came from JSON. Raises RecursionError for what is nested too deeply."""
    try:
        return msgspec.json.encode(value)
    except OverflowError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
