"""Lines of the ledger as tests want them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.gateway.ledger.file import LedgerFile
from headrace.gateway.serving.entry import AttemptEntry, Entry
from headrace.protocol.neutral.usage import TokenUsage

# 2026-11-01 at midnight, UTC.
NOVEMBER_S = 1_793_491_200
DAY_S = 86_400


def entry(number: int = 0, **more: Any) -> Entry:
    """An answered request of number `number`, a second after the one before."""
    given: dict[str, Any] = {
        "id": f"req-{number}",
        "at_s": float(NOVEMBER_S + number),
        "dialect": "openai-chat",
        "model": "chat",
        "target": "a/m",
        "provider": "a",
        "outcome": "answered",
        "status": 200,
        "stream": True,
        "attempts": (AttemptEntry(target="a/m", began_ms=1.0, lasted_ms=20.0, status=200),),
        "usage": TokenUsage(input_tokens=12, output_tokens=3),
        "usage_from": "provider",
        "cost_nusd": 18_000,
        "finish": "stop",
        "first_token_ms": 10.0,
        "total_ms": 20.0,
        "overhead_us": 300,
    }
    return Entry(**{**given, **more})


def refused(number: int = 0, **more: Any) -> Entry:
    """A request that no target was asked for."""
    given: dict[str, Any] = {
        "target": None,
        "provider": None,
        "outcome": "refused",
        "status": 429,
        "attempts": (),
        "usage": None,
        "usage_from": "none",
        "cost_nusd": None,
        "finish": None,
        "first_token_ms": None,
        "error": "too many",
    }
    return entry(number, **{**given, **more})


def written(path: Path, *entries: Entry) -> Path:
    """A ledger with these in it."""
    file = LedgerFile(path)
    file.append(entries)
    file.close()
    return path
