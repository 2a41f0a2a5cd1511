"""RFC 3339, the format of Ollama's times."""

from __future__ import annotations

from datetime import UTC, datetime

EPOCH = "1970-01-01T00:00:00Z"


def unix_s(text: str | None) -> int | None:
    """Seconds since 1970; None if it is not a time with an offset."""
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
        return None if time.tzinfo is None else int(time.timestamp())
    except (ValueError, OverflowError):
        return None


def rfc3339(unix_s: int | None) -> str:
    """The epoch for None and for what no calendar holds."""
    if unix_s is None:
        return EPOCH
    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return EPOCH
