"""Log lines: text for people or JSON for machines, of this process and of the engine's alike.

A line is one record. What clients send can be in a message, so nothing in it can end the line,
move a cursor or pass for another line: whatever cannot be printed is written as an escape, and
lines of a traceback are indented. Times are UTC. Knows no prompt: what is logged, callers decide;
but of what went wrong on behalf of a call only the places are told, as messages of exceptions quote
values, and those are people's words.
"""

from __future__ import annotations

import json
import logging
import math
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from headrace.telemetry.call import current_call

LogFormat = Literal["text", "json"]

TRACE_INDENT = "    "
# Their text is one word, whatever they are.
_PLAIN = (int, float, bool)

_OWN_KEYS = frozenset({"time", "level", "logger", "message", "request_id", "exception", "stack"})


def printable(text: str) -> str:
    """`text` with every character that is not shown as itself, but the blank, as an escape.

    Line ends, control and direction characters are among them, and halves of surrogate pairs.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


class CallFilter(logging.Filter):
    """A filter that gives every record the request id of the call on whose behalf it was logged.

    may_quote: whether words of its client may be in the log.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Never drops anything."""
        if not hasattr(record, "request_id"):
            call = current_call()
            record.request_id = "" if call is None else call.request_id
            record.may_quote = call is None or call.keep_text
        return True


class TextFormatter(logging.Formatter):
    """`TIME LEVEL LOGGER: MESSAGE [request ID] KEY=VALUE …`, tracebacks indented below."""

    def format(self, record: logging.LogRecord) -> str:
        """The record in one line, and as many indented ones as its traceback has."""
        parts = [
            f"{_time(record)} {record.levelname} {record.name}: {printable(record.getMessage())}"
        ]
        request_id = getattr(record, "request_id", "")
        if request_id and request_id not in parts[0]:
            parts.append(f"[request {printable(request_id)}]")
        parts += [f"{key}={shown(value)}" for key, value in _fields(record).items()]
        lines = [" ".join(parts)]
        for trace in _traces(self, record).values():
            lines += [TRACE_INDENT + printable(line) for line in trace.splitlines()]
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """One JSON object: time, level, logger, message, request_id, exception, stack, and fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record in one line of ASCII."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        request_id = getattr(record, "request_id", "")
        if request_id:
            line["request_id"] = request_id
        for key, value in _fields(record).items():
            line[f"{key}_" if key in _OWN_KEYS else key] = json_value(value)
        return json.dumps(line | _traces(self, record), ensure_ascii=True, default=str)


def formatter(log_format: LogFormat) -> logging.Formatter:
    """That of a setting."""
    return JsonFormatter() if log_format == "json" else TextFormatter()


def configure_logging(level: str, log_format: LogFormat, stream: TextIO) -> None:
    """Write records from `level` on to `stream`; does nothing where somebody configured before."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter(log_format))
    handler.addFilter(CallFilter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def configured_format() -> LogFormat:
    """What this process logs in: an engine it starts does as well."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonFormatter):
            return "json"
    return "text"


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    """What was given as `extra={"fields": {…}}`; None values say nothing and are left out."""
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return {key: value for key, value in fields.items() if value is not None}


def shown(value: object) -> str:
    """A value in a text line; quoted where it would not be one word."""
    text = str(value)
    if type(value) in _PLAIN:
        return text
    if text.isprintable() and text and not (" " in text or '"' in text or "=" in text):
        return text
    return json.dumps(printable(text), ensure_ascii=False)


def json_value(value: Any) -> Any:
    """JSON has no infinite numbers."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _traces(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, str]:
    traces = {}
    if record.exc_info and record.exc_info[0] is not None:
        failure = record.exc_info[1]
        if failure is None or getattr(record, "may_quote", True):
            traces["exception"] = formatter.formatException(record.exc_info)
        else:
            traces["exception"] = _places(failure)
    if record.stack_info:
        traces["stack"] = record.stack_info
    return traces


def _places(failure: BaseException) -> str:
    """The traceback of an exception and of those before it, without what they say."""
    chain: list[BaseException] = []
    error: BaseException | None = failure
    while error is not None and not any(error is known for known in chain):
        chain.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(
        "Traceback (most recent call last):\n"
        f"{''.join(traceback.format_tb(error.__traceback__))}{type(error).__qualname__}"
        for error in reversed(chain)
    )
