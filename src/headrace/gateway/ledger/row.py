"""A request's entry as a row of the table, and back."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.gateway.ledger.schema import COLUMN_NAMES
from headrace.gateway.serving.entry import AttemptEntry, Entry
from headrace.protocol.neutral.usage import TokenUsage

Value = str | int | float | None

_USAGE_LINES = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "input_audio_tokens",
    "input_audio_s",
    "output_tokens",
    "reasoning_tokens",
    "output_audio_tokens",
    "images",
)
_NO_USAGE: tuple[int | None, ...] = (None,) * (len(_USAGE_LINES) + 1)
_encode = msgspec.json.Encoder().encode
_attempts = msgspec.json.Decoder(tuple[AttemptEntry, ...])
_tags = msgspec.json.Decoder(tuple[str, ...])


def row_of(entry: Entry) -> tuple[Value, ...]:
    """Values in the order of the columns."""
    usage = entry.usage
    lines = _NO_USAGE
    if usage is not None:
        lines = (*(getattr(usage, name) for name in _USAGE_LINES), usage.cost_nusd)
    return (
        entry.id,
        round(entry.at_s * 1000),
        entry.dialect,
        entry.operation,
        entry.model,
        entry.target or "",
        entry.provider or "",
        entry.organisation,
        entry.team,
        entry.user,
        entry.key,
        _encode(entry.tags).decode() if entry.tags else "[]",
        entry.outcome,
        entry.status,
        int(entry.stream),
        entry.finish,
        entry.cache,
        entry.usage_from,
        *lines,
        entry.cost_nusd,
        entry.first_token_ms,
        entry.total_ms,
        entry.overhead_us,
        _encode(entry.attempts).decode(),
        entry.error,
        entry.purpose,
        entry.parent,
        entry.variant,
        entry.assigned,
        _encode(entry.guardrails).decode() if entry.guardrails else "[]",
        entry.prompt,
        _encode(entry.ignored).decode() if entry.ignored else "[]",
        _encode(entry.skipped).decode() if entry.skipped else "[]",
        _encode(entry.dropped).decode() if entry.dropped else "[]",
    )


def entry_of(row: tuple[Any, ...]) -> Entry:
    """The entry in a row with all columns. Raises msgspec.MsgspecError for a damaged one."""
    one = dict(zip(COLUMN_NAMES, row, strict=True))
    lines = {name: one.pop(name) for name in _USAGE_LINES}
    told_nusd = one.pop("told_cost_nusd")
    usage = None
    if lines["input_tokens"] is not None:
        usage = TokenUsage(**lines, cost_nusd=told_nusd)
    found = {
        **one,
        "at_s": one["at_ms"] / 1000,
        "stream": bool(one["stream"]),
        "target": one["target"] or None,
        "provider": one["provider"] or None,
        "attempts": _attempts.decode(one["attempts"]),
        "tags": _tags.decode(one["tags"]),
        "guardrails": _tags.decode(one["guardrails"]),
        "ignored": _tags.decode(one["ignored"]),
        "skipped": _tags.decode(one["skipped"]),
        "dropped": _tags.decode(one["dropped"]),
        "usage": usage,
    }
    del found["at_ms"]
    return msgspec.convert(found, Entry)
