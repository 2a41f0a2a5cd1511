"""A line of the log per request: sizes, times and what became of it.

Fields that the server's log has too have its names. What providers say is at level debug alone, as
they quote what was sent; what clients sent and keys are in no line.
"""

from __future__ import annotations

import logging
from typing import Any

from headrace.gateway.serving.entry import Entry

logger = logging.getLogger("headrace.gateway.access")

_MOST_ERROR_CHARS = 200


def log_entry(entry: Entry) -> None:
    """Tell of a request that is over."""
    if logger.isEnabledFor(logging.INFO):
        logger.info("request ended", extra={"request_id": entry.id, "fields": fields_of(entry)})
    if entry.error and logger.isEnabledFor(logging.DEBUG):
        logger.debug("why: %s", entry.error, extra={"request_id": entry.id})


def fields_of(entry: Entry) -> dict[str, Any]:
    """None says nothing and is left out of the line."""
    usage = entry.usage
    failures = [
        f"{one.target} {one.failure}{f' {one.status}' if one.status else ''}"
        for one in entry.attempts
        if one.failure is not None
    ]
    first_ms = entry.first_token_ms
    return {
        "outcome": entry.outcome,
        "status": entry.status or 499,
        "model": entry.model[:_MOST_ERROR_CHARS],
        "target": entry.target,
        "dialect": entry.dialect,
        "key": entry.key or None,
        "attempts": len(entry.attempts),
        "failures": "; ".join(failures) or None,
        "cache": entry.cache or None,
        "prompt_tokens": None if usage is None else usage.prompt_tokens,
        "cached_tokens": None if usage is None else usage.cache_read_tokens,
        "output_tokens": None if usage is None else usage.completion_tokens,
        "usage_from": None if usage is None else entry.usage_from,
        "finish_reason": entry.finish,
        "cost_nusd": entry.cost_nusd,
        "ttft_s": None if first_ms is None else round(first_ms * 1e-3, 6),
        "e2e_s": round(entry.total_ms * 1e-3, 6),
        "overhead_us": entry.overhead_us,
        "stream": entry.stream,
        # Of what was refused here the words are ours.
        "error": entry.error[:_MOST_ERROR_CHARS] if entry.outcome == "refused" else None,
    }
