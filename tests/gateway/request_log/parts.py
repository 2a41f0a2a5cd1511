"""Records, lines and logs as tests want them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from headrace.gateway.building.request_log import request_log_of
from headrace.gateway.request_log.line import Heard, Line
from headrace.gateway.request_log.query import line_at
from headrace.gateway.request_log.record import LoggedBody, LogRecord
from headrace.gateway.request_log.written_log import WrittenLog
from headrace.gateway.settings.request_log import RequestLogSettings
from headrace.gateway.settings.secret import Sources
from tests.gateway.ledger.entries import NOVEMBER_S, entry

__all__ = ["NOVEMBER_S", "line", "log_of", "record"]


def record(number: int = 0, **more: Any) -> LogRecord:
    """An answered request of number `number`, a second after the one before."""
    at_s = more.pop("at_s", float(NOVEMBER_S + number))
    given: dict[str, Any] = {
        "line": f"{line_at(at_s)}{number:016x}",
        "id": f"req-{number}",
        "at_s": at_s,
        "dialect": "openai-chat",
        "path": "/v1/chat/completions",
        "model": "chat",
        "target": "a/m",
        "provider": "a",
        "outcome": "answered",
        "status": 200,
        "stream": False,
        "total_ms": 20.0,
        "first_token_ms": 10.0,
        "finish": "stop",
        "input_tokens": 12,
        "output_tokens": 3,
        "cost_nusd": 18_000,
        "tags": ("a", "b"),
        "request": LoggedBody(text='{"model":"chat"}', bytes=16),
        "reply": LoggedBody(text='{"id":"x"}', bytes=10, cut=True, redacted=2),
    }
    return LogRecord(**{**given, **more})


def line(number: int = 0, request: bytes = b'{"model":"chat"}', **more: Any) -> Line:
    """Of a whole answer."""
    heard = Heard([b'{"id":"x"}'], 10, False)
    told = entry(number, **{"stream": False, **more})
    return Line(told, "/v1/chat/completions", "s", "t", "", request, heard)


def log_of(
    settings: dict[str, Any] | None = None,
    folder: Path = Path(),
    environ: dict[str, str] | None = None,
    now_s: float = float(NOVEMBER_S),
) -> WrittenLog:
    """Of settings as the file would have them."""
    import msgspec

    given = msgspec.convert({"enabled": True, **(settings or {})}, RequestLogSettings)
    found = request_log_of(given, Sources(environ or {}, folder), lambda: now_s)
    assert found is not None
    return found


def many(count: int) -> list[LogRecord]:
    """With bodies that differ."""
    words = itertools.cycle(("apple", "Banana", "cherry % _ !", 'say "hi"\n', "Zürich"))
    return [
        record(
            number,
            model=f"m{number % 3}",
            key=f"k{number % 2}",
            outcome="failed" if number % 5 == 4 else "answered",
            total_ms=float(number),
            cost_nusd=None if number % 7 == 6 else number * 1000,
            request=LoggedBody(text=_json(f"{word} {number}"), bytes=1),
        )
        for number, word in zip(range(count), words, strict=False)
    ]


def _json(text: str) -> str:
    import json

    return json.dumps({"content": text})
