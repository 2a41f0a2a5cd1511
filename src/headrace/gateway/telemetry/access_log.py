"""One log line per request: sizes, times and outcome.

Fields that the server's log has too have its names. Providers' messages appear only at level debug,
as they quote requests; clients' content and keys appear in no line.
"""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from headrace.gateway.serving.entry import Entry
from headrace.telemetry.logs import LogFormat, json_value, shown

logger = logging.getLogger("headrace.gateway.access")

_MOST_ERROR_CHARS = 200
_MESSAGE = "request ended"
# Names come back with every request, but clients choose some of them.
_MOST_WORDS = 1000


class AccessLog:
    """A writer of the same lines as `telemetry/logs.py`, if the logger is enabled for INFO.

    It takes a fifth of the time of a `logging` record, which was a tenth of a request's CPU time.
    In an event loop the lines of one round are written together, because a write is a system call
    and under load several requests end in one round.
    """

    def __init__(self, stream: TextIO, log_format: LogFormat) -> None:
        self._stream = stream
        self._line = self._json if log_format == "json" else self._text
        self._lines: list[str] = []
        self._second = -1
        self._prefix = ""
        self._words: dict[str, str] = {}

    def take(self, entry: Entry) -> None:
        """Log a request that is over."""
        if logger.isEnabledFor(logging.INFO):
            # Arrival plus duration is when it ended, without another look at a clock.
            self._lines.append(self._line(entry, entry.at_s + entry.total_ms * 1e-3))
            if len(self._lines) == 1:
                self._write_soon()
        if entry.error and logger.isEnabledFor(logging.DEBUG):
            logger.debug("why: %s", entry.error, extra={"request_id": entry.id})

    def _write_soon(self) -> None:
        try:
            asyncio.get_running_loop().call_soon(self.flush)
        except RuntimeError:  # outside of a loop
            self.flush()

    def flush(self) -> None:
        """Write the pending lines."""
        lines, self._lines = self._lines, []
        self._stream.write("".join(lines))
        self._stream.flush()

    def _text(self, entry: Entry, ended_s: float) -> str:
        usage, first_ms = entry.usage, entry.first_token_ms
        if usage is not None and first_ms is not None and _is_plain(entry):
            word = self._word
            return (
                f"{self._time(ended_s)} INFO {logger.name}: {_MESSAGE} "
                f"[request {word(entry.id, keep=False)}] outcome={entry.outcome} "
                f"status={entry.status} model={word(entry.model[:_MOST_ERROR_CHARS])} "
                f"target={word(entry.target or '')} dialect={entry.dialect} key={word(entry.key)} "
                f"attempts=1 prompt_tokens={usage.prompt_tokens} "
                f"cached_tokens={usage.cache_read_tokens} "
                f"output_tokens={usage.completion_tokens} usage_from={entry.usage_from} "
                f"finish_reason={entry.finish} cost_nusd={entry.cost_nusd} "
                f"ttft_s={round(first_ms * 1e-3, 6)} e2e_s={round(entry.total_ms * 1e-3, 6)} "
                f"overhead_us={entry.overhead_us} stream={entry.stream}\n"
            )
        words = [f"{self._time(ended_s)} INFO {logger.name}: {_MESSAGE}"]
        if entry.id:
            words.append(f"[request {self._word(entry.id, keep=False)}]")
        for name, value in fields_of(entry).items():
            if value is not None:
                text = self._word(value) if type(value) is str else str(value)
                words.append(f"{name}={text}")
        return " ".join(words) + "\n"

    def _json(self, entry: Entry, ended_s: float) -> str:
        line = {
            "time": self._time(ended_s),
            "level": "info",
            "logger": logger.name,
            "message": _MESSAGE,
            "request_id": entry.id,
        }
        for name, value in fields_of(entry).items():
            if value is not None:
                line[name] = json_value(value)
        try:
            text = msgspec.json.encode(line).decode()
        except (msgspec.EncodeError, UnicodeError):  # halves of surrogate pairs
            text = ""
        # ASCII only, as all lines of the log.
        return (text if text and text.isascii() else json.dumps(line)) + "\n"

    def _time(self, at_s: float) -> str:
        milliseconds = int(at_s * 1000)
        second = milliseconds // 1000
        if second != self._second:
            self._second = second
            self._prefix = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._prefix}.{milliseconds % 1000:03d}Z"

    def _word(self, text: str, *, keep: bool = True) -> str:
        known = self._words.get(text)
        if known is None:
            known = shown(text)
            if keep:
                if len(self._words) >= _MOST_WORDS:
                    self._words.clear()
                self._words[text] = known
        return known


def _is_plain(entry: Entry) -> bool:
    """Whether it is an ordinary request, whose line is written without checking each field: the
    same line in a third of the time."""
    return (
        entry.outcome == "answered"
        and entry.cost_nusd is not None
        and entry.finish is not None
        and bool(entry.key and entry.id and entry.target and entry.status)
        and len(entry.attempts) == 1
        and entry.attempts[0].failure is None
        and not (entry.cache or entry.guardrails or entry.prompt or entry.purpose)
        and not (entry.variant or entry.ignored or entry.skipped or entry.dropped)
    )


def fields_of(entry: Entry) -> dict[str, Any]:
    """The fields of the line; None omits a field."""
    usage = entry.usage
    attempts = entry.attempts
    failures = ""
    if len(attempts) > 1 or (attempts and attempts[0].failure is not None):
        failures = "; ".join(
            f"{attempt.target} {attempt.failure}{f' {attempt.status}' if attempt.status else ''}"
            for attempt in attempts
            if attempt.failure is not None
        )
    # After a failed attempt the message may be a provider's; otherwise it is the gateway's.
    ours = entry.outcome in ("refused", "failed") and not (
        attempts and attempts[-1].failure is not None
    )
    first_ms = entry.first_token_ms
    return {
        "outcome": entry.outcome,
        "status": entry.status or 499,
        "model": entry.model[:_MOST_ERROR_CHARS],
        "target": entry.target,
        "dialect": entry.dialect,
        "key": entry.key or None,
        "attempts": len(attempts),
        "failures": failures or None,
        "skipped": "; ".join(entry.skipped) or None,
        "ignored": ", ".join(entry.ignored) or None,
        "dropped": ", ".join(entry.dropped) or None,
        "cache": entry.cache or None,
        "guardrails": "; ".join(entry.guardrails) or None,
        "prompt": entry.prompt or None,
        "purpose": entry.purpose or None,
        "variant": entry.variant or None,
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
        "error": (entry.error[:_MOST_ERROR_CHARS] or None) if ours else None,
    }
